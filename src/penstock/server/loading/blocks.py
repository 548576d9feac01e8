"""The pieces of a body, whatever their size, as blocks of about a megabyte that end where a row does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.errors import InvalidInput

__all__ = ["BLOCK_BYTES", "cut_blocks"]

BLOCK_BYTES = 1024 * 1024


def cut_blocks(
    chunks: Iterable[bytes], find_end: Callable[[bytes], int], refuse: Callable[[], InvalidInput], most: int
) -> Iterator[bytes]:
    """Blocks; `find_end` tells how much of its bytes are whole rows. The last one may lack its end of line.

    Raises what `refuse` makes where no row has ended after `most` bytes.
    """
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        for start in range(0, len(chunk), BLOCK_BYTES):
            piece = chunk[start : start + BLOCK_BYTES]
            waiting.append(piece)
            size += len(piece)
            if size < BLOCK_BYTES:
                continue
            block = b"".join(waiting)
            end = find_end(block)
            if end:
                yield block[:end]
            elif size > most:
                raise refuse()
            waiting = [block[end:]]
            size -= end
    if size:
        yield b"".join(waiting)

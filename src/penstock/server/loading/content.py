"""What a body is, by its headers: its format, and whether it is compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from penstock.errors import InvalidInput
from penstock.model.checks import shown

__all__ = ["ARROW", "CSV", "NDJSON", "PARQUET", "decompress", "find_format"]

NDJSON, CSV, ARROW, PARQUET = "ndjson", "csv", "arrow", "parquet"
_FORMATS = {
    "application/x-ndjson": NDJSON,
    "application/ndjson": NDJSON,
    "application/jsonl": NDJSON,
    "application/x-jsonlines": NDJSON,
    "text/csv": CSV,
    "application/vnd.apache.arrow.stream": ARROW,
    "application/vnd.apache.parquet": PARQUET,
}
_OFFERED = "application/x-ndjson, text/csv, application/vnd.apache.arrow.stream or application/vnd.apache.parquet"
_PIECE = 1024 * 1024


def find_format(content_type: str) -> str:
    """The format that a Content-Type names."""
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    if kind not in _FORMATS:
        given = shown(content_type) if kind else "a body of which nobody says what it is"
        raise InvalidInput("Content-Type", f"{given} cannot be loaded; send {_OFFERED}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise InvalidInput("Content-Type", f"{shown(content_type)} cannot be read; send UTF-8")
        if name == "header" and value.strip('"') == "absent":
            raise InvalidInput("Content-Type", "the first row of a CSV has to name its columns; send it with a header")
    return _FORMATS[kind]


def decompress(chunks: Iterable[bytes], encoding: str | None, form: str) -> Iterator[bytes]:
    """A body as it was before it was compressed, a little at a time."""
    if encoding is None or encoding.strip().lower() in ("", "identity"):
        return iter(chunks)
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise InvalidInput("Content-Encoding", f"{shown(encoding)} is not known here; send gzip, or leave it out")
    if form not in (NDJSON, CSV):
        raise InvalidInput("Content-Encoding", f"{form} is sent as it is; leave the header out")
    return _gunzip(chunks)


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for chunk in chunks:
        rest = chunk
        while rest:
            if stream.eof:
                # Several that follow each other are one, as with `cat a.gz b.gz`.
                stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
            try:
                piece = stream.decompress(rest, _PIECE)
            except zlib.error as error:
                raise InvalidInput("body", f"it is not gzip ({error}); compress it again, or send it plain") from None
            if piece:
                yield piece
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
    while not stream.eof and (piece := stream.decompress(b"", _PIECE)):
        yield piece
    if not stream.eof:
        raise InvalidInput("body", "its gzip ends too early; compress it again, and send all of it")

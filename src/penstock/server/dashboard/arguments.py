"""Arguments of a job as somebody typed them: one JSON object, whose values go on as they were written."""

from __future__ import annotations

import msgspec

from penstock.errors import InvalidInput
from penstock.server.values import decode_body

__all__ = ["read_arguments"]


def read_arguments(text: str) -> dict[str, msgspec.Raw]:
    """Each by its name. A number keeps all of its digits; one that is too large is refused and becomes nothing else."""
    try:
        found: dict[str, msgspec.Raw] = decode_body(text.encode(), dict[str, msgspec.Raw])
    except InvalidInput as error:
        problem = "they are one JSON object" if error.problem.startswith("expected") else error.problem
        raise InvalidInput("args", f'{problem}; write each by its name, as {{"to": "ada@example.org"}}') from None
    return found

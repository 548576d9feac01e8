"""What goes wrong, as an answer: `application/problem+json` by RFC 9457, a code for programs and a remedy for people.

The code is the error's kind. `field` names the value that cannot be used; `outcome` says of a call that failed whether
it may have changed something, and `written` which jobs of an enqueue are written all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from penstock.errors import (
    InvalidInput,
    LeaseLost,
    NotFound,
    PartitionUnavailable,
    PenstockError,
    QueueFull,
    RequestTimeout,
    SchemaMismatch,
    WorkerGone,
)

__all__ = ["CODES", "MEDIA_TYPE", "Problem", "ProblemError", "problem_of", "respond_with"]

MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a call was refused or failed. `detail` says what to do."""

    status: int
    title: str
    detail: str
    code: str
    type: str = "about:blank"
    field: str | None = None
    outcome: Literal["unknown", "not written"] | None = None
    written: list[str | None] | None = None


# By code: the status and the title.
CODES: Mapping[str, tuple[int, str]] = {
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The token may not do this"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "This path has no such method"),
    "refused": (409, "It cannot be done as things stand"),
    "lease-lost": (409, "The leases are not held any more"),
    "worker-gone": (410, "The worker was declared dead"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body has a form that is not taken"),
    "invalid-input": (422, "A value cannot be used"),
    "queue-full": (429, "The queue is full"),
    "too-many-requests": (429, "There are too many requests"),
    "internal": (500, "Something is broken in the server"),
    "partition-unavailable": (503, "A database does not answer"),
    "schema-mismatch": (503, "The database has another version"),
    "busy": (503, "The server is busy"),
    "stopping": (503, "The server is stopping"),
    "request-timeout": (504, "The time of the call is over"),
}
_CODE_OF: tuple[tuple[type[PenstockError], str], ...] = (
    (InvalidInput, "invalid-input"),
    (NotFound, "not-found"),
    (QueueFull, "queue-full"),
    (PartitionUnavailable, "partition-unavailable"),
    (RequestTimeout, "request-timeout"),
    (LeaseLost, "lease-lost"),
    (WorkerGone, "worker-gone"),
    (SchemaMismatch, "schema-mismatch"),
)
# Who is told so comes again after as many seconds.
_RETRY_AFTER = {"queue-full": 1, "too-many-requests": 1, "busy": 1, "stopping": 1, "partition-unavailable": 1}


class ProblemError(PenstockError):
    """A refusal that only this layer knows."""

    # Whether the connection ends with it: what is left of the request would have to be read before the next.
    ends_connection = False

    def __init__(self, code: str, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.field = field


def problem_of(error: PenstockError) -> Problem:
    """The same error, as it is told over HTTP."""
    if isinstance(error, ProblemError):
        return _problem(error.code, str(error), field=error.field)
    code = next((code for kind, code in _CODE_OF if isinstance(error, kind)), "refused")
    written = None
    if error.written:
        written = [None if id_ is None else str(id_) for id_ in error.written]
    return _problem(
        code,
        error.problem if isinstance(error, InvalidInput) else str(error),
        field=error.field if isinstance(error, InvalidInput) else None,
        outcome=error.outcome if isinstance(error, (PartitionUnavailable, RequestTimeout)) else None,
        written=written,
    )


def respond_with(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The answer."""
    extra = dict(headers or {})
    if problem.code in _RETRY_AFTER:
        extra["Retry-After"] = str(_RETRY_AFTER[problem.code])
    return Response(msgspec.json.encode(problem), problem.status, extra, MEDIA_TYPE)


def _problem(
    code: str,
    detail: str,
    *,
    field: str | None = None,
    outcome: Literal["unknown", "not written"] | None = None,
    written: list[str | None] | None = None,
) -> Problem:
    status, title = CODES[code]
    return Problem(status=status, title=title, detail=detail, code=code, field=field, outcome=outcome, written=written)

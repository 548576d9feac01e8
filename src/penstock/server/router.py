"""Which operation a request is for. Names in a path may hold anything, a slash too: each part is decoded by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.errors import InvalidInput
from penstock.server.operation import Operation

__all__ = ["Found", "Router", "path_parts"]


class Found(NamedTuple):
    """The operation, and the parameters that stand in the path; without one, the methods that the path has."""

    operation: Operation | None
    named: Mapping[str, str]
    methods: tuple[str, ...]


class Router:
    """All operations, by the parts of their paths."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._by_path: dict[tuple[str, ...], dict[str, Operation]] = {}
        for operation in operations:
            self._by_path.setdefault(operation.segments, {})[operation.method] = operation
        # One with a word where another has a parameter goes first: jobs/cancel is no job.
        self._paths = sorted(self._by_path, key=lambda path: [part.startswith("{") for part in path])

    def find(self, method: str, parts: tuple[bytes, ...]) -> Found:
        """The operation of that method and path."""
        # A path may be both jobs/cancel, which has POST, and jobs/{id}, which has GET.
        methods: list[str] = []
        for path in self._paths:
            if len(path) != len(parts) or not all(map(_fits, path, parts)):
                continue
            by_method = self._by_path[path]
            if method in by_method:
                named = {
                    part[1:-1]: _text(part[1:-1], raw) for part, raw in zip(path, parts, strict=True) if part[0] == "{"
                }
                return Found(by_method[method], named, ())
            methods += by_method
        return Found(None, {}, tuple(sorted(set(methods))))


def path_parts(scope: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The parts of the path below where the application is mounted, as they were sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    parts = raw.split(b"?")[0].strip(b"/").split(b"/")
    root = [part for part in scope.get("root_path", "").split("/") if part]
    return tuple(parts[len(root) :])


def _fits(part: str, raw: bytes) -> bool:
    return part[0] == "{" or part.encode() == raw


def _text(name: str, raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidInput(name, "it is no UTF-8 text in the path; percent-encode it") from None

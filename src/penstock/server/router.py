"""What a request is for, by its path. Names there may hold anything, a slash too: each part is decoded by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from penstock.errors import InvalidInput

__all__ = ["Found", "Router", "path_parts"]


class Routed(Protocol):
    """What has a method and a path: an operation of the API, or a page."""

    @property
    def method(self) -> str: ...

    @property
    def segments(self) -> tuple[str, ...]: ...


R = TypeVar("R", bound=Routed)


@dataclass(frozen=True, slots=True)
class Found(Generic[R]):
    """What the path means, and the parameters that stand in it; without that, the methods that the path has."""

    entry: R | None
    named: Mapping[str, str]
    methods: tuple[str, ...]


class Router(Generic[R]):
    """All of a kind, by the parts of their paths."""

    def __init__(self, entries: Iterable[R]) -> None:
        self._by_path: dict[tuple[str, ...], dict[str, R]] = {}
        for entry in entries:
            self._by_path.setdefault(entry.segments, {})[entry.method] = entry
        # One with a word where another has a parameter goes first: jobs/cancel is no job.
        self._paths = sorted(self._by_path, key=lambda path: [part.startswith("{") for part in path])

    def find(self, method: str, parts: tuple[bytes, ...]) -> Found[R]:
        """What that method and path mean."""
        # A path may be both jobs/cancel, which has POST, and jobs/{id}, which has GET.
        methods: list[str] = []
        for path in self._paths:
            if len(path) != len(parts) or not all(map(_fits, path, parts)):
                continue
            by_method = self._by_path[path]
            if method in by_method:
                named = {
                    part[1:-1]: _text(part[1:-1], raw)
                    for part, raw in zip(path, parts, strict=True)
                    if part.startswith("{")
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
    return part.startswith("{") or part.encode() == raw


def _text(name: str, raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidInput(name, "it is no UTF-8 text in the path; percent-encode it") from None

"""The style sheet and the scripts: read once, found under a name that changes with what they say, so that browsers may
keep them for ever.

`idiomorph.min.js` (idiomorph 0.8.0) is somebody else's: it puts a new form of a page into the old one and leaves alone
what is the same. It lies here as it was published, with its licence, and a test holds its checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.responses import Response

from penstock import drawing

__all__ = ["find_static", "static_name"]

_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
# The look is the report's; what only the dashboard has comes after it.
_FILES = {"dashboard.css": None, "live.js": "live.js", "idiomorph.js": "idiomorph.min.js", "icon.svg": "icon.svg"}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    name: str


@cache
def _all() -> dict[str, _File]:
    ours = files(__package__).joinpath("static")
    found: dict[str, _File] = {}
    for name, file in _FILES.items():
        if file is None:
            content = files(drawing).joinpath("style.css").read_bytes() + ours.joinpath(name).read_bytes()
        else:
            content = ours.joinpath(file).read_bytes()
        stem, _, ending = name.partition(".")
        found[name] = _File(content, _TYPES[ending], f"{stem}-{sha256(content).hexdigest()[:12]}.{ending}")
    return found


def static_name(name: str) -> str:
    """Under which name a file is found."""
    return _all()[name].name


def find_static(name: str) -> Response | None:
    """The file of that name."""
    file = next((each for each in _all().values() if each.name == name), None)
    return None if file is None else Response(file.content, headers=_FOREVER, media_type=file.media_type)

"""What browsers load from this package: our own, and one library as it was published."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

from penstock.server import dashboard

FOLDER = files(dashboard).joinpath("static")
# https://registry.npmjs.org/idiomorph/-/idiomorph-0.8.0.tgz, package/dist/idiomorph.min.js and package/LICENSE.
VERSION = "0.8.0"
PUBLISHED = {
    "idiomorph.min.js": "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96",
    "idiomorph.LICENSE": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
}
OURS = {"dashboard.css", "icon.svg", "live.js"}


def test_what_somebody_else_wrote_lies_here_as_it_was_published_with_its_licence() -> None:
    found = {name: sha256(FOLDER.joinpath(name).read_bytes()).hexdigest() for name in PUBLISHED}
    assert found == PUBLISHED


def test_its_version_is_named_where_it_is_used() -> None:
    from penstock.server.dashboard import static_files

    assert f"idiomorph.min.js` (idiomorph {VERSION})" in " ".join((static_files.__doc__ or "").split())


def test_nothing_else_is_there() -> None:
    assert {file.name for file in FOLDER.iterdir()} == OURS | set(PUBLISHED)

"""The page that Spark made of the history (`penstock report`), as a file that this server was told of.

The server shows what lies there and never makes it: that takes Spark, a lake and minutes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import InvalidInput, NotFound

__all__ = ["ReportFile"]

# A report has a few hundred KiB, however long the history is.
MOST_BYTES = 32 * 1024 * 1024


class ReportFile:
    """One file. It need not be there yet, and may be made anew at any time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        if self.path.is_dir():
            raise InvalidInput("report", f"{self.path} is a folder; give the file that penstock report --out writes")
        if not self.path.parent.is_dir():
            raise InvalidInput("report", f"there is no folder {self.path.parent}; make it, or give another file")

    @property
    def made_at(self) -> datetime | None:
        """When it was made; None: it was not made yet."""
        try:
            return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)
        except OSError:
            return None

    def read(self) -> str:
        """What stands in it."""
        try:
            with self.path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise NotFound(f"the report cannot be read: {error.strerror}; make it with penstock report") from None
        if len(content) > MOST_BYTES:
            raise NotFound(
                f"the file has more than {MOST_BYTES:,} bytes, so it is no report; make one with penstock report"
            )
        return content.decode(errors="replace")

r"""The shape of an error, counted by Spark: what is the same of it from job to job.

The database makes the same of the errors of dead letters (`schema/functions/11_causes.sql`, where it is told what each
step leaves out): who comes from a cause there to the report finds it under the same text. The patterns stand in both
places, because neither can ask the other: what a lake holds is not in the database any more. A test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["NAMES", "PATTERNS", "QUOTED", "cause_of"]

_TRACEBACK = "Traceback (most recent call last)"
NAMES = "^(Attribute|Import|Key|ModuleNotFound|Name|Type|UnboundLocal)Error:"
QUOTED = r"""(?<![0-9A-Za-z_])('[^']*'|"[^"]*"|`[^`]*`)(?![0-9A-Za-z_])"""
PATTERNS = (
    "[0-9A-Za-z_.+-]+@[0-9A-Za-z.-]+",
    "[?][^ ]*=[^ ]*",
    "(?<![0-9A-Za-z_])(0x)?(?=[A-Fa-f-]*[0-9])[0-9A-Fa-f-]{8,}(?![0-9A-Za-z_])",
    "[A-Za-z_]*[0-9]+[A-Za-z_]+[0-9][0-9A-Za-z_]*",
    "[0-9]+([.,:][0-9]+)*",
    "…([-+.,:/ ]*…)+",
)


def cause_of(error: Column) -> Column:
    """The line of an error that says what it is, with … for what differs from job to job; null where there is none."""
    end = f.element_at(f.split(f.regexp_replace(error, r"[ \r\n]+\z", ""), "\n"), -1)
    line = f.when(error.startswith(_TRACEBACK), end).otherwise(f.substring_index(error, "\n", 1))
    line = f.left(f.regexp_replace(line, r"[ \r]+\z", ""), f.lit(300))
    shape = f.when(line.rlike(NAMES), line).otherwise(f.regexp_replace(line, QUOTED, "…"))
    for pattern in PATTERNS:
        shape = f.regexp_replace(shape, pattern, "…")
    return f.left(shape, f.lit(200))

"""The help of a command: a flag has no value, that of an option is named after it as in the reference, and no word of
Python's, such as `<bool>` or `<list[str]>`, is in it.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Group"]


class _NamedValues:
    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if each.param_type_name != "option":
                each.display_type_rich = lambda ctx: None
            elif each.metavar is None:
                each.metavar = "" if each.is_flag else each.opts[0].strip("-").upper().replace("-", "_")
        return found


class Command(_NamedValues, TyperCommand):
    """A command with such a help."""


class Group(_NamedValues, TyperGroup):
    """A command that has others, with such a help."""

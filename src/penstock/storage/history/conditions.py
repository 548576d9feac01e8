"""What is asked of single columns when history, jobs and failures are read in bulk.

Which columns and how many is for Spark's filters to say, so this is the one text of SQL that is composed in Python: of
three forms, with every name and value quoted. The values are written into it, for it is read by COPY, which takes no
parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from psycopg import sql

__all__ = ["Condition", "compose_conditions"]

Operator = Literal["=", "<", "<=", ">", ">=", "in"]


class Condition(NamedTuple):
    """One condition on a column. What is not bytes, text, a whole number or a time is not asked of the database."""

    column: str
    operator: Operator
    value: Any


def compose_conditions(conditions: Sequence[Condition]) -> sql.Composable:
    """All of them together; `true` where there are none."""
    return sql.SQL(" and ").join(map(_compose, conditions)) if conditions else sql.SQL("true")


def _compose(condition: Condition) -> sql.Composable:
    column, operator, value = condition
    if operator == "in":
        if not value:
            return sql.SQL("false")
        return sql.SQL("{} in ({})").format(sql.Identifier(column), sql.SQL(", ").join(map(_literal, value)))
    return sql.SQL(f"{{}} {operator} {{}}").format(sql.Identifier(column), _literal(value))


def _literal(value: bytes | str | int | datetime) -> sql.Composable:
    if isinstance(value, bytes):
        return sql.SQL("decode({}, 'hex')").format(value.hex())
    return sql.Literal(value)

"""A made-up next version of the schema, and the one after it: what a release may do, done.

    ours       what programs of today bring
    next_one   tables grow; a function and a view change, one is new, one is retired
    last_one   what was retired is gone: programs of today are too old for it

Of the files of functions in `successor/`, those of a name that we have take its place. Its table files have numbers
from 9000, which no release will reach: files are applied in the order of their numbers, and numbers may be left out.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from penstock import App
from penstock.storage.schema import OURS, Schema, check_schema, describe, migrate, refuse, refuse_newer

__all__ = ["LAST_ONE", "NEXT_ONE"]

_RETIRED = re.compile(
    r"-- The name of the load that a job came with\.\ncreate or replace function @schema@\.load_of.*?\nend;\n", re.S
)


def _next_one() -> Schema:
    folder = Schema.read(Path(__file__).parent / "successor", OURS.version + 1, OURS.oldest_program)
    kept, count = _RETIRED.subn("", OURS.functions["05_whereabouts.sql"])
    assert count == 1
    return replace(
        folder,
        tables=(*OURS.tables, *folder.tables),
        functions={**OURS.functions, "05_whereabouts.sql": kept, **folder.functions},
    )


NEXT_ONE = _next_one()
LAST_ONE = replace(
    NEXT_ONE,
    functions={name: text for name, text in NEXT_ONE.functions.items() if name != "99_retired.sql"},
    version=NEXT_ONE.version + 1,
    oldest_program=NEXT_ONE.version,
)


def main(url: str) -> None:
    """A program that brings the next version: it migrates, enqueues, works, and calls what is new."""
    for act in (check_schema, describe, migrate, refuse, refuse_newer):
        act.__defaults__ = (NEXT_ONE,)
    with App(url) as app:
        app.migrate()
        ran: list[int] = []

        @app.queue("newer").task
        def work(n: int) -> None:
            ran.append(n)

        ids = work.enqueue_many([{"n": n} for n in range(50)])
        app.work(until_idle=True)
        assert sorted(ran) == list(range(50))
        assert {app.job(each).state for each in ids} == {"succeeded"}
        with app.databases.of(1).connection() as connection:
            assert connection.execute("select penstock.load_or(%s, 'none')", [ids[0]]).fetchone() == ("none",)


if __name__ == "__main__":
    main(sys.argv[1])

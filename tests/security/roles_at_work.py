"""What the tests of roles have in common: an app to work with, and what the server refuses."""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg.errors import InsufficientPrivilege
from tests.security.conftest import Realm

from penstock import App, Task


class Works(NamedTuple):
    """An app of two queues and their tasks."""

    app: App
    double: Task[..., Any]
    follow: Task[..., Any]


def works(url: str) -> Works:
    app = App(url, lease=60.0)

    @app.queue("q", partitions=2).task(max_attempts=1)
    def double(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return 2 * n

    @app.queue("ordered", order="key").task(key="n")
    def follow(n: int) -> int:
        return n

    return Works(app, double, follow)


def done_after_all(realm: Realm, role: str, *statements: str) -> list[str]:
    """Those of these that the server did not refuse to the role for want of a right."""
    done = []
    for statement in statements:
        with realm.connect(role) as connection:
            try:
                connection.execute(statement.encode())
            except InsufficientPrivilege:
                continue
            done.append(statement)
    return done


def acts_on_tables(realm: Realm) -> list[str]:
    """A look into every table and view, and a change of every table."""
    with realm.connect("owner") as connection:
        rows = connection.execute(
            "select oid::regclass::text, relkind = 'v' from pg_class"
            " where relkind in ('r', 'p', 'v') and relnamespace = 'penstock'::regnamespace"
        ).fetchall()
    looks = [f"select from {name}" for name, _ in rows]
    return looks + [f"delete from {name}" for name, is_view in rows if not is_view]


def calls(realm: Realm) -> list[str]:
    """A call of every function but enqueue, with nulls; of those that are not computed for them, none."""
    with realm.connect("owner") as connection:
        rows = connection.execute(
            "select oid::regproc || '(' || array_to_string(array_fill('null'::text, array[pronargs]), ', ') || ')'"
            " from pg_proc where prorettype <> 'trigger'::regtype and proname <> 'enqueue' and not proisstrict"
            " and pronamespace = 'penstock'::regnamespace"
        )
        return [row[0] for row in rows]

"""`enqueue` in SQL sends a job where the router does: both are held to the same published examples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from itertools import groupby
from typing import Any

import psycopg
import pytest

ROUTES: list[dict[str, Any]] = json.loads(
    files("penstock.routing").joinpath("routes.json").read_text(encoding="utf-8")
)["routes"]


def _map(route: dict[str, Any]) -> tuple[list[int], list[int], bool]:
    return route["shards"], route["homes"], route["is_owned"]


MAPS = [(key_map, list(routes)) for key_map, routes in groupby(ROUTES, key=_map)]


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url) as connection:
        yield connection


def set_map(connection: psycopg.Connection[Any], shards: list[int], homes: list[int], *, is_owned: bool) -> list[int]:
    """A queue `q` with this map; the ids of its partitions, by number."""
    connection.execute(
        "insert into penstock.queue (id, name, partitions, homes, rules) values (1, 'q', %s, %s, %s)",
        [len(shards), homes, json.dumps({"per_key": 1} if is_owned else {})],
    )
    ids = []
    for number, shard in enumerate(shards):
        row = connection.execute(
            "insert into penstock.partition (queue_id, number, name, shard) values (1, %s, %s, %s) returning id",
            [number, f"q:{number}", shard],
        ).fetchone()
        assert row is not None
        ids.append(row[0])
    connection.execute(
        "insert into penstock.queue_map (queue_id, epoch, partition_ids, homes, state) values (1, 1, %s, %s, 'open')",
        [ids, homes],
    )
    connection.execute("update penstock.partition set state = 'current'")
    return ids


def place(connection: psycopg.Connection[Any], here: int, route: dict[str, Any]) -> int | str:
    """The partition that SQL chooses on this shard, or what it says where the job lives elsewhere."""
    connection.execute("update penstock.catalogue set number = %s", [here])
    try:
        with connection.transaction():
            row = connection.execute(
                "select penstock.choose_partition(q, convert_to(%s, 'UTF8'), %s, true) from penstock.queue as q",
                [route["key"], route["idempotency_key"]],
            ).fetchone()
    except psycopg.errors.InvalidParameterValue as error:
        return str(error.diag.message_primary)
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("key_map", MAPS, ids=lambda each: f"{each[0][0]}-{'owned' if each[0][2] else 'plain'}")
def test_sql_sends_a_job_where_the_router_does(
    connection: psycopg.Connection[Any], key_map: tuple[tuple[list[int], list[int], bool], list[dict[str, Any]]]
) -> None:
    (shards, homes, is_owned), routes = key_map
    ids = set_map(connection, shards, homes, is_owned=is_owned)
    for route in routes:
        for here in sorted(set(shards)):
            chosen = place(connection, here, route)
            if route["shard"] not in (None, here):
                assert isinstance(chosen, str)
                assert f"shard {route['shard']} " in chosen
            elif route["partition"] is not None:
                assert chosen == ids[route["partition"]], route
            else:
                assert shards[ids.index(int(chosen))] == here, route


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("idempotency_key => 'k'", "idempotency_key"),
        ("\"unique\" => 'waiting'", "unique"),
        ("\"unique\" => 'waiting', unique_key => 'k'", "unique_key"),
    ],
)
def test_what_lives_on_another_shard_is_refused_by_the_name_that_the_caller_gave(
    connection: psycopg.Connection[Any], given: str, field: str
) -> None:
    set_map(connection, [1, 2], [1, 2], is_owned=False)
    refused = []
    for here in (1, 2):
        connection.execute("update penstock.catalogue set number = %s", [here])
        try:
            with connection.transaction():
                connection.execute(f"select penstock.enqueue('q', 't', {given})".encode())
        except psycopg.errors.InvalidParameterValue as error:
            refused.append(str(error.diag.message_primary))
    (said,) = refused
    assert said.startswith(f"InvalidInput: {field}: its home is shard ")

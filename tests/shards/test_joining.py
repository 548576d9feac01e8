"""Databases become the shards of a system once, and are known again."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import App
from penstock.admin.doctor import doctor
from penstock.errors import InvalidInput, PenstockError, SchemaMismatch
from penstock.shards import joining
from penstock.shards.membership import read_digest, read_membership, reserve_shard
from penstock.storage.connection.addresses import plain_address


def numbers(app: App) -> dict[str, int]:
    return {database.address: database.shard for database in app.databases}


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def opened(urls: Sequence[str]) -> dict[str, int]:
    with App(shards=list(urls)) as app:
        return numbers(app)


def test_databases_keep_their_numbers_whatever_the_order_of_their_urls(shard_urls: list[str]) -> None:
    first = opened(shard_urls)
    assert sorted(first.values()) == [1, 2]
    assert opened(shard_urls[::-1]) == first


def test_two_programs_may_set_up_a_system_at_the_same_moment(
    shard_urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_up = joining._try_taking_up
    by_the_other: list[dict[str, int]] = []

    def set_up_by_another_first(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(joining, "_try_taking_up", take_up)
        by_the_other.append(opened(shard_urls))
        take_up(*args, **named)

    monkeypatch.setattr(joining, "_try_taking_up", set_up_by_another_first)
    assert opened(shard_urls) == by_the_other[0]


def test_one_url_is_enough_to_find_the_others(shard_urls: list[str]) -> None:
    known = opened(shard_urls)
    for url in shard_urls:
        with App(url) as app:
            app.queue("q")
            assert numbers(app) == known


def test_the_catalogue_is_the_same_on_both(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app:
        app.queue("plain", partitions=4)
        app.queue("ordered", partitions=3, order="key")
        entry = app.databases.read(lambda c: c.execute("select shard from penstock.partition order by id").fetchall())
        assert [row[0] for row in entry] == [1, 2, 1, 2, 2, 1, 2]
        assert len(set(app.databases.each(read_digest))) == 1
        app.limit("plain", limit=7)
        assert len(set(app.databases.each(read_digest))) == 1
        limits = app.databases.each(lambda c: c.execute("select running_limit from penstock.queue").fetchall())
        assert set(limits.given[1]) == set(limits.given[2]) == {(7,), (None,)}


def test_a_system_is_opened_and_examined_while_its_catalogue_changes(shard_urls: list[str]) -> None:
    is_over = threading.Event()
    with App(shards=shard_urls) as app:
        app.queue("q", limit=1)

        def change() -> None:
            for n in itertools.count(1):
                if is_over.is_set():
                    return
                app.limit("q", limit=n)

        changing = threading.Thread(target=change)
        changing.start()
        try:
            for _ in range(15):
                opened(shard_urls)
                with App(shards=shard_urls) as other:
                    said = {check.name: check for check in doctor(list(other.databases))}
                # Shard 2 may just not have heard of the last change.
                assert "restore" not in said["catalogue"].advice
        finally:
            is_over.set()
            changing.join()


def test_ids_name_their_shard(shard_urls: list[str]) -> None:
    opened(shard_urls)
    for number, url in enumerate(shard_urls, 1):
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "select penstock.here(), penstock.shard_of(1024 * nextval('penstock.range_number'))"
            ).fetchone()
        assert row == (number, number)


def test_a_copy_of_a_shard_is_refused(shard_urls: list[str]) -> None:
    opened(shard_urls)
    execute(shard_urls[1], "update penstock.catalogue set number = 1")
    with pytest.raises(SchemaMismatch, match="both shard 1"):
        opened(shard_urls)


def test_a_database_that_is_not_the_one_the_catalogue_knows_is_refused(shard_urls: list[str]) -> None:
    opened(shard_urls)
    execute(shard_urls[1], "update penstock.catalogue set identity = gen_random_uuid()")
    with pytest.raises(SchemaMismatch, match="not the one that the catalogue knows as shard 2"):
        opened(shard_urls)


def test_a_database_of_another_system_is_refused(shard_urls: list[str], database_url: str) -> None:
    opened(shard_urls)
    opened([database_url])
    with pytest.raises(SchemaMismatch, match="different systems"):
        opened([*shard_urls, database_url])


def test_a_database_with_queues_of_its_own_is_no_new_shard(shard_urls: list[str], database_url: str) -> None:
    opened(shard_urls)
    execute(database_url, "insert into penstock.queue (name) values ('mine')")
    with pytest.raises(SchemaMismatch, match="has to be empty"), App(shards=shard_urls) as app:
        app.add_shard(database_url)


def test_a_database_that_is_alone_is_joined_by_another(shard_urls: list[str]) -> None:
    with App(shard_urls[0]) as app:
        app.queue("old", partitions=2)
        assert [database.shard for database in app.databases] == [1]
    with App(shards=shard_urls) as app:
        app.queue("new", partitions=2)
        assert [database.shard for database in app.databases] == [1, 2]
        placed = app.database.run(lambda c: c.execute("select name, shard from penstock.partition").fetchall())
        assert dict(placed) == {"old": 1, "old__p1": 1, "new": 2, "new__p1": 1}


def test_a_further_shard_is_added_and_found_by_those_that_run(shard_urls: list[str], empty_database_url: str) -> None:
    with App(shards=shard_urls) as app, App(shards=shard_urls) as other:
        app.queue("old", partitions=3)
        assert len(list(other.databases)) == 2
        assert app.add_shard(empty_database_url) == 3
        assert app.add_shard(empty_database_url) == 3
        app.queue("new", partitions=3)
        assert len(list(app.databases)) == 3
        assert other.stats("new").partitions
        assert [database.shard for database in other.databases] == [1, 2, 3]
        placed = app.database.run(lambda c: c.execute("select shard from penstock.partition order by id").fetchall())
        assert [row[0] for row in placed] == [1, 2, 1, 2, 3, 1]
    with App(shard_urls[1]) as app:
        app.queue("q")
        assert len(set(app.databases.each(read_digest))) == 1


def test_adding_goes_on_where_it_was_killed(shard_urls: list[str], database_url: str) -> None:
    with App(shards=shard_urls) as app:
        shards = app.databases
        address = plain_address(database_url)
        number, _ = shards.lead.run(lambda c: reserve_shard(c, str(uuid.uuid4()), address))
        assert number == 3
        app.queue("meanwhile", partitions=3)
        assert app.add_shard(database_url) == 3
        placed = app.database.run(lambda c: c.execute("select shard from penstock.partition order by id").fetchall())
        assert [row[0] for row in placed] == [1, 2, 1]


def test_a_database_in_the_list_that_is_no_shard_is_refused(shard_urls: list[str], database_url: str) -> None:
    opened(shard_urls)
    with pytest.raises(InvalidInput, match="penstock shards add URL"):
        opened([*shard_urls, database_url])


def test_a_catalogue_changed_behind_the_others_back_is_refused(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app:
        app.queue("q")
        assert list(app.databases)
    execute(shard_urls[1], "update penstock.queue set rules = '{\"max_length\": 5}'")
    with pytest.raises(SchemaMismatch, match="contradict each other"):
        opened(shard_urls)


def test_a_lead_that_lost_changes_is_refused(shard_urls: list[str]) -> None:
    opened(shard_urls)
    execute(shard_urls[1], "update penstock.catalogue set version = version + 5")
    with pytest.raises(SchemaMismatch, match="restored from an old backup"):
        opened(shard_urls)


def test_a_shard_that_missed_changes_is_caught_up(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app:
        app.queue("q", partitions=2)
        behind = app.databases.of(2)
        before = behind.run(read_membership).version
        app.databases.lead.run(
            lambda c: c.execute(
                "update penstock.queue set rules = '{\"max_length\": 9}', version = penstock.next_version()"
            )
        )
        assert behind.run(read_membership).version == before
        app.databases.level()
        assert behind.run(lambda c: c.execute("select max_length from penstock.queue").fetchone()) == (9,)


def test_a_drained_shard_is_not_added_again(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app:
        app.queue("q")
        while app.drain_shard(1).state != "drained":
            pass
        with pytest.raises(InvalidInput, match="was drained as shard 1; give an empty one"):
            app.add_shard(shard_urls[0])


def test_one_that_is_a_shard_already_is_told_so_whoever_asks(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app:
        assert app.add_shard(shard_urls[1]) == 2
        assert app.add_shard(shard_urls[0]) == 1
        assert {each.state for each in app.shards} == {"active"}


def test_a_further_embedded_server_joins_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with App(embedded_shards=2) as app:
        app.queue("q", partitions=2)
        app.migrate()
        assert [each.shard for each in app.stats("q").partitions] == ["1", "2"]
    with App(embedded_shards=3) as app:
        with pytest.raises(PenstockError, match=r"there is none in .*/shard-3; set PENSTOCK_URL"):
            _ = app.shards
        app.migrate()
        assert [(each.name, each.state) for each in app.shards] == [("1", "active"), ("2", "active"), ("3", "active")]
        app.resize("q", partitions=3)
        assert [each.shard for each in app.stats("q").partitions] == ["1", "2", "3"]
    with App() as app:
        assert len(app.shards) == 3

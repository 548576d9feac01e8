"""The rules of a queue go from shard to shard whole, whichever program takes them there."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.upgrade.next_rules import NextRules, newer_program

from penstock import App, SchemaMismatch
from penstock.shards.membership import read_digest
from penstock.storage.catalogue.queues import find_queue, set_limits


def stored(urls: list[str]) -> list[Any]:
    """The rules and weights of queue `q` on each shard."""
    found = []
    for url in urls:
        with psycopg.connect(url) as connection:
            found.append(connection.execute("select rules, weights from penstock.queue where name = 'q'").fetchone())
    return found


def test_an_option_this_program_does_not_know_reaches_every_shard_and_survives_its_changes(
    shard_urls: list[str],
) -> None:
    with App(shards=shard_urls) as app:
        app.queue("q", partitions=2, fair_by="tenant", weights={"a": 2})
        app.migrate()
        with newer_program():
            app.databases.lead.run(lambda c: c.execute(
                """update penstock.queue set rules = rules || '{"label": "x"}', version = penstock.next_version()"""
            ))  # fmt: skip
        app.databases.level()
        rules: dict[str, Any] = {"fair_by": "tenant", "label": "x", "must_know": ["fair_by"]}
        assert stored(shard_urls) == [(rules, {"a": 2.0})] * 2
        app.limit("q", limit=7, weights={"b": 3})
        rules = {**rules, "limit": 7, "must_know": ["fair_by", "limit"]}
        assert stored(shard_urls) == [(rules, {"b": 3.0})] * 2
        assert len(set(app.databases.each(read_digest))) == 1


def test_an_older_program_takes_rules_to_every_shard_though_it_refuses_their_queue(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app:
        queue = app.queue("q", partitions=2)
        queue.task(name="t")(print)
        app.migrate()
        with newer_program():
            app.databases.lead.run(lambda c: set_limits(c, "q", {"burst": 5}))
        app.databases.level()
        assert stored(shard_urls) == [({"burst": 5, "must_know": ["burst"]}, None)] * 2
        for shard in app.databases:
            with pytest.raises(SchemaMismatch, match="burst"):
                shard.run(lambda c: find_queue(c, "q"))
            with newer_program():
                assert shard.run(lambda c: find_queue(c, "q")).rules == NextRules(burst=5)
        assert len(set(app.databases.each(read_digest))) == 1

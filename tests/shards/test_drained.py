"""A drained shard: its end, who still believes in it, and what the command tells of the way there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fault.proxy import Proxy
from tests.shards.drained_world import World, shard_of
from tests.system.cli_runs import CommandLine

from penstock import App
from penstock.errors import NotFound, PartitionUnavailable
from penstock.shards.databases import Databases
from penstock.shards.membership import read_digest
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.breaker import Breaker

LATER = datetime.now(UTC) + timedelta(days=1)


# The end


def test_a_drained_lead_hands_over_and_its_url_is_not_needed_any_more(world: World) -> None:
    key = world.key(1)
    later = world.handle.options(run_at=LATER).enqueue(key=key, n=0)
    ended = world.handle.enqueue(key=key, n=1)
    world.work()
    world.drain(1)
    assert world.databases.lead.shard == 2
    assert world.app.job(ended).state == "succeeded", "history stays readable"
    world.app.pause("p")
    world.app.resume("p")
    with App(shards=world.urls[1:]) as alone:
        assert alone.job(later).state == "scheduled"
        alone.pause("p")
        alone.retry(later)
        with pytest.raises(NotFound):
            alone.job(ended)
    with App(shards=world.urls[:1]) as other:
        assert other.databases.lead.shard == 2, "found by its address"
    world.work()
    assert world.ran[key] == [1, 0]


def test_an_app_that_believes_in_the_drained_lead_learns_better(world: World) -> None:
    with App(shards=world.urls) as late:
        assert late.databases.lead.shard == 1
        world.drain(1)
        late.databases.note_drained([])
        late.pause("p")
        assert late.databases.lead.shard == 2
        assert world.databases.read(lambda c: find_queue(c, "p")).rules.paused
    assert len(set(world.databases.each(read_digest))) == 1


def test_a_lead_that_was_killed_while_it_handed_over_is_followed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(_: Databases) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Databases, "find_lead", die)
        with pytest.raises(Killed):
            world.drain(1)
    with App(shards=world.urls) as app:
        assert app.databases.lead.shard == 2
        app.pause("p")
        assert len(set(app.databases.each(read_digest))) == 1


def test_nobody_writes_to_a_drained_shard_whatever_it_believes(world: World) -> None:
    entry = world.databases.read(lambda c: find_queue(c, "p"))
    world.drain(2)
    producer = world.app.sender.producer
    assert producer is not None or world.run.enqueue(n=1)
    # As it was planned before.
    world.app._declarations._entries["p"] = (entry, 1e12)
    ids = [world.run.enqueue(n=n) for n in range(6)]
    assert {shard_of(id_) for id_ in ids} == {1}
    assert world.is_empty(2)


def test_nothing_is_drained_while_a_producer_has_a_transaction_open(world: World) -> None:
    with world.databases.of(2).connect() as connection, connection.transaction():
        connection.execute("select penstock.enqueue('p', 'run', '{\"n\": 1}')")
        for _ in range(3):
            assert world.app.drain_shard(2).state == "draining"
    world.work()
    world.drain(2)
    assert world.ran["plain"] == [1]


def test_progress_says_what_is_left_and_why(world: World) -> None:
    key = world.key(2)
    world.handle.enqueue(key=key, n=0)
    stuck = world.plain(2)
    with world.databases.of(2).connect() as connection, connection.transaction():
        connection.execute("select from penstock.ready where task = 'run' for update")
        rest = world.app.drain_shard(2).rest
    assert {(each.queue, each.kind, each.count) for each in rest} >= {("p", "ready", 1)}
    assert all(each.reason for each in rest)
    assert stuck


def test_a_cron_entry_fires_on_after_its_shard_is_drained(world: World) -> None:
    world.app.cron("tick", "* * * * *", world.run, args={"n": 7})
    ((shard,),) = {(n,) for n in (1, 2) if world.fetch(n, "select from penstock.cron")} or {(0,)}
    if not shard:
        world.app.crons()
        shard = next(n for n in (1, 2) if world.fetch(n, "select 1 from penstock.cron"))
    world.drain(shard)
    other = 3 - shard
    assert world.fetch(other, "select name from penstock.cron") == [("tick",)]
    world.fetch(other, "update penstock.cron set next_at = now() - interval '1 s' returning 1")
    world.work()
    assert world.ran["plain"] == [7]


@pytest.mark.parametrize("shard", [1, 2])
def test_idempotency_keys_hold_after_their_home_is_drained(world: World, shard: int) -> None:
    keys = [f"once-{n}" for n in range(40)]
    plain = {once: world.run.options(idempotency_key=once).enqueue(n=1) for once in keys}
    ordered = {once: world.handle.options(idempotency_key=once).enqueue(key=once, n=1) for once in keys}
    world.work()
    assert {shard_of(id_) for id_ in [*plain.values(), *ordered.values()]} == {1, 2}
    world.drain(shard)
    for once in keys:
        assert world.run.options(idempotency_key=once).enqueue(n=2) == plain[once]
        assert world.handle.options(idempotency_key=once).enqueue(key=once, n=2) == ordered[once]
    with App(shards=[url for n, url in enumerate(world.urls, 1) if n != shard]) as app:
        queue = app.queue("p", partitions=2)

        @queue.task
        def run(n: int, how: str = "") -> None: ...

        assert [run.options(idempotency_key=once).enqueue(n=3) for once in keys] == list(plain.values())
    world.work()
    assert world.ran["plain"] == [1] * 40


def test_a_drained_shard_that_is_gone_keeps_nobody_from_anything(
    shard_urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_for = []
    wait_until_up = Breaker.wait_until_up

    def note(breaker: Breaker, seconds: float) -> bool:
        waited_for.append(breaker)
        return wait_until_up(breaker, seconds)

    monkeypatch.setattr(Breaker, "wait_until_up", note)
    proxy = Proxy(shard_urls[1])
    world = World([shard_urls[0], proxy.url])
    try:
        key = world.key(2)
        later = world.handle.options(run_at=LATER).enqueue(key=key, n=0)
        world.drain(2)
        proxy.go_down()
        assert world.app.job(later).state == "scheduled"
        world.app.resize("o", partitions=3)
        world.app.pause("p")
        world.app.resume("p")
        world.app.retry(later)
        child = world.run.options(after=[later]).enqueue(n=5)
        assert world.databases.of(2).breaker not in waited_for
        world.work()
        assert world.ran[key] == [0]
        assert world.app.job(child).state == "succeeded"
    finally:
        world.app.close()
        proxy.close()


# The command


def test_the_command_tells_how_far_it_is(world: World, tmp_path: Path) -> None:
    penstock = CommandLine(tmp_path, " ".join(world.urls))
    stuck = world.plain(2)
    with world.databases.of(2).connect() as connection, connection.transaction():
        connection.execute("select from penstock.ready where task = 'run' for update")
        title, head, *rows = penstock.done("shards", "drain", "2").out.splitlines()
        assert title == "shard 2 is being drained"
        assert head.split() == ["queue", "left", "count", "why"]
        assert [row.split()[:3] for row in rows] == [["p", "ready", "1"]]
        record = penstock.done("shards", "drain", "2", "--json").json
        assert (record["shard"], record["state"]) == ("2", "draining")
        assert record["rest"][0]["kind"] == "ready"
    while penstock.done("shards", "drain", world.urls[1], "--json").json["state"] != "drained":
        continue
    assert penstock.done("shards", "drain", "2").out.startswith("shard 2 is drained")
    assert world.app.job(stuck).state == "ready"
    assert "the last one in use" in penstock.refused("shards", "drain", "1")
    assert "there is no shard" in penstock.refused("shards", "drain", "7")


def test_nothing_is_begun_while_another_shard_does_not_answer(shard_urls: list[str], empty_database_url: str) -> None:
    proxy = Proxy(shard_urls[1])
    try:
        with App(shards=[shard_urls[0], proxy.url], request_timeout=5.0) as app:
            app.queue("p", partitions=2)
            app.add_shard(empty_database_url)
            proxy.go_down()
            with pytest.raises(PartitionUnavailable, match=r"shard 2, .*does not answer") as refused:
                app.drain_shard(3)
            assert refused.value.outcome == "not written"
            with pytest.raises(PartitionUnavailable, match=r"shard 2, .*does not answer") as refused:
                app.resize("p", partitions=3)
            assert refused.value.outcome == "not written"
            assert [each.state for each in app.shards] == ["active"] * 3
    finally:
        proxy.close()

"""The stream of events: figures, dead letters, ends of jobs and a load, told by one reader to all who listen."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.server.asking import Client, Event
from tests.server.conftest import Shop
from tests.system.facts import eventually

from penstock import App, PartitionUnavailable
from penstock.server import feed


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOK_SECONDS", 0.05)


def counted(monkeypatch: pytest.MonkeyPatch, client: Client, name: str) -> list[Any]:
    """What the reader asks the app by that name."""
    asked: list[Any] = []
    ask = getattr(App, name)

    def count(app: App, *args: Any, **named: Any) -> Any:
        asked.append((args, named))
        return ask(app, *args, **named)

    monkeypatch.setattr(App, name, count)
    return asked


def has_streams(client: Client, count: int) -> Callable[[], bool]:
    return lambda: len(client.application.services.feed._streams) == count


def test_figures_of_queues_are_told_again_and_again(shop: Shop, client: Client) -> None:
    shop.app.queues()
    with client.events("queue=mail") as events:
        first = events.next("stats").data
        assert first == client.get("queues/mail/stats")
        shop.send.enqueue()
        assert next(event.data for event in events if event.data["queue_length"] == 1)["queue"] == "mail"
    assert client.refused("GET", "events?queue=mail&queue=nowhere")["code"] == "not-found"


def test_a_dead_letter_is_told_when_it_becomes_one_and_once(shop: Shop, client: Client) -> None:
    before = shop.send.enqueue(to="nobody")
    shop.app.work(until_idle=True)
    with client.events("dead_letters=true") as events, client.events("dead_letters=true&queue=orders") as orders:
        ids = [shop.send.enqueue(to="nobody"), shop.book.enqueue(customer="c"), shop.send.enqueue(to="nobody")]
        shop.app.work(until_idle=True)
        told = [events.next("dead_letter") for _ in ids]
        assert {int(event.data["job_id"]) for event in told} == set(ids)
        assert before not in {int(event.data["job_id"]) for event in told}
        letter = next(event for event in told if event.data["queue"] == "mail")
        assert letter.data["error"].startswith("ValueError: there is no nobody")
        assert letter.id is not None
        assert orders.next("dead_letter").data["job_id"] == str(ids[1])
        again = shop.send.enqueue(to="nobody")
        shop.app.work(until_idle=True)
        assert events.next("dead_letter").data["job_id"] == str(again)


def test_a_transaction_that_commits_late_has_its_dead_letters_told(
    shop: Shop, client: Client, database_url: str
) -> None:
    ids = shop.send.enqueue_many([{"to": "nobody"}] * 2)
    shop.app.work(until_idle=True)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table late as select * from penstock.dead where job_id = %s", [ids[0]])
        connection.execute("delete from penstock.dead where job_id = %s", [ids[0]])
        with client.events("dead_letters=true") as events:
            # It began before the stream, and what was told since is newer.
            other = shop.book.enqueue(customer="c")
            shop.app.work(until_idle=True)
            assert events.next("dead_letter").data["job_id"] == str(other)
            connection.execute("insert into penstock.dead select * from late")
            assert events.next("dead_letter").data["job_id"] == str(ids[0])


def test_who_comes_again_is_told_what_became_a_dead_letter_meanwhile(
    shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.admin.watching.MOST_DEAD", 2)
    with client.events("dead_letters=true") as events:
        first = shop.send.enqueue(to="nobody")
        shop.app.work(until_idle=True)
        last = events.next("dead_letter")
        assert last.data["job_id"] == str(first)
    missed = shop.send.enqueue_many([{"to": "nobody"}] * 5)
    shop.app.work(until_idle=True)
    assert last.id is not None
    with client.events("dead_letters=true", {"last-event-id": last.id}) as events:
        told: set[str] = set()
        while not {str(id_) for id_ in missed} <= told:
            told.add(events.next("dead_letter").data["job_id"])
    for wrong in ("yesterday", "2026-01-01T00:00:00"):
        problem = client.refused("GET", "events?dead_letters=true", headers={"last-event-id": wrong})
        assert problem["field"] == "Last-Event-ID"


def test_named_jobs_are_told_when_they_end(shop: Shop, client: Client) -> None:
    done = shop.send.enqueue(to="bob")
    shop.app.work(until_idle=True)
    ids = [shop.send.enqueue(to="ada"), shop.send.enqueue(to="nobody")]
    query = "&".join(f"job={id_}" for id_ in [done, *ids, ids[0]])
    with client.events(query) as events:
        assert (event := events.next("job")).data["id"] == str(done), event
        shop.app.work(until_idle=True)
        ends = {int(event.data["id"]): event.data["state"] for event in (events.next("job"), events.next("job"))}
        assert ends == {ids[0]: "succeeded", ids[1]: "failed"}
    assert client.refused("GET", "events?job=12345678")["code"] == "not-found"
    assert client.refused("GET", "events?job=x")["field"] == "job_id"


def test_a_load_is_told_until_it_is_done(shop: Shop, client: Client, database_url: str) -> None:
    (queue,) = (shop.app.database.run(lambda c: c.execute("select 1").fetchone()) for _ in range(1))
    assert queue == (1,)
    id_ = shop.send.enqueue()
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "with l as (insert into penstock.load (name, queue_id, is_stream)"
            " select 'l', id, false from penstock.queue where name = 'mail' returning id)"
            " insert into penstock.load_range (range, stage, load_id, size, partition_id, priority,"
            " has_idempotency_keys, task) select %(range)s, 's', l.id, 1, p.id, 5, false, 'send'"
            " from l, penstock.partition as p where p.name = 'mail'",
            {"range": id_ // 1024},
        )
    assert client.get("loads/l") == client.get("loads")["loads"][0]
    with client.events("load=l") as events:
        assert events.next("load").data["name"] == "l"
        shop.app.work(until_idle=True)
        assert next(event for event in events if event.data["waiting"] == 0)
    assert client.post("loads/l/pause")["name"] == "l"
    assert client.post("loads/l/resume")["name"] == "l"
    assert client.post("loads/l/cancel", {"reason": "x"}) == {"name": "l", "jobs": 0, "preview": False}
    assert client.refused("GET", "events?load=none")["code"] == "not-found"


def test_one_reader_asks_for_all_streams_and_only_what_they_want(
    shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.app.queues()
    queues, dead, loads = (counted(monkeypatch, client, name) for name in ("queues", "dead_letters", "loads"))
    with ExitStack() as stack:
        streams = [stack.enter_context(client.events("queue=mail")) for _ in range(20)]
        streams += [stack.enter_context(client.events("queue=orders&queue=mail")) for _ in range(5)]
        for stream in streams:
            stream.next("stats")
        eventually(lambda: queues and queues[-1][0][0] == {"mail", "orders"}, "all are asked for together")
        asked = len(queues)
        heard = 0
        while heard < 5:
            streams[0].next("stats")
            heard += 1
        # The others heard as much, and nobody asked for each of them.
        assert len(queues) - asked <= 7
        assert dead == loads == []
    eventually(has_streams(client, 0), "they are closed")
    eventually(lambda: client.application.services.feed._reading is None, "nobody reads")
    asked = len(queues)
    client.get("queues/mail/stats")
    assert len(queues) == asked


def test_a_comment_comes_where_nothing_else_does(shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.05)
    id_ = shop.send.enqueue()
    with client.events(f"job={id_}") as events:
        chunks = [events._chunks.get(timeout=60) for _ in range(3)]
    assert chunks == [b": open\n\n", b": still here\n\n", b": still here\n\n"]


def test_a_stream_ends_when_the_client_goes_and_when_the_server_stops(shop: Shop, client: Client) -> None:
    shop.app.queues()
    with client.events("queue=mail") as events:
        events.next("stats")
        events.close()
        assert list(events) is not None
    eventually(has_streams(client, 0), "it is forgotten")
    id_ = shop.send.enqueue()
    with client.events(f"queue=mail&job={id_}") as events:
        events.next("stats")
        client.call(client.application.begin_stop)
        assert all(isinstance(event, Event) for event in events)
    assert client.request("GET", "events?queue=mail").json()["code"] == "stopping"


def test_streams_are_bounded_and_one_who_does_not_read_is_cut_off(
    shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.app.queues()
    monkeypatch.setattr(feed, "MOST_STREAMS", 1)
    with client.events("queue=mail"):
        problem = client.refused("GET", "events?queue=mail")
        assert (problem["code"], "streams" in problem["detail"]) == ("too-many-requests", True)
    monkeypatch.setattr(feed, "MOST_WAITING_BYTES", 2_000)
    stream = feed.Stream(feed.Wanted())

    async def read() -> list[bytes]:
        for _ in range(50):
            stream.put(b"x" * 1_000)
        return [message async for message in stream.messages()]

    # What waited is told, and no more.
    assert client.run(read()) == [b"x" * 1_000] * 2


def test_a_database_that_does_not_answer_for_a_while_ends_no_stream(
    shop: Shop, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.app.queues()
    failed: list[int] = []
    ask = App.queues

    def fail(app: App, *args: Any) -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise PartitionUnavailable("away")
        return ask(app, *args)

    monkeypatch.setattr(App, "queues", fail)
    with client.events("queue=mail") as events:
        assert events.next("stats").data["queue"] == "mail"
    assert len(failed) == 3


def test_texts_of_jobs_break_no_event(shop: Shop, client: Client) -> None:
    text = "nobody\n\ndata: x\nevent: y\r\n\u2028"
    with client.events("dead_letters=1") as events:
        shop.send.enqueue(to=text)
        shop.app.work(until_idle=True)
        letter = events.next("dead_letter")
        assert text in letter.data["error"]
        assert json.dumps(letter.data)

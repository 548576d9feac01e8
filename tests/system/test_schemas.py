"""Two environments in one database, each in a schema of its own; the schema that everybody else uses is not there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.servers import created_database

from penstock import App, Context, InvalidInput
from penstock.admin.doctor import doctor
from penstock.cli.program import main
from penstock.routing import shard_of
from penstock.shards.publishing import publish
from penstock.storage.catalogue.queues import find_queue
from penstock.storage.connection.schema_name import split_schema
from penstock.storage.history.bulk import RangeInterval, read
from penstock.storage.loads.stage import Stage, StagedRange


@dataclass
class Environment:
    """One of the two: its app, and what ran in it."""

    app: App
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        def note(text: str) -> None:
            self.ran.append(text)

        def settle(context: Context, text: str) -> None:
            shard = self.app.databases.of(shard_of(context.job_id))
            with psycopg.connect(split_schema(shard.url).conninfo) as connection:
                context.settle(connection, {"said": text})

        self.plain = self.app.queue("q", partitions=2).task(name="note")(note)
        self.ordered = self.app.queue("o", partitions=2, order="key", limit=3).task(name="note", key="text")(note)
        self.settled = self.app.queue("s").task(name="settle")(settle)
        self.app.migrate()

    def work(self) -> None:
        self.app.work(until_idle=True)


@pytest.fixture(params=[1, 2], ids=["one database", "two shards"])
def urls(request: pytest.FixtureRequest, server_url: str) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(created_database(server_url, "template1")) for _ in range(request.param)]


@pytest.fixture
def environments(urls: list[str]) -> Iterator[list[Environment]]:
    with ExitStack() as stack:
        yield [
            Environment(stack.enter_context(App(shards=urls, schema=schema, lease=60.0)))
            for schema in ("staging", "production")
        ]
    for url in urls:
        with psycopg.connect(url) as connection:
            assert connection.execute("select to_regnamespace('penstock')").fetchone() == (None,)


def test_each_has_its_own_queues_jobs_and_figures(environments: list[Environment]) -> None:
    one, other = environments
    one.plain.enqueue(text="a")
    one.plain.enqueue_many([{"text": f"b{n}"} for n in range(200)])
    one.ordered.enqueue_many([{"text": f"c{n % 3}"} for n in range(30)])
    other.plain.enqueue(text="z")
    assert one.app.stats("q").queue_length == 201
    assert other.app.stats("q").queue_length == 1
    assert [stats.queue for stats in other.app.queues()] == ["o", "q", "s"]
    other.work()
    assert other.ran == ["z"]
    assert one.ran == []
    one.work()
    assert len(one.ran) == 231
    assert {job.state for job in one.app.jobs(queue="q", limit=500)} == {"succeeded"}


def test_a_worker_is_woken_by_its_own_environment(environments: list[Environment]) -> None:
    one, other = environments
    worker = threading.Thread(target=one.app.work)
    worker.start()
    try:
        job = one.plain.enqueue(text="a")
        other.plain.enqueue(text="z")
        one.app.result(job, timeout=60)
    finally:
        one.app.stop()
        worker.join()
    assert one.ran == ["a"]


def test_callers_transactions_mean_the_schema_of_their_app(environments: list[Environment], urls: list[str]) -> None:
    one, other = environments
    for count in (1, 150):
        with psycopg.connect(urls[0]) as connection:
            one.plain.options(connection=connection).enqueue_many([{"text": "a"}] * count)

    async def enqueue() -> None:
        async with await psycopg.AsyncConnection.connect(urls[0]) as connection:
            for count in (1, 150):
                await one.app.aenqueue_many([one.plain.job(text="a")] * count, connection=connection)

    asyncio.run(enqueue())
    assert (one.app.stats("q").queue_length, other.app.stats("q").queue_length) == (302, 0)


def test_a_handler_settles_in_its_own_transaction(environments: list[Environment]) -> None:
    one, _ = environments
    job = one.settled.enqueue(text="a")
    one.work()
    assert one.app.result(job) == {"said": "a"}


def test_it_is_paused_limited_resized_cancelled_and_purged_alone(environments: list[Environment]) -> None:
    one, other = environments
    for each in environments:
        each.plain.enqueue_many([{"text": "a"}] * 10)
        each.ordered.enqueue_many([{"text": "a"}] * 10)
    one.app.pause("q")
    one.app.limit("o", limit=1)
    one.app.resize("o", partitions=4)
    (first, *_) = other.app.jobs(queue="q")
    assert other.app.cancel(first.id) == "cancelled"
    assert "paused" in str(one.app.explain(one.app.jobs(queue="q")[0].id))
    other.work()
    one.work()
    assert (len(one.ran), len(other.ran)) == (10, 19)
    assert one.app.purge("q") == 10
    one.app.resume("q")
    one.work()
    assert [check.found for check in doctor(list(one.app.databases)) if check.name == "schema" and not check.ok] == []


def test_a_load_and_a_read_of_history_mean_the_schema_of_the_url(environments: list[Environment]) -> None:
    one, other = environments
    shards = one.app.databases
    entry = shards.read(lambda connection: find_queue(connection, "q"))
    shard = entry.partition_shards[0]
    jobs = pa.table(
        {
            "partition_id": pa.array([entry.partition_ids[0]] * 3, pa.int32()),
            "priority": pa.array([5] * 3, pa.int16()),
            "task": ["note"] * 3,
            "args": ['{"text":"loaded"}'] * 3,
        }
    )
    url = shards.of(shard).url
    Stage(url, "stage", "load", 2).write(jobs, [StagedRange(3, entry.partition_ids[0], 5, "note", None, False, None)])
    publish(shards, "load", "q", 0, {shard: [("stage", 1)]}, homes=entry.homes, is_stream=False)
    one.work()
    assert one.ran == ["loaded"] * 3
    statement = RangeInterval("finished", 0, 2**53 - 1).statement(["id"], [], "staging")
    assert sum(batch.num_rows for batch in read(url, statement)) == 3
    assert other.app.loads() == []


def test_every_word_of_sql_is_refused_as_a_name_before_anything_is_asked_of_a_server(server_url: str) -> None:
    with psycopg.connect(server_url) as connection:
        words = connection.execute("select word from pg_get_keywords() where word <> quote_ident(word)").fetchall()
    assert len(words) > 150
    for (word,) in words:
        with pytest.raises(InvalidInput, match=f"schema: '{word}' is a word of SQL"):
            App("postgresql://nowhere.invalid/d", schema=word)


def test_a_word_that_a_later_postgresql_keeps_is_refused_when_it_is_met(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.connection.schema_name._WORDS", "")
    with App(server_url, schema="user") as app, pytest.raises(InvalidInput, match="schema: 'user' is a word of SQL"):
        app.migrate()


def test_a_url_of_nothing_but_a_schema_means_the_embedded_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", "?schema=staging")
    with App() as app, App("?schema=staging") as same, App("?schema=production") as other:
        task = app.queue("q").task(name="t")(lambda: None)
        task.enqueue()
        assert same.stats("q").queue_length == 1
        assert other.queues() == []
        assert app.is_embedded
        assert app.url.endswith("schema=staging")
    with pytest.raises(InvalidInput, match="the URL names 'staging', and schema= 'production'"):
        App(schema="production")
    with pytest.raises(InvalidInput, match="url: it cannot be read"):
        App("?schema=staging&host=h")


def test_commands_take_the_schema_from_the_url(
    environments: list[Environment], urls: list[str], capsys: pytest.CaptureFixture[Any]
) -> None:
    one, _ = environments
    one.plain.enqueue_many([{"text": "a"}] * 7)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["penstock", "stats", "q", "--json", "--url", f"{urls[0]}?schema=staging"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    assert '"queue_length": 7' in capsys.readouterr().out

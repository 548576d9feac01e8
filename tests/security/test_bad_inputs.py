"""Every bad input, through the client, the SQL function and the command line: refused by name, or stored and given back
as it was; never another kind of error, and never a worker that does not go on."""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from tests.security.bad_inputs import (
    ARGUMENTS,
    AUDITS,
    BATCHES,
    BLOCKED_KEYS,
    DECLARATIONS,
    HOSTILE_TEXTS,
    IDS,
    ITEMS,
    OPTIONS,
    SQL_CALLS,
    TOKENS,
    Given,
)

from penstock import App, InvalidInput, NotFound, PenstockError, State, Task
from penstock.cli import main


def makes_app(url: str) -> tuple[App, Task[..., Any]]:
    app = App(url)
    queue = app.queue("q", partitions=2)

    @queue.task(max_attempts=1)
    def t(value: Any = None) -> Any:
        return value

    return app, t


@pytest.fixture
def app_and_task(database_url: str) -> Iterator[tuple[App, Task[..., Any]]]:
    app, task = makes_app(database_url)
    with app:
        yield app, task


def is_equal(one: object, other: object) -> bool:
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def assert_refused(error: PenstockError, given: Given) -> None:
    assert isinstance(error, InvalidInput), f"{given.name}: {error!r}"
    assert re.split(r"[.\[]", error.field)[0] == given.refused, f"{given.name}: {error}"
    assert str(error).encode().decode().isprintable(), given.name


def test_arguments_and_options_are_refused_by_name_or_come_back_equal_from_the_client(
    app_and_task: tuple[App, Task[..., Any]],
) -> None:
    app, task = app_and_task
    stored: dict[int, Given] = {}
    for given in [*ARGUMENTS, *OPTIONS]:
        try:
            job_id = task.options(**given.options).enqueue(value=given.value)
        except PenstockError as error:
            assert_refused(error, given)
            continue
        assert given.refused is None, f"{given.name} was stored"
        stored[job_id] = given
    refused = [given for given in ARGUMENTS if given.refused]
    for given in refused:
        with pytest.raises(InvalidInput) as caught:
            task.enqueue_many([{"value": 1}, {"value": given.value}])
        assert re.split(r"[.\[]", caught.value.field)[0] == given.refused
        assert "row 1" in str(caught.value)
        with pytest.raises(InvalidInput):
            app.enqueue_many([task.job(value=given.value)])
    in_bulk = task.enqueue_many([{"value": given.value} for given in stored.values()] * 4)
    stored |= dict(zip(in_bulk, list(stored.values()) * 4, strict=True))
    for job_id, given in stored.items():
        assert is_equal(app.job(job_id).args, {"value": given.value}), given.name
    app.work(until_idle=True, concurrency=4)
    for job_id, given in stored.items():
        job = app.job(job_id)
        assert job.state == State.SUCCEEDED, f"{given.name}: {job.error}"
        assert is_equal(job.result, given.value), given.name


def test_options_come_back_as_they_were_given(app_and_task: tuple[App, Task[..., Any]]) -> None:
    app, task = app_and_task
    for text in HOSTILE_TEXTS.values():
        options: dict[str, Any] = {"tenant": text, "created_by": text, "tags": [text, "x"], "key": text}
        for job_id in (
            task.options(**options, idempotency_key=text).enqueue(),
            task.options(**options).enqueue(),
            task.options(**options).enqueue_many([{"value": 1}] * 120)[-1],
        ):
            job = app.job(job_id)
            assert (job.tenant, job.created_by, job.tags, job.key) == (text, text, [text, "x"], text)
            assert job_id in [found.id for found in app.jobs(tag=text, limit=500)]
            assert job_id in [found.id for found in app.jobs(key=text, limit=500)]
        assert task.options(idempotency_key=text).enqueue() == task.options(idempotency_key=text).enqueue()


@pytest.mark.parametrize("given", DECLARATIONS, ids=lambda given: given.name)
def test_a_declaration_is_refused_by_name(given: Given) -> None:
    with pytest.raises(InvalidInput) as caught:
        App("postgresql://nowhere/x").queue(given.value, **given.options)
    assert_refused(caught.value, given)


@pytest.mark.parametrize("given", BATCHES, ids=lambda given: given.name)
def test_what_a_batch_is_declared_with_is_refused_by_name(given: Given) -> None:
    with pytest.raises(InvalidInput) as caught:
        App("postgresql://nowhere/x").queue("q").task(**given.options)(lambda items: None)
    assert_refused(caught.value, given)


def test_what_a_token_cannot_be_is_refused_by_name_and_hostile_names_work_like_any(database_url: str) -> None:
    with App(database_url) as app:
        for given in TOKENS:
            with pytest.raises(InvalidInput) as caught:
                app.create_token(given.value, **{"role": "read", **given.options})
            assert_refused(caught.value, given)
        assert app.tokens() == []
        for text in HOSTILE_TEXTS.values():
            app.create_token(text, role="produce", queues=[text], tenant=text)
            (token, *_) = app.tokens()
            assert (token.name, token.queues, token.tenant) == (text, (text,), text)
            app.revoke_token(text)
            assert [entry.act for entry in app.audit(target=text)] == ["revoke_token", "create_token"]
        with pytest.raises(InvalidInput):
            app.revoke_token("a\0b")


def test_what_the_audit_cannot_be_asked_for_is_refused_by_name(database_url: str) -> None:
    with App(database_url) as app:
        for given in AUDITS:
            with pytest.raises(InvalidInput) as caught:
                app.audit(**given.options)
            assert_refused(caught.value, given)
        for value in IDS.values():
            with pytest.raises(InvalidInput):
                app.audit(before=value)


def test_what_blocked_keys_cannot_be_asked_for_is_refused_by_name(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q")
        app.migrate()
        for given in BLOCKED_KEYS:
            with pytest.raises(InvalidInput) as caught:
                app.blocked_keys("q", **given.options)
            assert_refused(caught.value, given)


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS.keys())
def test_what_is_no_item_of_a_batch_is_refused_alone_and_among_others(item: object) -> None:
    @App("postgresql://nowhere/x").queue("q").task(batch=2)
    def book(items: list[dict[str, int]]) -> None: ...

    with pytest.raises(InvalidInput) as alone:
        book.job(item)
    with pytest.raises(InvalidInput, match="in row 1: ") as among:
        book.enqueue_many([{"n": 1}, item])
    for caught in (alone, among):
        assert str(caught.value).encode().decode().isprintable()


def test_hostile_names_of_queues_and_tasks_work_like_any(database_url: str) -> None:
    with App(database_url) as app:
        seen: list[str] = []
        for text in HOSTILE_TEXTS.values():
            queue = app.queue(text)
            queue.task(name=text)(partial(seen.append, text)).enqueue()
        app.work(until_idle=True)
        assert sorted(seen) == sorted(HOSTILE_TEXTS.values())
        for text in HOSTILE_TEXTS.values():
            assert app.stats(text).total_completed == 1
            (job,) = app.jobs(queue=text, task=text)
            assert (job.queue, job.task) == (text, text)
            app.pause(text)
            app.resume(text)
            assert app.purge(text) == 0
        assert {stats.queue for stats in app.queues()} == set(HOSTILE_TEXTS.values())
        for text in HOSTILE_TEXTS.values():
            app.delete_queue(text, force=True)
            app.queue(text)
        assert {stats.queue for stats in app.queues()} == set(HOSTILE_TEXTS.values())


def test_hostile_errors_are_kept_and_hinder_nobody(database_url: str) -> None:
    with App(database_url) as app:
        queue = app.queue("q")

        @queue.task(max_attempts=1)
        def fail(text: str) -> None:
            raise ValueError(text)

        @queue.task(max_attempts=1)
        def fail_oddly(kind: str) -> Any:
            class Odd(Exception):
                def __str__(self) -> str:
                    raise RuntimeError("no words")

            return {"odd": Odd(), "nan": math.nan, "half": "\ud800", "deep": None, "object": object()}[kind]

        jobs = {fail.enqueue(text=text): text for text in [*HOSTILE_TEXTS.values(), "x" * 100_000]}
        odd = [fail_oddly.enqueue(kind=kind) for kind in ("odd", "nan", "half", "object")]
        app.work(until_idle=True)
        for job_id, text in jobs.items():
            job = app.job(job_id)
            assert job.state == State.FAILED
            assert job.error is not None
            assert text[:100] in job.error
        assert [app.job(job_id).state for job_id in odd] == [State.FAILED] * 4


@pytest.mark.parametrize("name", IDS)
def test_an_id_that_is_none_is_refused_everywhere(name: str, app_and_task: tuple[App, Task[..., Any]]) -> None:
    app, _ = app_and_task
    for act in (app.job, app.explain, app.cancel, app.retry, app.result):
        with pytest.raises(InvalidInput):
            act(IDS[name])
    with pytest.raises(InvalidInput):
        app.reschedule(IDS[name], datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidInput):
        app.jobs(before=IDS[name])


def test_what_does_not_exist_is_not_found(app_and_task: tuple[App, Task[..., Any]]) -> None:
    app, _ = app_and_task
    for job_id in (1, 2**31, 2**53 + 1, 2**63 - 1, "7"):
        for act in (app.job, app.explain, app.cancel, app.retry, app.result):
            with pytest.raises(NotFound):
                act(job_id)
    for text in HOSTILE_TEXTS.values():
        for ask in (app.stats, app.pause, app.resume, app.purge, app.delete_queue):
            with pytest.raises(NotFound):
                ask(text)
        with pytest.raises(NotFound):
            app.jobs(queue=text)


def test_filters_that_make_no_sense_are_refused(app_and_task: tuple[App, Task[..., Any]]) -> None:
    app, _ = app_and_task
    for filters in (
        {"limit": 0}, {"limit": 10**9}, {"limit": "5"}, {"state": "sleeping"}, {"state": 5}, {"task": ""},
        {"tag": "\0"},
        {"key": 1.5}, {"load": "x" * 201}, {"queue": ""}, {"queue": 5},
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            app.jobs(**filters)
        assert caught.value.field in filters


@pytest.mark.parametrize(
    ("expression", "timezone"),
    [
        ("61 * * * *", "UTC"), ("* * *", "UTC"), ("", "UTC"), ("0 0 30 2 *", "UTC"), ("* * * * *", "Mars/Olympus"),
        ("* * * * *", "../../etc/passwd"), ("* * * * *", ""), ("* * * * *\0", "UTC"), ("@reboot'; --", "UTC"),
        ("*/0 * * * *", "UTC"), ("5-1 * * * *", "UTC"), ("9" * 10_000, "UTC"),
    ],
)  # fmt: skip
def test_an_impossible_cron_is_refused(
    expression: str, timezone: str, app_and_task: tuple[App, Task[..., Any]]
) -> None:
    app, task = app_and_task
    with pytest.raises(InvalidInput):
        app.cron("c", expression, task, timezone=timezone)
    assert app.crons() == []


def test_the_sql_function_refuses_by_name_or_stores_what_comes_back(
    database_url: str, app_and_task: tuple[App, Task[..., Any]]
) -> None:
    app, task = app_and_task
    task.enqueue()
    wrong: list[str] = []
    stored: dict[int, str] = {}
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name, call, refused in SQL_CALLS:
            try:
                row = connection.execute(f"select penstock.enqueue({call})".encode()).fetchone()
            except psycopg.Error as error:
                said = str(error.diag.message_primary)
                expected = "NotFound: " if refused == "NotFound" else f"InvalidInput: {refused}: "
                if refused is None or not said.startswith(expected):
                    wrong.append(f"{name}: {said}")
                continue
            assert row is not None
            stored[row[0]] = name
            if refused is not None:
                wrong.append(f"{name}: stored")
        for text in HOSTILE_TEXTS.values():
            row = connection.execute(
                "select penstock.enqueue('q', 't', jsonb_build_object('value', %(t)s::text), key => %(t)s,"
                " tenant => %(t)s, created_by => %(t)s, tags => array[%(t)s], idempotency_key => %(t)s)",
                {"t": text},
            ).fetchone()
            assert row is not None
            job = app.job(row[0])
            assert job.args == {"value": text}
            assert (job.key, job.tenant, job.created_by, job.tags, job.idempotency_key) == (
                text,
                text,
                text,
                [text],
                text,
            )
            stored[row[0]] = text
    assert wrong == []
    app.work(until_idle=True)
    assert len(app.jobs(limit=1000)) == len(stored) + 1
    states = {name: app.job(job_id).state for job_id, name in stored.items()}
    unfit = {"an argument nobody takes", "a context of one's own", "depth 2,000"}
    numbers = {name for name in states if name.startswith("a number")}
    assert {name for name, state in states.items() if state != State.SUCCEEDED} - unfit - numbers == set()
    assert all(state in (State.SUCCEEDED, State.FAILED, State.DISCARDED) for state in states.values()), states


MODULE = """
from typing import Any
from penstock import App

app = App({url!r})

@app.queue("q", partitions=2).task(max_attempts=1)
def t(value: Any = None) -> Any:
    return value
"""


@pytest.fixture
def command(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    name = f"bad_input_app_{threading.get_native_id()}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(url=database_url))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def run(*words: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["penstock", words[0], *([f"{name}:app"] if words[0] == "enqueue" else []), *words[1:]]
        )
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return caught.value.code, out, err

    yield run
    sys.modules.pop(name, None)


def as_word(given: Given) -> str | None:
    """The argument as a person would type it, or None where nobody can."""
    value = given.value
    if isinstance(value, str):
        return None if "\0" in value else value
    if given.name == "depth 10,000":
        return "[" * 10_000 + "]" * 10_000
    if isinstance(value, int) and value.bit_length() > 10_000:
        return "9" * 5_001
    if isinstance(value, float):
        return repr(value)
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return None


def test_the_command_line_refuses_in_one_line_or_stores_what_comes_back(command: Any, database_url: str) -> None:
    stored: dict[int, Any] = {}
    for given in ARGUMENTS:
        word = as_word(given)
        if word is None:
            continue
        code, out, err = command("enqueue", "t", f"value={word}")
        assert code in (0, 1, 2), f"{given.name}: {err}"
        assert "Traceback" not in err, given.name
        if code == 0:
            stored[int(out)] = given
        else:
            assert len(err.strip().splitlines()) == 1, f"{given.name}: {err}"
            assert given.refused is not None, f"{given.name}: {err}"
    flags = {"priority": "--priority", "delay": "--delay", "run_at": "--run-at", "key": "--key", "tenant": "--tenant",
             "created_by": "--created-by", "idempotency_key": "--idempotency-key"}  # fmt: skip
    for given in OPTIONS:
        ((name, value), *more) = given.options.items()
        if (
            more
            or name not in flags
            or isinstance(value, (bytes, datetime))
            or "\0" in str(type(value) is str and value)
        ):
            continue
        shown = "a" + "9" * 5000 if isinstance(value, int) and value.bit_length() > 5000 else str(value)
        code, out, err = command("enqueue", "t", f"{flags[name]}={shown}")
        assert code in (0, 1, 2), f"{given.name}: {err}"
        assert "Traceback" not in err, given.name
        if code:
            assert len(err.strip().splitlines()) == 1, f"{given.name}: {err}"
    for value in IDS.values():
        for verb in ("job", "explain", "cancel", "retry"):
            code, out, err = command(verb, "--url", database_url, "--", str(value)[:100])
            assert code in (0, 1, 2), err
            assert "Traceback" not in err
    app, _ = makes_app(database_url)
    with app:
        app.work(until_idle=True)
        for job_id, given in stored.items():
            job = app.job(job_id)
            assert job.state == State.SUCCEEDED, given.name
            if given.refused is None and not isinstance(given.value, float):
                assert is_equal(job.result, given.value), given.name

"""A deleted queue: its name is free at once, what it held ends with a reason, and nobody loses a job in silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.shards.scene import set_map_state
from tests.spark.staged import Loader
from tests.system.cli_runs import CommandLine
from tests.system.conftest import Execute, MakeApp, Working
from tests.system.facts import eventually

from penstock import App, Context, InvalidInput, NotFound, Task
from penstock.admin.doctor import doctor
from penstock.app import declarations
from penstock.shards.load_commit import MapChanged

LATER = datetime.now(UTC) + timedelta(days=1)
DELETED = "its queue was deleted"


def task_on(app: App, name: str = "old", **options: Any) -> Task[..., Any]:
    queue = app.queue(name, **options)

    @queue.task(name="t", max_attempts=1)
    def t(n: int = 0) -> int:
        return 1 // (n + 1)

    return t


def sweep(app: App) -> None:
    """Whatever any worker's upkeep does."""
    app.queue("elsewhere")
    app.work(["elsewhere"], until_idle=True)


def cancelled(app: App, *ids: int) -> bool:
    jobs = [app.job(id_) for id_ in ids]
    assert [(job.state, job.error) for job in jobs] == [("cancelled", DELETED)] * len(ids)
    return True


def test_a_queue_that_holds_anything_is_not_deleted_and_the_error_says_what_and_how(app: App) -> None:
    t = task_on(app)
    assert app.delete_queue(app.queue("empty")) == 0
    t.enqueue(n=-1)
    app.work(until_idle=True)
    ready, _ = t.enqueue(), t.options(run_at=LATER).enqueue()
    t.options(after=[ready]).enqueue()
    app.cron("nightly", "0 3 * * *", t)
    with pytest.raises(InvalidInput) as refused:
        app.delete_queue("old")
    said = str(refused.value)
    assert said.startswith(
        "queue: 'old' still has 4 jobs (1 ready, 1 scheduled, 1 blocked, 1 failed), cron 'nightly': let its jobs end"
    )
    assert "purge" in said
    assert "remove its crons" in said
    assert "force=True" in said
    assert app.delete_queue("old", force=True, preview=True) == 4
    assert app.stats("old").queue_length == 1, "a preview changes nothing"
    app.purge("old")
    app.purge("old", state="failed")
    with pytest.raises(InvalidInput, match="still has cron 'nightly':"):
        app.delete_queue("old", preview=True)
    app.remove_cron("nightly")
    assert app.delete_queue("old", preview=True) == 0
    assert app.delete_queue("old") == 0
    assert [each.queue for each in app.queues()] == []
    with pytest.raises(NotFound, match=r"queue 'old' was deleted at .*declare it with app.queue\('old'\)"):
        app.delete_queue("old")


def test_by_force_everything_ends_with_a_reason_and_what_ended_stays(app: App, execute: Execute) -> None:
    t, other = task_on(app, order="key"), task_on(app, "other")
    done = t.options(key=b"a").enqueue(n=1)
    dead = t.options(key=b"b").enqueue(n=-1)
    app.work(until_idle=True)
    waiting = [t.options(key=b"c").enqueue(), t.options(run_at=LATER, idempotency_key="once").enqueue()]
    waiting.append(t.options(after=[waiting[0]]).enqueue())
    child = other.options(after=[waiting[0]]).enqueue()
    runs = other.options(after=[waiting[1]], on_parent_failure="run").enqueue()
    app.cron("nightly", "0 3 * * *", t)
    assert app.delete_queue("old", force=True) == 4
    assert cancelled(app, *waiting)
    assert app.crons() == []
    sweep(app)
    assert app.job(child).state == "cancelled"
    assert app.job(runs).state in ("ready", "succeeded")
    assert app.job(dead).state == "failed"
    assert "ZeroDivisionError" in str(app.job(dead).error)
    name = app.job(done).queue
    with pytest.raises(NotFound) as told:
        app.jobs(queue="old")
    assert f"is found by app.jobs(queue={name!r}), or `penstock jobs --queue {name!r}`" in str(told.value)
    assert "those that do" not in str(told.value)
    assert name.startswith("old (deleted ")
    assert app.job(done).state == "succeeded"
    assert {job.id for job in app.jobs(queue=name)} == {done, dead, *waiting}
    assert execute("select queue from penstock.queue_stats where starts_with(queue, 'old')") == []
    for act in (app.stats, app.pause, app.resume, app.purge, app.delete_queue):
        with pytest.raises(NotFound):
            act(name)
    for taken in (name, f"{name}__p1"):
        with pytest.raises(InvalidInput, match="deleted queue is named"):
            app.queue(taken)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="deleted queue is named"):
            execute("select penstock.declare_queue(%s, 1, '{}', null)", taken)


def test_the_name_is_free_at_once_for_a_queue_of_any_kind(app: App, execute: Execute) -> None:
    t = task_on(app, order="key", limit=3, total_limit=5, total_rate="1000/s")
    first = t.options(idempotency_key="once", key=b"k").enqueue()
    app.delete_queue("old", force=True)
    limits = "running_limit, total_limit, total_rate"
    assert set(execute(f"select {limits} from penstock.queue where deleted_at is not null")) == {(None, None, None)}
    again = app.queue("old", rate="1000/s")
    second = t.options(idempotency_key="once").enqueue()
    assert second != first, "the keys of the old queue are not those of the new one"
    assert [job.id for job in app.jobs(queue="old")] == [second]
    assert app.stats(again).total_enqueued == 1
    app.work([again], until_idle=True)
    assert app.job(second).state == "succeeded"
    assert cancelled(app, first)


@pytest.mark.parametrize("in_a_transaction", [False, True])
def test_what_a_producer_that_has_not_heard_of_it_writes_is_cancelled_with_a_reason(
    make_app: MakeApp, urls: list[str], monkeypatch: pytest.MonkeyPatch, in_a_transaction: bool
) -> None:
    app, producer = make_app(), make_app()
    late = task_on(producer)
    late.enqueue()
    app.delete_queue("old", force=True)
    if in_a_transaction:
        with psycopg.connect(urls[0]) as connection:
            ids = [late.options(connection=connection).enqueue()]
    else:
        ids = [late.enqueue(), *late.enqueue_many([{"n": n} for n in range(300)])]
        ids.append(late.options(run_at=LATER).enqueue())
    waits = app.explain(ids[0])
    assert waits.reason == "its queue was deleted: the upkeep of any worker cancels it within seconds"
    assert [check.found for check in doctor(app.unchecked_databases) if check.name == "deleted queues" and not check.ok]
    sweep(app)
    assert cancelled(app, *ids)
    assert app.explain(ids[0]).reason == "finished: cancelled: its queue was deleted"
    assert all(check.ok for check in doctor(app.unchecked_databases) if check.name == "deleted queues")
    monkeypatch.setattr(declarations, "KEPT_SECONDS", 0.0)
    with pytest.raises(NotFound, match="was deleted at"):
        late.enqueue()


def test_where_producers_lock_the_key_map_the_next_call_is_refused_or_goes_to_the_new_queue(make_app: MakeApp) -> None:
    app, producer = make_app(), make_app()
    late = task_on(producer, order="key")
    late.options(key=b"k").enqueue()
    app.delete_queue("old", force=True)
    for call in (lambda: late.options(key=b"k").enqueue(), lambda: late.enqueue_many([{"n": 1}] * 200)):
        with pytest.raises(NotFound, match="was deleted at"):
            call()
    task_on(make_app(), order="key").options(key=b"k").enqueue()
    id_ = late.options(key=b"k").enqueue()
    assert app.job(id_).queue == "old"


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_only_true_forces(app: App, value: Any) -> None:
    task_on(app).enqueue()
    for name in ("force", "preview"):
        with pytest.raises(InvalidInput, match="must be True or False") as refused:
            app.delete_queue("old", **{name: value})
        assert refused.value.field == name
    assert app.stats("old").queue_length == 1


def test_from_sql_a_deleted_queue_is_not_found(app: App, execute: Execute) -> None:
    task_on(app).enqueue()
    app.delete_queue("old", force=True)
    with pytest.raises(psycopg.errors.UndefinedObject, match="queue 'old' does not exist"):
        execute("select penstock.enqueue('old', 't')")


def test_a_load_that_was_staged_before_is_not_published(app: App) -> None:
    task_on(app)
    app.stats("old")
    loader = Loader(app, "old")
    stages = loader.stage(1, 2), loader.stage(3)
    app.delete_queue("old")
    with pytest.raises(NotFound):
        loader.publish("late", *stages)
    task_on(app)
    with pytest.raises(MapChanged, match="its queue was deleted since its rows were staged; run it again"):
        loader.publish("late", *stages)
    assert app.jobs() == []
    assert loader.publish("late", loader.stage(4)).rows == 1


def test_running_jobs_are_asked_to_stop_and_the_worker_goes_on_with_its_other_queues(
    app: App, working: Working, caplog: pytest.LogCaptureFixture
) -> None:
    old, other = app.queue("old"), app.queue("other")
    started, stopped = threading.Event(), threading.Event()

    @old.task
    def hang(context: Context) -> None:
        started.set()
        while not context.is_cancelled:
            assert not stopped.wait(0.01)
        raise RuntimeError("told to stop")

    @other.task
    def go_on() -> None: ...

    id_ = hang.enqueue()
    with working(app):
        assert started.wait(60)
        assert app.delete_queue(old, force=True) == 1
        eventually(lambda: app.job(id_).state == "cancelled", "the handler was told")
        assert cancelled(app, id_)
        assert app.result(go_on.enqueue(), timeout=60) is None
        eventually(lambda: "restart this worker where the queue was made anew" in caplog.text, "it says so")


def test_two_programs_that_delete_it_at_once_do_so_once(make_app: MakeApp, execute: Execute) -> None:
    ids = [task_on(make_app()).enqueue() for _ in range(3)]
    apps, outcomes = [make_app() for _ in range(4)], []
    barrier = threading.Barrier(len(apps))

    def delete(app: App) -> None:
        app.queues()
        barrier.wait()
        try:
            outcomes.append(app.delete_queue("old", force=True))
        except NotFound:
            outcomes.append(0)

    threads = [threading.Thread(target=delete, args=(app,)) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == len(apps)
    assert sum(outcomes) == 3
    assert cancelled(apps[0], *ids)
    assert {name for (name,) in execute("select name from penstock.queue")} == {apps[0].job(ids[0]).queue}


KILLED = """
import os, signal, sys
from penstock import App
from penstock.admin import deleting

deleting.end_in_deleted = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
app = App(shards=sys.argv[1:])
app.delete_queue("old", force=True)
"""


def test_a_delete_that_is_killed_goes_on_by_itself(make_app: MakeApp, urls: list[str], tmp_path: Path) -> None:
    app = make_app()
    t = task_on(app)
    ids = [*t.enqueue_many([{"n": n} for n in range(2000)]), t.options(run_at=LATER).enqueue()]
    (tmp_path / "killed.py").write_text(KILLED)
    ended = subprocess.run([sys.executable, str(tmp_path / "killed.py"), *urls], check=False, env=os.environ)
    assert ended.returncode == -signal.SIGKILL
    with pytest.raises(NotFound):
        make_app().stats("old")
    sweep(make_app())
    assert cancelled(app, ids[0], ids[-2], ids[-1])
    assert not [job for job in make_app().jobs(limit=5_000) if job.state != "cancelled"]


def test_a_change_of_its_partitions_is_seen_through_first(app: App, execute: Execute) -> None:
    task_on(app, order="key")
    app.stats("old")
    execute(set_map_state("announced"))
    with pytest.raises(
        psycopg.errors.ObjectInUse, match="another change of the partitions of queue 'old' is under way"
    ):
        execute("select penstock.delete_queue(id) from penstock.queue")
    assert app.delete_queue("old") == 0


def test_from_the_command_line(app: App, urls: list[str], tmp_path: Path) -> None:
    penstock = CommandLine(tmp_path, " ".join(urls))
    t = task_on(app)
    id_ = t.enqueue()
    assert "'old' still has 1 job (1 ready)" in penstock.refused("delete-queue", "old")
    assert "add --yes" in penstock.wrong("delete-queue", "old", "--force")
    said = penstock.done("delete-queue", "old", "--force", "--preview").out
    assert said == "queue 'old' would be deleted: 1 job would be ended or asked to stop\n"
    assert penstock.on_terminal("delete-queue", "old", "--force", answer="n\n").code == 1
    record = penstock.done("delete-queue", "old", "--force", "--yes", "--json").json
    assert record == {"queue": "old", "jobs": 1, "preview": False}
    assert cancelled(app, id_)
    assert "was deleted at" in penstock.refused("delete-queue", "old")

"""What a person asks and does, by id and by filter; why a job waits; what is unwell."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.database.conftest import Scene

from penstock import admin
from penstock.errors import InvalidInput, NotFound
from penstock.model.check import Check
from penstock.model.job_filters import JobFilters
from penstock.model.job_state import State
from penstock.storage import Database
from penstock.storage.connection.sqlstate import CANCELLED, remedy
from penstock.storage.repair import control
from penstock.storage.work.workers import register

LATER = datetime.now(UTC) + timedelta(days=1)


def test_ids_are_taken_as_numbers_and_as_text(scene: Scene) -> None:
    (id_,) = scene.enqueue()
    assert admin.job(scene.databases, str(id_)) == admin.job(scene.databases, id_)
    for bad in ("x", -1, 0, 2**63, True, None):
        with pytest.raises(InvalidInput):
            admin.job(scene.databases, bad)  # type: ignore[arg-type]
    for act in (admin.job, admin.cancel, admin.retry, admin.explain):
        with pytest.raises(NotFound):
            act(scene.databases, 12345)


def test_cancel_by_filter_tells_how_many_and_touches_no_others(scene: Scene) -> None:
    scene.enqueue(1500, attributes={"tags": ["a"]})
    scene.enqueue(10, attributes={"tags": ["b"]})
    scene.enqueue(5, attributes={"tags": ["a"]}, run_at=LATER)
    scene.claim(2)
    assert admin.cancel(scene.databases, filters=JobFilters(tag="a"), preview=True) == 1505
    assert admin.cancel(scene.databases, filters=JobFilters(tag="a")) == 1505
    assert admin.cancel(scene.databases, filters=JobFilters(tag="a", state="ready")) == 0
    places = [place for (place,) in scene.places().values()]
    assert (places.count("ready"), places.count("running"), places.count("cancelled")) == (10, 2, 1503)
    assert admin.cancel(scene.databases, filters=JobFilters(queue="q", state="ready"), preview=True) == 10
    assert admin.cancel(scene.databases, filters=JobFilters(queue="q", state="ready")) == 10
    scene.assert_conserved()


def test_retry_by_filter_takes_dead_letters_or_what_is_scheduled(scene: Scene) -> None:
    scene.dead(30)
    scene.enqueue(4, run_at=LATER)
    assert admin.retry(scene.databases, filters=JobFilters(queue="q"), preview=True) == 30
    assert admin.retry(scene.databases, filters=JobFilters(queue="q", state="failed", task="t")) == 30
    assert admin.retry(scene.databases, filters=JobFilters(queue="q", state="scheduled")) == 4
    assert [place for (place,) in scene.places().values()] == ["ready"] * 34
    scene.assert_conserved()


def test_jobs_are_chosen_by_partition_tenant_and_who_wanted_them(scene: Scene) -> None:
    wide = scene.declare("wide", partitions=3)
    first = scene.enqueue(2, queue=wide, partition=1, attributes={"tenant": "acme", "created_by": "billing"})
    other = scene.enqueue(2, queue=wide, partition=1, attributes={"tenant": "acme", "created_by": "web"})
    later = scene.enqueue(1, queue=wide, partition=2, attributes={"tenant": "acme"}, run_at=LATER)
    scene.enqueue(2, queue=wide, partition=2, attributes={"tenant": "else", "created_by": "billing"})
    scene.enqueue(3)

    def found(**filters: Any) -> list[int]:
        listed = sorted(job.id for job in admin.jobs(scene.databases, JobFilters(**filters)))
        assert admin.cancel(scene.databases, filters=JobFilters(**filters), preview=True) == len(listed)
        return listed

    assert found(partition="wide__p1") == found(queue="wide", partition=1) == [*first, *other]
    assert found(queue="wide", partition=0) == []
    assert found(tenant="acme") == [*first, *other, *later]
    assert found(tenant="acme", created_by="billing") == found(partition="wide__p1", created_by="billing") == first
    assert found(queue="wide", partition="wide__p2", state="scheduled", tenant="acme") == later
    assert [job.partition for job in admin.jobs(scene.databases, JobFilters(partition="wide__p1"), limit=1)] == [
        "wide__p1"
    ]
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"partition": "wide__p9"}, "there is no partition 'wide__p9'"),
        ({"queue": "wide", "partition": 3}, "give a number from 0 to 2, or one of its names: wide, wide__p1, wide__p2"),
        ({"queue": "q", "partition": "wide__p1"}, "queue 'q' has no partition 'wide__p1'"),
    )
    for refused, message in refusals:
        with pytest.raises(NotFound, match=message):
            admin.jobs(scene.databases, JobFilters(**refused))
    wrong: list[dict[str, Any]] = [{"partition": 1}, {"partition": True}, {"tenant": ""}, {"created_by": 5}]
    for refused in wrong:
        with pytest.raises(InvalidInput, match=next(iter(refused))):
            admin.jobs(scene.databases, JobFilters(**refused))

    assert admin.purge(scene.databases, JobFilters(queue="wide", tenant="acme"), preview=True) == 5
    assert admin.purge(scene.databases, JobFilters(queue="wide", created_by="billing", partition=1)) == 2
    assert admin.cancel(scene.databases, filters=JobFilters(tenant="acme", created_by="web")) == 2
    assert admin.retry(scene.databases, filters=JobFilters(tenant="acme", state="scheduled")) == 1
    assert admin.purge(scene.databases, JobFilters(queue="wide", partition=2)) == 3
    assert [place for (place,) in scene.places().values()] == ["ready"] * 3 + ["cancelled"] * 7
    scene.assert_conserved()


def test_dead_letters_of_a_tenant_are_retried_or_cleared(scene: Scene) -> None:
    ours, theirs = (scene.dead(3, attributes={"tenant": tenant}) for tenant in ("acme", "else"))
    (child,) = scene.enqueue(after=theirs[:1])
    assert admin.retry(scene.databases, filters=JobFilters(tenant="acme"), preview=True) == 3
    assert admin.retry(scene.databases, filters=JobFilters(tenant="acme")) == 3
    assert admin.purge(scene.databases, JobFilters(queue="q", state="failed", tenant="acme")) == 0
    assert admin.purge(scene.databases, JobFilters(queue="q", state="failed", tenant="else"), preview=True) == 3
    assert admin.purge(scene.databases, JobFilters(queue="q", state="failed", tenant="else")) == 3
    assert [admin.job(scene.databases, id_).state for id_ in (*ours, *theirs, child)] == [
        *["ready"] * 3, *["failed"] * 3, "cancelled",
    ]  # fmt: skip
    assert admin.retry(scene.databases, filters=JobFilters(queue="q")) == 0
    scene.assert_conserved()


def test_a_purge_by_filter_leaves_what_has_started_alone(scene: Scene) -> None:
    running, _ = scene.enqueue(2, attributes={"tenant": "acme"})
    held = scene.claim(1)
    assert admin.purge(scene.databases, JobFilters(queue="q", tenant="acme")) == 1
    assert control.cancel_jobs(scene.connection, [running], asks=False) == control.Cancelled()
    assert scene.one("select count(*) from penstock.cancellation") == 0
    scene.succeed(held)


def test_an_act_without_an_id_or_a_filter_is_refused(scene: Scene) -> None:
    (id_,) = scene.enqueue()
    for refused in (
        lambda: admin.cancel(scene.databases),
        lambda: admin.retry(scene.databases, filters=JobFilters(queue=None)),
        lambda: admin.cancel(scene.databases, id_, filters=JobFilters(queue="q")),
        lambda: admin.cancel(scene.databases, filters=JobFilters(queue="q", state="succeeded")),
        lambda: admin.retry(scene.databases, filters=JobFilters(queue="q", state="ready")),
        lambda: admin.purge(scene.databases, JobFilters(queue="q", state="running")),
        lambda: admin.jobs(scene.databases, JobFilters(state="nonsense")),
        lambda: admin.jobs(scene.databases, limit=0),
        lambda: admin.jobs(scene.databases, before="x"),
        lambda: admin.reschedule(scene.databases, id_, datetime(2026, 1, 1)),  # noqa: DTZ001
    ):
        with pytest.raises(InvalidInput):
            refused()
    for filters in (JobFilters(state="dead"), JobFilters(queue="q", state="dead")):
        with pytest.raises(InvalidInput, match=r"\(dead letters are failed\), not 'dead'"):
            admin.jobs(scene.databases, filters)
    with pytest.raises(NotFound):
        admin.purge(scene.databases, JobFilters(queue="nowhere"))
    assert admin.job(scene.databases, id_).state == "ready"


def test_purge_without_a_state_takes_all_that_waits(scene: Scene) -> None:
    parents = scene.enqueue(10)
    scene.enqueue(5, run_at=LATER)
    scene.enqueue(2, after=parents[:1])
    scene.claim(1)
    assert admin.purge(scene.databases, JobFilters(queue="q"), preview=True) == 16
    assert admin.purge(scene.databases, JobFilters(queue="q")) == 16
    scene.assert_conserved()


def test_explain_names_the_one_reason(scene: Scene) -> None:
    def reason(job_id: int) -> str:
        return admin.explain(scene.databases, job_id).reason

    first, second = scene.enqueue(2)
    assert reason(first).startswith("ready: next")
    assert reason(second) == "waiting behind 1 jobs of priority 5"
    admin.pause(scene.databases, "q")
    assert reason(first).startswith("paused: queue 'q'")
    admin.resume(scene.databases, "q")
    (unknown,) = scene.enqueue(task="nobody")
    assert reason(unknown) == "no worker that is alive knows task 'nobody' of queue 'q'"
    (elsewhere,) = scene.enqueue(queue=scene.declare("empty"))
    assert reason(elsewhere).startswith("no worker: none that is alive serves queue 'empty'")
    (scheduled,) = scene.enqueue(run_at=LATER)
    assert reason(scheduled) == f"scheduled: due at {admin.job(scene.databases, scheduled).run_at} (delay)"
    (blocked,) = scene.enqueue(after=[first, second])
    assert reason(blocked) == f"blocked by {first}, {second}"
    held = scene.claim(1)
    assert reason(first).startswith(f"running on worker-a#{scene.worker:014x}"[:26])
    renewed = scene.one("select renewed_at from penstock.worker where id = %s", scene.worker)
    scene.connection.execute(
        "update penstock.worker set renewed_at = now() - interval '1 hour', started_at = now() - interval '2 hours'"
    )
    assert ", and its worker has not been heard of for 36" in reason(first)
    assert reason(first).endswith("; no worker is alive: start one")
    scene.connection.execute("update penstock.worker set renewed_at = %s", (renewed,))
    admin.cancel(scene.databases, first)
    assert reason(first).endswith("asked to stop")
    scene.succeed(held)
    said = admin.explain(scene.databases, first)
    assert (said.reason, said.state, str(said)) == ("finished: succeeded", State.SUCCEEDED, "finished: succeeded")
    scene.connection.execute("update penstock.worker set renewed_at = now() - interval '1 hour'")
    assert reason(second).startswith("no worker")


def test_explain_of_a_job_whose_worker_has_ended_says_so(scene: Scene) -> None:
    (job,) = scene.enqueue()
    scene.claim(1)
    other = scene.register(("t",))
    scene.connection.execute("delete from penstock.worker where id = %s", (scene.worker,))
    ended = f"was running on worker {scene.worker} since"
    again = "and its worker has ended: it runs again when a worker's upkeep finds it"
    said = admin.explain(scene.databases, job).reason
    assert said.startswith(ended)
    assert said.endswith(again)
    scene.connection.execute("delete from penstock.worker where id = %s", (other,))
    assert admin.explain(scene.databases, job).reason.endswith(f"{again}; no worker is alive: start one")
    # Whether it stopped gently or was killed is not known.
    scene.connection.execute("select penstock.rescue()")
    (error,) = scene.connection.execute("select error from penstock.failure").fetchone() or ("",)
    assert error == f"WorkerDied: worker {scene.worker} ended or died while it held this job"


def test_the_doctor_finds_a_sound_database_sound(scene: Scene) -> None:
    checks = {check.name: check for check in admin.doctor([scene.database])}
    assert [check for check in checks.values() if not check.ok] == []
    assert {"PostgreSQL version", "fsync", "clock", "connection", "notifications", "schema", "workers"} <= set(checks)
    assert "round trip" in checks["notifications"].found


def test_the_doctor_says_what_is_wrong_and_what_to_do(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("penstock.admin.doctor")
    monkeypatch.setattr(module, "_LONG_TRANSACTION_SECONDS", 0.0)
    monkeypatch.setattr(module, "_MANY_DEAD_ROWS", -1_000_000)
    scene.enqueue(task="nobody")
    scene.connection.execute("update penstock.worker set renewed_at = now() - interval '1 hour'")
    high = scene.one("select max(high) from penstock.job_table")
    scene.connection.execute("select setval('penstock.range_number', %s)", (high - 1024,))
    name = psycopg.conninfo.conninfo_to_dict(scene.database.url)["dbname"]
    scene.connection.execute(f"alter database {name} set synchronous_commit = off")
    with scene.connect() as holder, holder.transaction():
        holder.execute("select 1")
        checks = {check.name: check for check in admin.doctor([scene.database])}
    wrong = {name for name, check in checks.items() if not check.ok}
    assert wrong == {"synchronous_commit", "oldest transaction", "dead rows", "tables ahead", "workers", "tasks"}
    assert all(checks[name].advice for name in wrong)
    assert checks["tasks"].found == "q/nobody"
    # A purge would end the good jobs of the queue as well.
    assert "penstock cancel --queue QUEUE --task TASK" in checks["tasks"].advice
    assert checks["timeouts"].found == "no worker is alive that could tell of its tasks"


def test_the_doctor_says_that_there_is_no_worker_without_advice(scene: Scene) -> None:
    def check(name: str) -> Check:
        return next(check for check in admin.doctor([scene.database]) if check.name == name)

    assert check("timeouts").found == "every task of a live worker has one"
    scene.connection.execute("delete from penstock.worker")
    # A server acts for workers, and is none.
    register(scene.connection, name="s", host="", pid=1, version="", concurrency=0, lease_seconds=9.0, tasks=())
    workers, timeouts = check("workers"), check("timeouts")
    assert (workers.ok, workers.found, workers.advice) == (True, "none is alive, and none has fallen silent", "")
    assert (timeouts.ok, timeouts.found, timeouts.advice) == (
        True,
        "no worker is alive that could tell of its tasks",
        "",
    )


def test_the_doctor_names_a_timeout_that_ends_its_statements(scene: Scene) -> None:
    name = psycopg.conninfo.conninfo_to_dict(scene.database.url)["dbname"]
    # However fast the server is, this takes longer.
    scene.connection.execute("alter table penstock.table_file rename to table_file_kept")
    scene.connection.execute(
        "create view penstock.table_file as select f.* from penstock.table_file_kept as f, pg_sleep(60)"
    )
    scene.connection.execute(f"alter database {name} set statement_timeout = '2s'")
    database = Database(scene.database.url)
    (check,) = [check for check in admin.doctor([database]) if not check.ok]
    database.close()
    assert "statement timeout" in check.found
    assert check.advice == remedy(CANCELLED)
    assert "statement_timeout" in check.advice


def test_the_doctor_finds_workers_of_an_owned_queue_that_divide_its_tasks(scene: Scene) -> None:
    def owners() -> Check:
        return next(check for check in admin.doctor([scene.database]) if check.name == "tasks of owners")

    ordered, plain = scene.declare("ordered", order="key"), scene.declare("plain")
    for queue in (ordered, plain):
        few = scene.register(("a",), queue)
        scene.register(("a", "b"), queue)
    # While a new version is rolled out: who knows fewer owns nothing.
    assert (owners().ok, owners().advice) == (True, "")
    other = scene.register(("c",), plain)
    assert owners().ok
    other = scene.register(("c",), ordered)
    assert not owners().ok
    assert owners().found.startswith("ordered: worker worker-a#")
    assert "does not know 'c'" in owners().found
    assert "know all its tasks" in owners().advice
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity' where id = %s", [other])
    assert owners().ok
    assert few


def test_the_doctor_of_a_database_without_schema_or_server_says_so(empty_database_url: str) -> None:
    empty = Database(empty_database_url)
    assert [(c.name, "penstock migrate" in c.advice) for c in admin.doctor([empty]) if not c.ok] == [("schema", True)]
    gone = Database("postgresql://nobody@127.0.0.1:1/none")
    assert [c.name for c in admin.doctor([gone])] == ["database"]
    assert not admin.answers(gone)
    assert admin.answers(empty)

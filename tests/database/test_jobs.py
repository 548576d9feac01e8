"""Reading jobs back, wherever they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.database.conftest import Scene

from penstock.errors import NotFound
from penstock.model.job_state import State
from penstock.storage.connection.queries import query
from penstock.storage.inspect.jobs import find_job, list_jobs
from penstock.storage.inspect.selection import Selection
from penstock.storage.upkeep.sweep import fold, promote
from penstock.storage.work.workers import full_name

LATER = datetime.now(UTC) + timedelta(days=1)


def test_a_job_is_found_in_every_state_it_goes_through(scene: Scene) -> None:
    attributes = {"tenant": "acme", "created_by": "billing", "tags": ["x"], "token": 7, "idempotency_key": "k"}
    (id_,) = scene.enqueue(attributes=attributes, key=b"c-42", priority=3)
    job = find_job(scene.connection, id_)
    assert (job.state, job.attempt, job.args, job.key) == ("ready", 0, {"n": 0}, "c-42")
    assert (job.tenant, job.created_by, job.tags, job.load, job.idempotency_key) == (
        "acme",
        "billing",
        ["x"],
        None,
        "k",
    )
    assert (job.queue, job.partition, job.task, job.priority) == ("q", "q", "t", 3)
    assert "token" not in repr(job)

    held = scene.claim()
    job = find_job(scene.connection, id_)
    assert (job.state, job.attempt, job.worker) == ("running", 1, full_name("worker-a", scene.worker))
    assert job.started_at is not None

    scene.end(held, "retry", error="ValueError: first", due_in=3600)
    job = find_job(scene.connection, id_)
    assert (job.state, job.attempt, job.error) == ("scheduled", 1, "ValueError: first")
    assert job.run_at is not None
    assert job.run_at > job.enqueued_at

    scene.connection.execute("update penstock.scheduled set due_at = now()")
    promote(scene.connection)
    assert find_job(scene.connection, id_).state == "ready"
    scene.end(scene.claim(), "failed", error="ValueError: second")
    job = find_job(scene.connection, id_)
    assert (job.state, job.attempt, job.error, job.worker) == ("failed", 2, "ValueError: second", "worker-a#1")
    assert [(f.attempt, f.error, f.worker) for f in job.failures] == [
        (1, "ValueError: first", "worker-a#1"),
        (2, "ValueError: second", "worker-a#1"),
    ]
    assert job.started_at is not None
    assert job.finished_at is not None


def test_a_success_has_its_result_and_times(scene: Scene) -> None:
    ids = scene.enqueue(5)
    scene.succeed(scene.claim(3))
    job = find_job(scene.connection, ids[2])
    assert (job.state, job.attempt, job.result, job.error) == ("succeeded", 1, {"done": True}, None)
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.finished_at - job.started_at == timedelta(seconds=1)
    assert find_job(scene.connection, ids[3]).state == "ready"


def test_a_child_names_its_parents_and_is_blocked(scene: Scene) -> None:
    parents = scene.enqueue(2)
    (child,) = scene.enqueue(after=parents)
    job = find_job(scene.connection, child)
    assert (job.state, job.attempt, job.after) == ("blocked", 0, parents)


def test_an_id_nobody_drew_is_not_found(scene: Scene) -> None:
    with pytest.raises(NotFound, match="job 12345 is not stored"):
        find_job(scene.connection, 12345)


def test_numbers_beyond_two_to_the_53_come_back_exactly(scene: Scene) -> None:
    scene.connection.execute("select penstock.add_job_table(%s)", (2**34,))
    scene.connection.execute("select setval('penstock.range_number', %s)", (2**44 + 1,))
    (id_,) = scene.enqueue()
    assert id_ > 2**53
    assert find_job(scene.connection, id_).id == id_


def test_listing_gives_the_newest_first_page_by_page_in_every_state(scene: Scene) -> None:
    other = scene.declare("other")
    finished = scene.enqueue(30)
    scene.succeed(scene.claim(30))
    dead = scene.dead(10)
    running = scene.enqueue(10)
    scene.claim(10)
    ready = scene.enqueue(2500)
    scene.enqueue(50, queue=other)
    scheduled = scene.enqueue(10, run_at=LATER)
    blocked = scene.enqueue(10, after=ready[:1])
    partitions = scene.queue.partition_ids
    expected = {
        State.SUCCEEDED: finished,
        State.FAILED: dead,
        State.RUNNING: running,
        State.READY: ready,
        State.SCHEDULED: scheduled,
        State.BLOCKED: blocked,
        None: finished + dead + running + ready + scheduled + blocked,
    }
    for state, ids in expected.items():
        found: list[int] = []
        while True:
            before = found[-1] if found else None
            page = list_jobs(
                scene.connection, Selection(partitions=partitions, state=state), limit=1000, before=before
            ).jobs
            if not page:
                break
            assert state is None or {job.state for job in page} == {state}
            found += [job.id for job in page]
        assert found == sorted(ids, reverse=True), state
    assert len(list_jobs(scene.connection, Selection(state=State.READY), limit=5000).jobs) == 2550


def test_a_listing_can_be_narrowed_by_task_key_tag_and_load(scene: Scene) -> None:
    scene.enqueue(2000)
    (rare,) = scene.enqueue(task="u", key=b"\xff\x00", attributes={"tags": ["a", "b"]})
    scene.connection.execute(
        "with l as (insert into penstock.load (name, queue_id, is_stream) values ('l', %(queue)s, false) returning id)"
        " insert into penstock.load_range (range, stage, load_id, size, partition_id, priority,"
        " has_idempotency_keys, task)"
        " select %(range)s, 's', id, 1, %(partition)s, 5, false, 'u' from l",
        {"queue": scene.queue.id, "range": rare // 1024, "partition": scene.queue.partition_ids[0]},
    )
    scene.enqueue(2000)
    for state in (None, State.READY):
        for narrowed in (
            Selection(state=state, task="u"),
            Selection(state=state, key=b"\xff\x00"),
            Selection(state=state, tag="b"),
            Selection(state=state, load="l"),
            Selection(state=state, task="u", tag="a", partitions=scene.queue.partition_ids),
        ):
            assert [job.id for job in list_jobs(scene.connection, narrowed).jobs] == [rare]
        assert list_jobs(scene.connection, Selection(state=state, tag="a' or '1'='1")).jobs == []


def test_ready_jobs_that_were_retried_promoted_or_parked_are_listed_in_their_place(scene: Scene) -> None:
    ids = [scene.enqueue()[0] for _ in range(6)]
    held = scene.claim(3)
    scene.end(held[:2], "retry", error="x", due_in=0)
    scene.end(held[2:], "retry", error="x", due_in=60)
    scene.connection.execute("update penstock.scheduled set due_at = now()")
    promote(scene.connection)
    scene.connection.execute("update penstock.ready set is_parked = true where range = %s", (ids[4] // 1024,))
    fold(scene.connection)
    selection = Selection(partitions=scene.queue.partition_ids, state=State.READY)
    assert [job.id for job in list_jobs(scene.connection, selection).jobs] == ids[::-1]


def test_pages_are_whole_where_a_range_has_more_rows_than_a_small_look_reads(scene: Scene) -> None:
    ids = scene.enqueue(400)
    scene.connection.execute(
        "with whole as (delete from penstock.ready returning *)"
        " insert into penstock.ready (partition_id, priority, pos, range, low, high, task)"
        " select partition_id, priority, pos, range, n, n + 1, task from whole, generate_series(low, high - 1) as n"
    )
    for partitions in (scene.queue.partition_ids, None):
        for state in (State.READY, None):
            listed: list[int] = []
            selection = Selection(partitions=partitions, state=state)
            while page := list_jobs(scene.connection, selection, limit=7, before=listed[-1] if listed else None).jobs:
                listed += [job.id for job in page]
            assert listed == ids[::-1], selection


def test_a_job_that_moves_while_it_is_read_is_found_once(scene: Scene) -> None:
    (id_,) = scene.enqueue()
    other = scene.connect()
    with other.transaction():
        held = scene.claim(connection=other)
        assert find_job(scene.connection, id_).state == "ready"
    with other.transaction():
        scene.succeed(held, connection=other)
        assert find_job(scene.connection, id_).state == "running"
    assert find_job(scene.connection, id_).state == "succeeded"


def test_listing_a_queue_reads_little_beside_a_large_backlog(scene: Scene) -> None:
    busy = scene.declare("busy")
    for queue, first in ((scene.queue, 1), (busy, 200_001)):
        scene.connection.execute(
            "insert into penstock.ready (partition_id, priority, pos, range, low, high, task)"
            " select %s, 5, n, n, 0, 1, 't' from generate_series(%s, %s) as n",
            (queue.partition_ids[0], first, first + 199_999),
        )
    scene.connection.execute("analyze penstock.ready")
    plan = scene.connection.execute(
        "explain (analyze, buffers, format json) " + query("look_at_ready_of_partitions"),
        {"partitions": list(scene.queue.partition_ids), "top": 2**53, "looks": 1000},
    ).fetchone()
    assert plan is not None
    top = msgspec.json.decode(plan[0])[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 500

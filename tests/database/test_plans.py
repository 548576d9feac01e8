"""Plan guards: at a backlog of 400,000 jobs every act of the claim path reads through an index and touches few pages.

What is written inside functions is judged by what the server counted while it ran: rows read by scanning a table,
and pages touched. Each statement is run as it is planned the first time, and again with a generic plan; also where
the server has never looked at how large the tables have become.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from psycopg import sql
from tests.database.conftest import TOKEN, Scene
from tests.database.owned import Owned
from tests.database.stepwise import lasting_scene

from penstock.model.job_state import State
from penstock.storage import Connection
from penstock.storage.catalogue.queues import QueueEntry, find_queue
from penstock.storage.connection.arrays import array_text, members_text
from penstock.storage.connection.queries import query
from penstock.storage.enqueue.job_group import Parents
from penstock.storage.inspect.jobs import list_jobs
from penstock.storage.inspect.selection import Selection
from penstock.storage.inspect.system_figures import MOST_PARKED
from penstock.storage.work.leases import Lease, read_jobs
from penstock.storage.work.settle import End

SINGLES = 200_000
RANGES = 200
OWNED = 50_000
FIRST = 1
# Tables whose whole reading would grow with the backlog or the history.
LARGE = (
    "ready",
    "job",
    "scheduled",
    "spent",
    "dependency",
    "blocked",
    "dead",
    "finished",
    "failure",
    "dedup",
    "minute_histogram",
    "cause",
)
SMALL = ("job_table", "cause_tally")
FEW_PAGES = 400

_FILL = """
insert into penstock.job (id, enqueued_at, partition_id, priority, task, args)
select (1 + n * 1024::bigint) * 1024, now() - interval '1 h', %(single)s, 5, 't', '{}'::json
  from generate_series(1, %(singles)s) as n
union all
select (1 + (%(singles)s + n) * 1024::bigint) * 1024 + p, now(), %(ranged)s, 5, 't', '{}'
  from generate_series(1, %(ranges)s) as n, generate_series(0, 999) as p;
insert into penstock.ready (partition_id, priority, pos, range, low, high, task, ready_at)
select %(single)s, 5, 1 + n * 1024::bigint, 1 + n * 1024::bigint, 0, 1, 't', now() - interval '1 h'
  from generate_series(1, %(singles)s) as n
union all
select %(ranged)s, 5, number, number, 0, 1000, 't', now()
  from (select 1 + (%(singles)s + n) * 1024::bigint as number from generate_series(1, %(ranges)s) as n) as g;
insert into penstock.tally (partition_id, opened, enqueued)
values (%(single)s, %(singles)s, %(singles)s), (%(ranged)s, %(ranges)s * 1000, %(ranges)s * 1000);
insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, task)
select now() + n * interval '1 min', %(ranged)s, 5, n, 0, 1, 't' from generate_series(1, 50000) as n;
insert into penstock.blocked (job_id, partition_id, priority, task, on_parent_failure, parents)
select 1024 * n + 1, %(ranged)s, 5, 't', 'cancel', array[1024 * n] from generate_series(1, 50000) as n;
insert into penstock.dependency (parent_id, child_id) select 1024 * n, 1024 * n + 1 from generate_series(1, 50000) as n;
insert into penstock.dead (job_id, partition_id, task, attempt, cause)
select 1024 * n + 2, %(ranged)s, 't', 1, 1 + n %% 50 from generate_series(1, 50000) as n;
insert into penstock.cause (id, queue_id, task, shape, dead, failed_at)
select n, n %% 100, 't', 'Error: ' || n, case when n <= 50 then 1000 else 1 + n %% 7 end, now()
  from generate_series(1, 50000) as n;
insert into penstock.cause_period (queue_id, began_at, cause, failed)
select n %% 100, penstock.period_of(now()) - n / 180 * interval '5 min', n, 1 from generate_series(1, 50000) as n;
insert into penstock.finished (slice, range, partition_id, outcome, attempt, positions)
select penstock.current_slice(), n, %(ranged)s, 0, 1, '{0}' from generate_series(1, 50000) as n;
insert into penstock.failure (job_id, attempt, error) select 1024 * n, 1, 'no' from generate_series(1, 50000) as n;
insert into penstock.dedup (queue_id, idempotency_key, job_id)
select 1, 'k' || n, 1024 * n from generate_series(1, 50000) as n;
insert into penstock.job (id, enqueued_at, partition_id, priority, task, key, args)
select (1 + (%(singles)s + %(ranges)s + n) * 1024::bigint) * 1024, now(), %(owned)s, 5, 't', ('k' || n)::bytea, '{}'
  from generate_series(1, %(owned_jobs)s) as n;
insert into penstock.ready (partition_id, priority, pos, range, low, high, task, epoch, changed)
select %(owned)s, 5, number, number, 0, 1, '', 1, pg_current_xact_id()
  from (select 1 + (%(singles)s + %(ranges)s + n) * 1024::bigint as number
          from generate_series(1, %(owned_jobs)s) as n) as g;
insert into penstock.tally (partition_id, opened, enqueued) values (%(owned)s, %(owned_jobs)s, %(owned_jobs)s);
select setval('penstock.range_number', 1 + (%(singles)s + %(ranges)s + %(owned_jobs)s) * 1024::bigint);
"""


@pytest.fixture(scope="module", params=["as the server finds them", "after ANALYZE"])
def backlog(request: pytest.FixtureRequest, server_url: str, template_database: str) -> Iterator[Scene]:
    with lasting_scene(server_url, template_database, "plans") as scene:
        scene.queue = scene.declare("large", partitions=2)
        scene.worker = scene.register()
        single, ranged = scene.queue.partition_ids
        owned = scene.declare("owned", partitions=2, order="key").partition_ids[0]
        values = {
            "single": single, "ranged": ranged, "owned": owned,
            "singles": SINGLES, "ranges": RANGES, "owned_jobs": OWNED,
        }  # fmt: skip
        with scene.connection.transaction():
            for statement in _FILL.split(";\n"):
                scene.connection.execute(sql.SQL(statement), values) if statement.strip() else None
        if request.param == "after ANALYZE":
            scene.connection.execute("vacuum analyze")
        yield scene


@dataclass(slots=True)
class Cost:
    """What a statement touched: pages, and rows read by scanning large tables."""

    pages: int
    scanned: dict[str, int]


def costs(connection: Connection, name: str, parameters: dict[str, Any]) -> list[Cost]:
    """What a query costs, planned for its parameters several times, then in general; everything is rolled back."""
    found = []
    for mode in ("auto", "force_generic_plan"):
        for _ in range(7):
            with connection.transaction(force_rollback=True):
                connection.execute(sql.SQL("set local plan_cache_mode = {}").format(sql.Literal(mode)))
                before = _scanned(connection)
                row = connection.execute(
                    sql.SQL("explain (analyze, buffers, format json) " + query(name)), parameters, prepare=True
                ).fetchone()
                assert row is not None
                plan = msgspec.json.decode(row[0])[0]["Plan"]
                after = _scanned(connection)
                pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
                found.append(Cost(pages, {t: n - before.get(t, 0) for t, n in after.items() if n > before.get(t, 0)}))
    # The first run of each mode also reads the catalogue, to plan.
    return [cost for number, cost in enumerate(found) if number % 7]


def _scanned(connection: Connection) -> dict[str, int]:
    rows = connection.execute(
        "select relname, seq_tup_read from pg_stat_xact_user_tables where schemaname = 'penstock' and seq_tup_read > 0"
    )
    return {name: count for name, count in rows if name.startswith(LARGE) and name not in SMALL}


def assert_cheap(connection: Connection, name: str, parameters: dict[str, Any], pages: int = FEW_PAGES) -> None:
    for cost in costs(connection, name, parameters):
        assert cost.scanned == {}, f"{name} scanned {cost.scanned}"
        assert cost.pages <= pages, f"{name} touched {cost.pages} pages"


def wish(scene: Scene, partition: int, slots: int, ahead: int, start: int | None = None) -> dict[str, Any]:
    return {
        "worker": scene.worker,
        "token": TOKEN,
        "firsts": array_text([scene.queue.partition_ids[partition]]),
        "lasts": array_text([scene.queue.partition_ids[partition]]),
        "started": None if start is None else array_text([scene.queue.partition_ids[partition]]),
        "starts": None if start is None else array_text([start] * 10),
        "slots": slots,
        "ahead": ahead,
        "has_suspect": False,
        "batch_sizes": None,
        "freed": "{}",
        "caps": None,
    }


@pytest.mark.parametrize(("slots", "ahead", "pages"), [(1, 0, 200), (16, 0, 400), (16, 100, 2_000)])
def test_a_claim_touches_only_the_head(backlog: Scene, slots: int, ahead: int, pages: int) -> None:
    for partition in (0, 1):
        assert_cheap(backlog.connection, "claim", wish(backlog, partition, slots, ahead), pages)
        capped = wish(backlog, partition, slots, ahead) | {"caps": f'{{"{backlog.queue.id}": 1}}'}
        assert_cheap(backlog.connection, "claim", capped, pages)


def test_a_claim_goes_on_where_the_last_one_ended(backlog: Scene) -> None:
    assert_cheap(backlog.connection, "claim", wish(backlog, 0, 16, 0, 1 + 150_000 * 1024))


def test_a_gate_touches_only_the_leases_and_the_last_start(backlog: Scene) -> None:
    connection, queue = backlog.connection, backlog.queue
    with connection.transaction(force_rollback=True):
        connection.execute('update penstock.queue set rules = \'{"limit": 4, "rate": 100}\'')
        connection.execute(
            "insert into penstock.spent (partition_id, full_at) select %s, now() from generate_series(1, 50000)",
            [queue.partition_ids[0]],
        )
        for partition in (0, 1):
            assert_cheap(connection, "claim", wish(backlog, partition, 16, 100))
        assert_cheap(connection, "wake_gates", {"freed": array_text(queue.partition_ids)})


def test_settling_touches_only_the_leases(backlog: Scene) -> None:
    connection = backlog.connection
    rows = connection.execute(query("claim"), wish(backlog, 1, 1000, 1000)).fetchall()
    lease, number = rows[0][0], rows[0][4]
    done = {
        "worker": backlog.worker, "name": "w", "leases": array_text([lease]), "tokens": array_text([TOKEN]),
        "ranges": array_text([number]), "counts": "{2}",
        "members": array_text([members_text([0, 1])]), "positions": '{"{0,1}"}', "ages": '{"{1,1}"}',
        "runs": '{"{1,1}"}', "results": None,
    }  # fmt: skip
    assert_cheap(connection, "settle_succeeded_if_leased", done)
    assert_cheap(connection, "settle_succeeded_if_leased", {**done, "worker": 0})
    assert_cheap(connection, "settle_succeeded_if_leased", {**done, "tokens": "{1}"})
    for end in ("retry", "snooze", "failed", "release", "discarded"):
        ends = [End(lease, TOKEN, 5, number, end, "no", 0.0, 1, 1)]
        assert_cheap(
            connection,
            "settle_ended_if_leased",
            {"worker": backlog.worker, "name": "w", "ends": msgspec.json.encode(ends).decode()},
        )
    started = {"worker": backlog.worker, "leases": array_text([lease]), "tokens": array_text([TOKEN])}
    assert_cheap(connection, "note_started_if_leased", started)
    part = {"worker": backlog.worker, "lease": lease, "token": TOKEN, "range": number, "position": 7}
    assert_cheap(connection, "split_lease_if_leased", part)
    assert_cheap(connection, "split_lease_if_leased", part)
    assert_cheap(connection, "children_of_ranges", {"ranges": array_text([1, 2, 3, 40_000, number])})
    assert_cheap(connection, "children_of_jobs", {"parents": array_text([1024, number * 1024])})
    assert_cheap(connection, "held_leases", {"worker": backlog.worker})
    connection.execute("delete from penstock.lease")


def test_looking_for_work_touches_few_pages(backlog: Scene) -> None:
    connection = backlog.connection
    assert_cheap(connection, "has_work", {"worker": backlog.worker})
    with_nothing_to_do = backlog.register(queue=backlog.declare("empty"))
    assert_cheap(connection, "has_work", {"worker": with_nothing_to_do})
    assert_cheap(connection, "next_due", {})
    assert_cheap(connection, "read_depths", {"partitions": list(backlog.queue.partition_ids)})
    assert_cheap(connection, "waiting_in", {"partition": backlog.queue.partition_ids[0]})
    partitions = array_text(backlog.queue.partition_ids)
    assert_cheap(connection, "read_stats", {"partitions": partitions})
    assert_cheap(connection, "ready_heads", {"partitions": partitions})
    assert_cheap(connection, "system_figures", {"most_parked": MOST_PARKED})
    assert_cheap(connection, "attention_facts", {})
    assert_cheap(connection, "due_jobs", {"most": 2_000, "partitions": None}, pages=1_500)
    assert_cheap(
        connection, "search", {"text": "k77", "key": b"k77", "limit": 20, "queues": None, "most_parked": MOST_PARKED}
    )
    assert_cheap(connection, "jobs_set_aside", {"most_parked": MOST_PARKED})


def test_enqueuing_touches_few_pages(backlog: Scene) -> None:
    connection = backlog.connection
    last = (1 + (SINGLES + RANGES + OWNED) * 1024) * 1024
    assert_cheap(
        connection,
        "enqueue_few",
        {
            "queue": backlog.queue.id, "partition": backlog.queue.partition_ids[0], "priority": 5, "task": "t",
            "run_at": None, "delay": None, "args": "[{}]", "keys": None, "attributes": None,
            "token": None, "kept_seconds": None,
        },
    )  # fmt: skip
    assert_cheap(
        connection,
        "enqueue_one",
        {
            "queue": backlog.queue.id, "partition": backlog.queue.partition_ids[0], "priority": 5, "task": "t",
            "key": None, "args": "{}", "attributes": None, "token": None, "kept_seconds": None,
        },
    )  # fmt: skip
    assert_cheap(connection, "enqueue_merged", merged(backlog.queue, None))
    assert_cheap(connection, "find_tokens", {"after": last, "first": 1, "last": 5})
    assert_cheap(connection, "note_written", {"token": 1, "kept_seconds": 60.0, "first_id": last})
    assert_cheap(connection, "find_or_void_receipt", {"token": 2, "kept_seconds": 60.0})
    assert_cheap(connection, "find_token", {"after": last, "token": '{"token":1}'})
    assert_cheap(connection, "was_written", {"id": last, "enqueued_at": datetime(2030, 1, 1, tzinfo=UTC)})
    assert_cheap(connection, "unknown_parents", {"parents": [last, last + 1]})
    queue, keys = [1, 1], ["k1", "k70000"]
    assert_cheap(connection, "insert_idempotency_keys", {"queues": queue, "keys": keys, "ids": [1, 2]})
    assert_cheap(connection, "read_idempotency_keys", {"queues": queue, "keys": keys})


def one_if_mapped(queue: QueueEntry, epoch: int) -> dict[str, Any]:
    return {
        "queue": queue.id, "epoch": epoch, "partition": queue.partition_ids[0], "priority": 5, "task": "t", "key": b"k",
        "args": "{}", "attributes": None, "token": None, "kept_seconds": None,
    }  # fmt: skip


def few_if_mapped(queue: QueueEntry, epoch: int) -> dict[str, Any]:
    return {
        "queue": queue.id, "epoch": epoch, "partition": queue.partition_ids[0], "priority": 5, "run_at": None,
        "delay": None, "tasks": ["t", "t"], "keys": [b"k", b"l"], "args": "[{},{}]", "attributes": None,
        "token": None, "kept_seconds": None,
    }  # fmt: skip


def merged(queue: QueueEntry, epoch: int | None) -> dict[str, Any]:
    return {
        "queues": [queue.id], "epochs": [epoch], "partitions": [queue.partition_ids[0]], "priorities": [5],
        "tasks": ["t" if epoch is None else ""], "run_ats": None, "delays": None, "sizes": [2], "job_ranges": None,
        "job_tasks": ["t", "t"], "keys": [b"k", b"l"], "args": "[{},{}]", "attributes": "[null,null]", "token": None,
        "kept_seconds": None,
    }  # fmt: skip


def test_enqueuing_on_an_owned_queue_touches_few_pages(backlog: Scene) -> None:
    connection, queue = backlog.connection, find_queue(backlog.connection, "owned")
    assert_cheap(connection, "enqueue_one_if_mapped", one_if_mapped(queue, 1))
    assert_cheap(connection, "enqueue_few_if_mapped", few_if_mapped(queue, 1))
    assert_cheap(connection, "enqueue_merged", merged(queue, 1))
    # By a map that is not the queue's: nothing is written.
    assert_cheap(connection, "enqueue_one_if_mapped", one_if_mapped(queue, 2), 10)


def test_an_owner_s_look_touches_only_what_it_has_not_read(backlog: Scene) -> None:
    connection, queue = backlog.connection, find_queue(backlog.connection, "owned")
    partition = queue.partition_ids[0]
    before = backlog.one("select pg_current_snapshot()::text")
    begin = 1 + (SINGLES + RANGES + OWNED // 2) * 1024
    look = {"partition": partition, "queue": queue.id, "starts": array_text([begin] * 10)}
    assert_cheap(connection, "read_next_rows", {**look, "rows": 100})
    assert_cheap(connection, "read_new_rows", {**look, "before": before})
    assert_cheap(connection, "read_rows", {**look, "before": before, "rows": 100})
    for name in ("read_running", "read_held", "read_halted", "read_permits"):
        assert_cheap(connection, name, look)
    assert_cheap(connection, "still_ready", {"partition": partition, "jobs": array_text([begin * 1024])})
    worker = backlog.register(queue=queue)
    connection.execute("update penstock.partition set owner_id = %s where id = %s", [worker, partition])
    assert_cheap(connection, "has_work_of_others", {"worker": worker})
    chosen = {
        "owner": worker, "holder": worker, "token": TOKEN, "server": backlog.one("select penstock.this_server()"),
        "partitions": array_text([partition]), "owner_epochs": "{0}", "counts": "{1}", "ranges": array_text([begin]),
        "members": array_text([members_text([0])]), "aheads": "{f}", "batches": None,
    }  # fmt: skip
    assert_cheap(connection, "lease_chosen", chosen)
    held = connection.execute(query("lease_chosen"), {**chosen, "ranges": array_text([begin + 1024])}).fetchall()
    one = {
        "worker": worker, "name": "w", "lease": held[0][0], "lease_token": TOKEN, "ended": (begin + 1024) * 1024,
        "age": 20, "run": 10, "result": None, "token": TOKEN, "server": chosen["server"], "partition": partition,
        "owner_epoch": 0, "job": begin * 1024, "is_ahead": False,
    }  # fmt: skip
    assert connection.execute(query("turn_of_one"), one).fetchall() != []
    one |= {"lease": backlog.one("select id from penstock.lease"), "ended": begin * 1024, "job": (begin + 2048) * 1024}
    assert_cheap(connection, "turn_of_one", one)


def test_the_maps_of_a_resized_queue_are_looked_at_through_indexes(backlog: Scene) -> None:
    connection, queue = backlog.connection, find_queue(backlog.connection, "owned")
    assert_cheap(connection, "undrained_maps", {"queue": queue.id})
    with connection.transaction(force_rollback=True):
        connection.execute("select penstock.resize('owned', 3)")
        assert_cheap(connection, "undrained_maps", {"queue": queue.id})
        assert_cheap(connection, "enqueue_one_if_mapped", one_if_mapped(queue, 2))
        connection.execute(
            "update penstock.map_here set state = 'closed' where queue_id = %s and epoch = 1", [queue.id]
        )
        connection.execute(
            "insert into penstock.scheduled (due_at, partition_id, priority, range, low, high, pos, epoch, task)"
            " select now() + interval '1 h', partition_id, priority, range, 0, 1, pos, epoch, ''"
            " from penstock.ready where partition_id = %s order by pos limit 10",
            [queue.partition_ids[0]],
        )
        assert_cheap(connection, "undrained_maps", {"queue": queue.id})
        assert_cheap(connection, "is_drained", {"queue": queue.id})
        assert_cheap(connection, "drain_maps", {})
        # Some pages for each job it looks at; it finds the first of what is left among all rows of the partition.
        assert_cheap(connection, "list_rest", {"jobs": 100, "keys": 1000}, OWNED // 2)


def test_upkeep_touches_only_what_is_due(backlog: Scene) -> None:
    connection = backlog.connection
    assert_cheap(connection, "rescue", {})
    assert_cheap(connection, "promote", {"limit": 10_000})
    children = [1024 * n + 1 for n in (1, 500, 49_999)]
    assert_cheap(connection, "unblock", {"children": children, "after": 0, "limit": 3})
    # Some 40 pages for each child: its parents, where it goes, and where it was.
    assert_cheap(connection, "unblock", {"children": None, "after": 1024 * 40_000, "limit": 5})
    assert_cheap(connection, "children_of_jobs", {"parents": [1024 * n for n in (1, 500, 49_999)]})
    assert_cheap(connection, "dead_before", {"age_seconds": 1e9, "limit": 100})
    assert_cheap(connection, "clean_progress", {})


def test_children_are_looked_up_one_by_one_where_nearly_all_are_of_one_parent(scene: Scene) -> None:
    connection = scene.connection
    connection.execute(
        "insert into penstock.dependency (parent_id, child_id)"
        " select 1024, 1024 * n from generate_series(2, 50000) as n"
    )
    connection.execute("vacuum analyze penstock.dependency")
    assert_cheap(connection, "children_of_jobs", {"parents": [1024 * n for n in (2, 500, 49_999)]})
    assert_cheap(connection, "children_of_ranges", {"ranges": array_text([2, 500, 49_999])})


def test_a_person_s_acts_touch_one_job(backlog: Scene) -> None:
    connection = backlog.connection
    number = 1 + 1000 * 1024
    assert_cheap(
        connection,
        "cancel_in_ranges",
        {"ranges": array_text([number]), "members": array_text([members_text([0])]), "reason": "why", "asks": True},
    )
    assert_cheap(connection, "reschedule_job", {"id": number * 1024, "run_at": datetime(2030, 1, 1, tzinfo=UTC)})
    assert_cheap(connection, "bury_dead", {"ids": array_text([1024 * 7 + 2])})
    assert_cheap(connection, "look_at_dead", {"before": 1024 * 30_000, "looks": 10})


def test_causes_are_read_one_by_one(backlog: Scene) -> None:
    connection = backlog.connection
    all_queues, some, ids = {"limit": 50}, {"limit": 50, "queues": array_text([1, 2, 3])}, list(range(1, 51))
    assert_cheap(connection, "most_frequent_causes", all_queues)
    assert_cheap(connection, "most_frequent_causes_of_queues", some, 1_000)
    # Some ten pages for each cause.
    assert_cheap(connection, "read_causes", {"ids": array_text(ids)}, 1_000)
    assert_cheap(connection, "read_trends", {"ids": array_text(ids)})
    since = datetime.now(UTC) - timedelta(hours=1)
    assert_cheap(connection, "most_failed_causes", {"queue": 1, "since": since, "limit": 5})
    assert_cheap(connection, "failures_of_queue", {"queue": 1, "since": since, "ids": "{1,101}"})
    assert_cheap(connection, "look_at_dead_of_cause", {"cause": 7, "before": 2**62, "looks": 10, "partitions": None})
    with connection.transaction(force_rollback=True):
        connection.execute(
            "insert into penstock.cause_tally (cause, queue_id, failed, dead, task, shape)"
            " select n, n % 100, 1, 1, 't', 'Error' from generate_series(49990, 50010) as n"
        )
        # Some thirty pages for each cause.
        assert_cheap(connection, "fold_causes", {}, 1_000)


def test_a_look_at_one_partition_reads_nothing_of_the_others(backlog: Scene) -> None:
    # Nothing waits in it, and much in the others.
    partitions = array_text(find_queue(backlog.connection, "owned").partition_ids[1:2])
    top = 1 + 1_000_000 * 1024
    for name in ("look_at_ready_of_partitions", "look_at_scheduled_of_partitions"):
        assert_cheap(backlog.connection, name, {"partitions": partitions, "top": top, "looks": 5_000})
    for name in ("look_at_blocked_of_partitions", "look_at_dead_of_partitions"):
        parameters = {"partitions": partitions, "before": top * 1024, "looks": 5_000, "is_cancelled": False}
        assert_cheap(backlog.connection, name, parameters)


@pytest.mark.parametrize("state", [State.READY, None])
@pytest.mark.parametrize("task", ["t", None])
@pytest.mark.parametrize("queue", ["large", "owned", None])
def test_a_page_of_jobs_reads_little_more_than_it_shows(
    backlog: Scene, queue: str | None, task: str | None, state: State | None
) -> None:
    connection = backlog.connection
    limit = 100
    partitions = None if queue is None else find_queue(connection, queue).partition_ids
    with connection.transaction():
        before = _read_rows(connection)
        listed = list_jobs(connection, Selection(partitions=partitions, task=task, state=state), limit=limit)
        after = _read_rows(connection)
    assert len(listed.jobs) == limit
    read = {table: rows - before.get(table, 0) for table, rows in after.items() if rows > before.get(table, 0)}
    # Each way of ending is looked for in all of the newest history.
    assert read.pop("finished_1", 0) <= 100 * limit, read
    assert sum(read.values()) <= 25 * limit, read


def test_what_is_asked_again_and_again_reads_what_is_asked_for(backlog: Scene) -> None:
    connection = backlog.connection
    ready = [(1 + n * 1024) * 1024 for n in range(1, 11)]
    others = [1024 * n + which for n in range(1, 6) for which in (0, 1, 2)]
    # A few pages for each of these jobs.
    assert_cheap(connection, "jobs_going_on", {"ids": array_text([*ready, *others])}, 2 * FEW_PAGES)
    # All of them became dead letters at one instant: a page in the middle of it.
    (at,) = connection.execute("select max(failed_at) from penstock.dead").fetchone() or (None,)
    assert_cheap(connection, "dead_letters_after", {"at": at, "job_id": 1024 * 25_000, "limit": 50})
    assert_cheap(connection, "dead_letters_after", {"at": at, "job_id": 1024 * 60_000, "limit": 100}, 20)
    assert_cheap(connection, "children_here", {"id": 1024 * 25_000, "limit": 100}, 100)
    assert_cheap(connection, "enqueued_below", {"id": ready[5]}, 100)


def _read_rows(connection: Connection) -> dict[str, int]:
    """How many rows this transaction has read, by table."""
    rows = connection.execute(
        "select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables"
        " where schemaname = 'penstock'"
    )
    return dict(rows.fetchall())


def lease_of(scene: Scene, number: int, size: int) -> Lease:
    return Lease(1, scene.queue.partition_ids[1], 5, number, number, 0, size, None, 1, 0, False, "t", 0.0)


def test_jobs_are_read_by_literal_bounds_from_one_table(backlog: Scene) -> None:
    connection = backlog.connection
    number = 1 + (SINGLES + 3) * 1024
    with connection.transaction():
        assert len(read_jobs(connection, [lease_of(backlog, number, 1000)])) == 1000
        locked = connection.execute(
            "select count(*) from pg_locks as l join pg_class as c on c.oid = l.relation"
            " where l.pid = pg_backend_pid() and c.relkind = 'r' and c.relname like 'job\\_%'"
        ).fetchone()
    assert locked == (1,)
    with connection.transaction():
        assert len(read_jobs(connection, [lease_of(backlog, number, 3)])) == 3
        locked = connection.execute(
            "select count(*) from pg_locks as l join pg_class as c on c.oid = l.relation"
            " where l.pid = pg_backend_pid() and c.relkind = 'r' and c.relname like 'job\\_%'"
        ).fetchone()
    assert locked == (1,)


def test_one_job_is_shown_from_the_tables_that_may_hold_it(backlog: Scene) -> None:
    connection = backlog.connection
    ids = array_text([(1 + 5 * 1024) * 1024, (1 + (SINGLES + 3) * 1024) * 1024 + 17])
    for _ in range(2):
        with connection.transaction(force_rollback=True):
            before = _scanned(connection)
            row = connection.execute(
                sql.SQL("explain (analyze, buffers, format json) " + query("read_jobs_with_state")),
                {"ids": ids},
                prepare=False,
            ).fetchone()
            assert row is not None
            plan = msgspec.json.decode(row[0])[0]["Plan"]
            assert _scanned(connection) == before
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= FEW_PAGES


def test_a_kept_or_missing_job_is_looked_for_in_few_pages_among_200_tables(scene: Scene) -> None:
    """What settles, rescues, promotes and unblocks looks its jobs up in all tables that may hold them, by index."""
    owned = Owned(scene, partitions=1, on_dead="halt")
    connection = scene.connection
    while scene.one("select count(*) from penstock.job_table") < 200:
        connection.execute("select penstock.add_job_table(4096)")
    key = owned.key(0, 1)
    jobs = owned.enqueue([key] * 8)
    held = owned.lease(jobs[:4])
    children = [owned.enqueue([key], parents={0: Parents(jobs[:1], "run")})[0] for _ in range(2)]
    owned.enqueue([key] * 4, run_at=datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=365_000))
    connection.execute("update penstock.scheduled set due_at = now(), epoch = 0")
    with connection.transaction():
        connection.execute("select penstock.keep_jobs(0, 67108864, 10000)")
    token = scene.one("select token from penstock.lease limit 1")
    ends = [
        {"lease": lease, "token": token, "range": job // 1024, "position": job % 1024, "end": "failed", "error": "no"}
        for lease, job in held
    ]
    settle = {"worker": owned.worker, "name": "w", "ends": msgspec.json.encode(ends).decode()}
    # A page or two of each table's index for each look, at most.
    most = 8 * 200 * 3
    assert_cheap(connection, "settle_ended_if_leased", settle, pages=most)
    connection.execute("update penstock.worker set renewed_at = '-infinity'")
    assert_cheap(connection, "rescue", {}, pages=most)
    assert_cheap(connection, "promote", {"limit": 100}, pages=most)
    owned.scene.worker = owned.worker
    owned.end(held[:1], "cancelled")
    assert_cheap(connection, "unblock", {"children": array_text(children), "after": 0, "limit": 2}, pages=most)


def test_hot_keys_are_told_from_as_many_pages_whatever_waits(backlog: Scene) -> None:
    connection, partitions = backlog.connection, find_queue(backlog.connection, "owned").partition_ids
    given = {"partitions": array_text(partitions)}
    assert_cheap(connection, "ready_in_partitions", given)
    ((_, waiting, first, last),) = connection.execute(query("ready_in_partitions"), given).fetchall()
    # Tests before may have taken a few.
    assert OWNED - 100 < waiting <= OWNED
    given |= {"first": first, "last": last}
    assert_cheap(connection, "job_pages", given, 1_000)
    # One page in a hundred; each job that is met is looked up among what is ready.
    for cost in costs(connection, "keys_of_some_ready", {**given, "percent": 1.0}):
        assert all(name.startswith("job_") for name in cost.scanned), cost.scanned
        assert sum(cost.scanned.values()) < OWNED / 4
        assert cost.pages < 20_000
    assert_cheap(connection, "keys_of_ready", {**given, "most": 100}, 1_000)
    keys = [b"k%d" % n for n in range(20)]
    assert_cheap(connection, "keys_at_work", {**given, "queue": backlog.queue.id, "keys": keys, "most": 5_000})


def test_histograms_are_read_by_their_minute(backlog: Scene) -> None:
    connection = backlog.connection
    with connection.transaction(force_rollback=True):
        connection.execute(
            "insert into penstock.minute_histogram (minute, queue_id, waits, runs, is_folded)"
            " select now() - n * interval '1 minute', %s, array[1, 2], array[3], true"
            " from generate_series(1, 1440) as n",
            [backlog.queue.id],
        )
        assert_cheap(connection, "read_histograms", {"queues": array_text([backlog.queue.id]), "minutes": 60}, 100)


def test_blocked_keys_are_read_in_few_pages_however_many_there_are_and_whatever_waits(backlog: Scene) -> None:
    connection = backlog.connection
    queue = find_queue(connection, "owned").id
    connection.execute(
        "insert into penstock.halted (queue_id, key, job_id, epoch) select %s, ('k' || n)::bytea, 1024 * n, 1"
        " from generate_series(1, 20000) as n on conflict do nothing",
        [queue],
    )
    connection.execute("analyze penstock.halted")
    assert_cheap(connection, "halted_keys_of_queue", {"queue": queue, "limit": 20})
    assert_cheap(connection, "held_keys_of_queue", {"queue": queue, "limit": 20})
    assert_cheap(connection, "count_behind", {"queue": queue, "keys": [b"k1", b"k2"], "most": 50})
    assert_cheap(connection, "halted_by", {"queue": "owned", "key": b"k1", "id": 1024})

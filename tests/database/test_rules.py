"""The rules in the catalogue: one column, kept whole by programs of several versions, and not read where it is hot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.database.conftest import Scene
from tests.upgrade.next_rules import NextRules, newer_program

import penstock.storage.schema
from penstock import App, QueueRules, SchemaMismatch
from penstock.admin.doctor import doctor
from penstock.admin.figures import all_stats
from penstock.engine.owner import Owner
from penstock.storage import Connection
from penstock.storage.catalogue.queues import find_queue, set_limits, set_paused
from penstock.storage.repair.deleting import delete_queue
from penstock.storage.work import owner, workers

FUNCTIONS = Path(penstock.storage.schema.__file__).parent / "functions"


def stored(connection: Connection, name: str = "newer") -> Any:
    row = connection.execute("select rules::text from penstock.queue where name = %s", [name]).fetchone()
    return row and row[0]


def declare_newer(scene: Scene, **options: Any) -> None:
    with newer_program():
        scene.declare("newer", **options)


def test_an_option_that_may_be_ignored_survives_an_older_program_that_changes_a_limit(scene: Scene) -> None:
    declare_newer(scene, limit=2, label="x")
    assert find_queue(scene.connection, "newer").rules == QueueRules(limit=2)
    set_limits(scene.connection, "newer", {"limit": 3, "max_wait": 9})
    assert stored(scene.connection) == '{"label": "x", "limit": 3, "max_wait": 9.0, "must_know": ["limit"]}'
    with newer_program():
        assert find_queue(scene.connection, "newer").rules == NextRules(limit=3, max_wait=9.0, label="x")


def test_an_option_that_may_not_be_ignored_is_refused_by_an_older_program_until_it_is_taken_away(scene: Scene) -> None:
    declare_newer(scene, limit=2)
    with newer_program():
        set_limits(scene.connection, "newer", {"burst": 5})
    before = stored(scene.connection)
    assert before == '{"burst": 5, "limit": 2, "must_know": ["burst", "limit"]}'
    for refused in (
        lambda: find_queue(scene.connection, "newer"),
        lambda: set_limits(scene.connection, "newer", {"limit": 3}),
        lambda: set_paused(scene.connection, "newer", is_paused=True),
        lambda: scene.declare("newer", limit=2),
    ):
        with pytest.raises(SchemaMismatch, match=r"queue 'newer' has rules .* must not ignore: burst; .* upgrade this"):
            refused()
    assert stored(scene.connection) == before
    assert [each.queue for each in all_stats(scene.databases)] == ["newer", "q"], "what there is can be seen"
    told = [(check.found, check.advice) for check in doctor(list(scene.databases)) if check.name == "rules of queues"]
    assert told[0][0] == "not known to this program: newer (burst)"
    assert "take these options away with the newer one" in told[0][1]
    with newer_program():
        assert find_queue(scene.connection, "newer").rules == NextRules(limit=2, burst=5)
        set_limits(scene.connection, "newer", {"burst": None})
    set_limits(scene.connection, "newer", {"limit": 3})
    assert stored(scene.connection) == '{"limit": 3, "must_know": ["limit"]}'


def test_an_app_that_declares_the_queue_is_refused_and_one_that_does_not_works(scene: Scene, database_url: str) -> None:
    declare_newer(scene, burst=5)
    with App(database_url) as app:
        task = app.queue("newer").task(name="t")(lambda: None)
        for call in (task.enqueue, lambda: app.work(until_idle=True), lambda: app.limit("newer", limit=1)):
            with pytest.raises(SchemaMismatch, match="burst"):
                call()
    with App(database_url) as app:
        other = app.queue("other").task(name="t")(lambda: None)
        other.enqueue()
        app.work(until_idle=True)
        assert {each.queue: each.total_completed for each in app.queues()} == {"newer": 0, "other": 1, "q": 0}


def test_a_worker_takes_nothing_of_queues_that_are_paused_or_that_it_may_not_work_on(scene: Scene) -> None:
    assert workers.withheld_queues(scene.connection, scene.worker) == {}
    declare_newer(scene, burst=5)
    scene.declare("ignored")
    scene.connection.execute("""update penstock.queue set rules = '{"label": "x"}' where name = 'ignored'""")
    set_paused(scene.connection, "q", is_paused=True)
    with newer_program():
        newer = find_queue(scene.connection, "newer").id
        assert workers.withheld_queues(scene.connection, scene.worker) == {scene.queue.id: None}
    told = workers.withheld_queues(scene.connection, scene.worker)
    assert told[scene.queue.id] is None
    assert str(told[newer]).startswith("queue 'newer' has rules this program does not know")
    gone = scene.declare("gone")
    delete_queue(scene.connection, gone.id)
    assert gone.id not in workers.withheld_queues(scene.connection, scene.worker)
    other = scene.register(queue=gone)
    assert "was made anew" in str(workers.withheld_queues(scene.connection, other)[gone.id])


def test_an_owner_chooses_nothing_from_a_queue_that_it_may_not_work_on(scene: Scene) -> None:
    queue = scene.declare("o", order="key")
    worker = scene.register(queue=queue)
    chooser = Owner({queue.id: frozenset({"t"})})
    chooser.share(scene.connection, worker, 1_000.0)
    (partition,) = chooser._partitions.values()
    assert not partition.is_withheld
    with newer_program():
        set_limits(scene.connection, "o", {"burst": 5})
    assert owner.read_queue_rules(scene.connection, [queue.id])[queue.id][1]
    chooser.share(scene.connection, worker, 2_000.0)
    assert partition.is_withheld


def test_what_sql_goes_by_follows_the_rules(scene: Scene) -> None:
    about_keys: dict[str, Any] = {"per_key": 3, "on_retry": "pass", "on_dead": "halt"}
    totals: dict[str, Any] = {"total_limit": 20, "total_rate": "90/m"}
    queue = scene.declare("ruled", **about_keys, **totals, limit=7, rate="30/m", max_length=9, max_wait=1.5)
    columns = "running_limit, total_limit, rate, total_rate, max_length, max_wait_seconds, per_key"
    columns += ", holds_on_retry, halts_on_dead, is_owned"
    read = f"select {columns} from penstock.queue where id = %s"
    found = scene.connection.execute(read.encode(), [queue.id]).fetchone()
    assert found == (7, 20, 0.5, 1.5, 9, 1.5, 3, False, True, True)
    plain = (None, None, None, None, None, None, None, True, False, False)
    assert scene.connection.execute(read.encode(), [scene.queue.id]).fetchone() == plain
    assert scene.declare("rated", per_key_rate="1/s").is_owned
    assert scene.declare("fair", fair_by="tenant").is_owned


@pytest.mark.parametrize(
    ("rules", "constraint"),
    [
        ("[]", "rules_are_an_object"),
        ('{"must_know": "limit"}', "must_know_is_a_list"),
        ('{"limit": 0}', "limit_is_positive"),
        ('{"total_limit": 0}', "total_limit_is_positive"),
        ('{"rate": -1}', "rate_is_positive"),
        ('{"total_rate": 0}', "total_rate_is_positive"),
        ('{"per_key": 0}', "per_key_is_positive"),
        ('{"per_key_rate": 0}', "per_key_rate_is_positive"),
        ('{"max_length": 0}', "max_length_is_positive"),
        ('{"max_wait": 0}', "max_wait_is_positive"),
        *(
            (f'{{"{name}": "{value}"}}', "numbers_are_numbers")
            for name in ("rate", "total_rate", "per_key_rate", "max_wait")
            for value in ("NaN", "inf", "5")
        ),
        ('{"limit": "5"}', "numbers_are_numbers"),
        ('{"total_limit": "5"}', "numbers_are_numbers"),
        ('{"per_key": "5"}', "numbers_are_numbers"),
        ('{"max_length": "5"}', "numbers_are_numbers"),
        ('{"fair_by": "owner"}', "fair_by_is_known"),
        ('{"on_retry": "stop"}', "on_retry_is_known"),
        ('{"on_dead": "stop"}', "on_dead_is_known"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_the_database_too(scene: Scene, rules: str, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        scene.connection.execute("update penstock.queue set rules = %s::jsonb", [rules])


def test_only_the_catalogue_s_functions_read_the_rules() -> None:
    reading = {
        path.relative_to(FUNCTIONS).as_posix()
        for path in FUNCTIONS.rglob("*.sql")
        if re.search(r"\brules\b", re.sub(r"--.*", "", path.read_text()))
    }
    assert reading == {"90_queues.sql", "92_delete_queue.sql", "shards/17_catalogue.sql"}

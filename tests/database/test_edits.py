"""A dead letter is retried with other arguments, wherever it is stored, and what they were is kept."""

from __future__ import annotations

import msgspec
import pytest
from psycopg import errors
from tests.database.conftest import Scene
from tests.database.test_control import run_beside, wait_until_blocked
from tests.database.test_kept_jobs import keep, stored
from tests.database.test_prune import DAYS, age, pass_tables, run

from penstock.errors import InvalidInput, NotFound
from penstock.storage import Connection
from penstock.storage.inspect.jobs import find_job
from penstock.storage.repair import control
from penstock.storage.upkeep.tables_ahead import make_ahead, rotate_slice

NEW = b'{"n": 7}'


def edit(connection: Connection, id_: int, args: bytes = NEW, *, is_repeated: bool = False) -> str:
    return control.retry_edited(connection, id_, args, "ann@desk", is_repeated=is_repeated)


@pytest.mark.parametrize("table", ["job", "kept"])
def test_a_dead_letter_runs_with_other_arguments_and_what_they_were_is_kept(scene: Scene, table: str) -> None:
    id_, other = scene.dead(2)
    if table == "kept":
        keep(scene)
    assert edit(scene.connection, id_) == "ready"
    assert stored(scene, id_) == [table]
    job = find_job(scene.connection, id_)
    assert (job.state, job.args, len(job.failures)) == ("ready", {"n": 7}, 1)
    (before,) = job.edits
    assert before.args == {"n": 0}
    assert before.edited_by == f"ann@desk as {scene.one('select session_user')}"
    assert job.failures[0].at <= before.at
    held = scene.claim()
    assert [job for _, job in held] == [id_]
    scene.end(held, "failed", error="ValueError: again")
    assert edit(scene.connection, id_, b'{"n": 8}') == "ready"
    assert [each.args for each in find_job(scene.connection, id_).edits] == [{"n": 0}, {"n": 7}]
    assert find_job(scene.connection, other).args == {"n": 1}
    assert find_job(scene.connection, other).edits == []
    scene.assert_conserved()


def test_only_a_dead_letter_can_be_edited(scene: Scene) -> None:
    (ready,) = scene.enqueue()
    with pytest.raises(InvalidInput, match="is ready, and only a dead letter's arguments can be changed"):
        edit(scene.connection, ready)
    held = scene.claim()
    with pytest.raises(InvalidInput, match="is running"):
        edit(scene.connection, ready)
    scene.succeed(held)
    with pytest.raises(InvalidInput, match="is succeeded"):
        edit(scene.connection, ready)
    (purged,) = scene.dead()
    control.bury_dead(scene.connection, [purged])
    with pytest.raises(InvalidInput, match="is failed"):
        edit(scene.connection, purged)
    with pytest.raises(NotFound):
        edit(scene.connection, 99)
    assert scene.one("select count(*) from penstock.edit") == 0


def test_an_edit_that_is_repeated_after_its_answer_was_lost_is_made_once(scene: Scene) -> None:
    (id_,) = scene.dead()
    assert edit(scene.connection, id_) == "ready"
    assert edit(scene.connection, id_, is_repeated=True) == "ready"
    assert scene.one("select count(*) from penstock.edit") == 1
    scene.succeed(scene.claim())
    assert edit(scene.connection, id_, is_repeated=True) == "succeeded"
    with pytest.raises(InvalidInput, match="is succeeded"):
        edit(scene.connection, id_, b'{"n": 8}', is_repeated=True)


def test_arguments_that_are_the_same_are_refused_and_kept_as_others_are(scene: Scene) -> None:
    (ready,) = scene.enqueue()
    with pytest.raises(InvalidInput, match="is ready, and only a dead letter's arguments can be changed"):
        edit(scene.connection, ready, b'{"n":0}')
    scene.succeed(scene.claim())
    with pytest.raises(InvalidInput, match="is succeeded"):
        edit(scene.connection, ready, b'{"n":0}')
    (dead,) = scene.dead()
    assert edit(scene.connection, dead, b'{ "n" : 0 }') == "ready"
    assert find_job(scene.connection, dead).edits == []
    scene.end(scene.claim(), "failed", error="ValueError: again")
    # Another number to whoever reads it, though it is as large.
    assert edit(scene.connection, dead, b'{"n": 0.0}') == "ready"
    assert [each.args for each in find_job(scene.connection, dead).edits] == [{"n": 0}]
    assert scene.one("select penstock.are_same_args(%s, %s)", '{"a": "\\u0000"}', '{"a":"\\u0000"}') is False


def test_of_two_edits_of_one_dead_letter_the_second_is_refused(scene: Scene) -> None:
    (id_,) = scene.dead()
    one, two = scene.connect(), scene.connect()
    refused: list[str] = []

    def second(connection: Connection) -> None:
        with pytest.raises(InvalidInput) as error:
            edit(connection, id_, b'{"n": 8}')
        refused.append(str(error.value))

    with one.transaction():
        edit(one, id_)
        wait = run_beside(second, two)
        wait_until_blocked(scene, two)
    wait()
    assert "is ready" in refused[0]
    assert find_job(scene.connection, id_).args == {"n": 7}
    assert scene.one("select count(*) from penstock.edit") == 1
    scene.assert_conserved()


def test_a_job_whose_table_is_being_let_go_is_edited_where_it_is_kept(scene: Scene) -> None:
    (id_,) = scene.dead()
    one, two = scene.connect(), scene.connect()
    with one.transaction():
        low, high = one.execute("select min(low), min(high) from penstock.job_table").fetchall()[0]
        one.execute("select penstock.keep_jobs(%s, %s, 10000)", (low, high))
        wait = run_beside(lambda connection: edit(connection, id_), two)
        wait_until_blocked(scene, two)
    assert wait() == "ready"
    assert stored(scene, id_) == ["kept"]
    assert find_job(scene.connection, id_).args == {"n": 7}


def test_a_table_is_not_let_go_while_a_job_of_it_is_edited(scene: Scene) -> None:
    (id_,) = scene.dead()
    one = scene.connect()
    with one.transaction():
        edit(one, id_)
        with pytest.raises(errors.LockNotAvailable):
            keep(scene)
    keep(scene)
    assert find_job(scene.connection, id_).args == {"n": 7}
    assert stored(scene, id_) == ["kept"]


def test_edits_are_in_the_history_and_go_with_the_job(scene: Scene) -> None:
    (id_,) = scene.dead(attributes={"created_by": "o"})
    (kept,) = scene.dead()
    for each in (id_, kept):
        edit(scene.connection, each)
    scene.succeed(scene.claim(1))
    ((raw,),) = scene.connection.execute(
        "select attributes from penstock.history_between(%s, %s, null, '{1}', '{}')",
        (id_ // 1024, id_ // 1024 + 1),
    ).fetchall()
    attributes = msgspec.json.decode(raw)
    ((before,), owner) = (attributes["edits"], attributes["created_by"])
    assert (owner, before["args"], before["edited_by"][:8]) == ("o", '{"n":0}', "ann@desk")
    scene.end(scene.claim(1), "failed", error="ValueError: no")
    pass_tables(scene)
    make_ahead(scene.connection)
    rotate_slice(scene.connection)
    age(scene, 10)
    run(scene, DAYS)
    assert [row[0] for row in scene.connection.execute("select job_id from penstock.edit")] == [kept]
    age(scene, 40)
    scene.connection.execute("update penstock.dead set failed_at = now() - interval '1 year'")
    run(scene, DAYS)
    rotate_slice(scene.connection)
    age(scene, 40)
    run(scene, DAYS)
    assert scene.one("select count(*) from penstock.edit") == 0

"""G13: a job that upkeep or a claim cannot move costs itself: it is set aside, or stays and is told; others move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from psycopg import errors, sql
from tests.database.conftest import Scene

from penstock import App
from penstock.admin.doctor import doctor
from penstock.admin.explain import explain
from penstock.errors import NotFound, PenstockError
from penstock.storage import Connection
from penstock.storage.connection.database import Database
from penstock.storage.inspect.health import troubles
from penstock.storage.repair import control
from penstock.storage.upkeep import sweep
from penstock.storage.work.set_aside import set_aside
from penstock.upkeep.cron import fire_crons
from penstock.worker import reporting

LATER = datetime.now(UTC) + timedelta(days=1)


def refuse(connection: Connection, table: str, job: int, but: str = "false") -> None:
    """Let a table take no row with this job in it."""
    positions = sql.SQL("positions" if table == "finished" else "penstock.positions(low, high, members)")
    connection.execute(
        sql.SQL("alter table {} add constraint damaged check ({} or range <> {} or not {} = any ({}))").format(
            sql.Identifier("penstock", table),
            sql.SQL(but),
            sql.Literal(job // 1024),
            sql.Literal(job % 1024),
            positions,
        )
    )


def aside(scene: Scene) -> dict[int, str]:
    rows = scene.connection.execute("select range * 1024 + low, reason from penstock.ready where reason is not null")
    return {job: reason.partition(":")[0] for job, reason in rows}


def state(scene: Scene) -> dict[int, str]:
    return {job: place for job, (place,) in scene.places().items()}


def told(scene: Scene) -> dict[str, str]:
    return {each.duty: each.error for each in troubles(scene.connection)}


@pytest.mark.parametrize("can_be_set_aside", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 40, 1)])
def test_what_is_due_is_promoted_but_for_the_one_that_is_refused(
    scene: Scene, sizes: tuple[int, ...], can_be_set_aside: bool
) -> None:
    ids = [job for size in sizes for job in scene.enqueue(size, run_at=LATER)]
    bad = ids[3]
    refuse(scene.connection, "ready", bad, "is_parked" if can_be_set_aside else "false")
    scene.connection.execute("update penstock.scheduled set due_at = now()")
    assert sweep.promote(scene.connection) == len(ids) - (not can_be_set_aside)
    assert state(scene) == dict.fromkeys(ids, "ready") | {bad: "ready" if can_be_set_aside else "scheduled"}
    assert [job for _, job in scene.claim(100)] == [job for job in ids if job != bad]
    scene.assert_conserved()
    if can_be_set_aside:
        assert aside(scene) == {bad: "it is due and cannot be made ready"}
        assert told(scene) == {}
        return
    assert told(scene)["promote"].startswith(f"job {bad} stays where it is")
    assert sweep.promote(scene.connection) == 0
    assert f"upkeep's promote fails: job {bad} stays" in explain(scene.databases, bad).reason
    scene.connection.execute("alter table penstock.ready drop constraint damaged")
    assert sweep.promote(scene.connection) == 1
    scene.assert_conserved()


@pytest.mark.parametrize("can_be_set_aside", [True, False])
@pytest.mark.parametrize("is_told", [True, False])
def test_children_are_let_go_but_for_the_one_that_is_refused(
    scene: Scene, is_told: bool, can_be_set_aside: bool
) -> None:
    (parent,) = scene.enqueue()
    children = [scene.enqueue(after=[parent])[0] for _ in range(9)]
    bad = children[4]
    refuse(scene.connection, "ready", bad, "is_parked" if can_be_set_aside else "false")
    scene.succeed(scene.claim())
    freed = sweep.unblock(scene.connection, children) if is_told else sweep.unblock_all(scene.connection)
    assert freed == 9 - (not can_be_set_aside)
    assert [job for _, job in scene.claim(100)] == [job for job in children if job != bad]
    scene.assert_conserved()
    if can_be_set_aside:
        assert aside(scene) == {bad: "its parents have ended and it cannot be let go"}
        assert scene.one("select count(*) from penstock.dependency") == 0
        scene.connection.execute("alter table penstock.ready drop constraint damaged")
        assert scene.one("select penstock.let_back(%s)", bad) == "ready"
        assert [job for _, job in scene.claim()] == [bad]
        return
    assert told(scene)["unblock"].startswith(f"job {bad} stays where it is")
    assert f"upkeep's unblock fails: job {bad} stays" in explain(scene.databases, bad).reason
    scene.connection.execute("alter table penstock.ready drop constraint damaged")
    assert sweep.unblock_all(scene.connection) == 1
    scene.assert_conserved()


def damage(message: str) -> str:
    return f"raise exception using errcode = 'XX001', message = '{message}';"


def test_a_child_whose_parents_end_cannot_be_read_stays_blocked_and_is_told(scene: Scene) -> None:
    """Set aside, it could be let back in before its parents have ended."""
    parents = scene.enqueue(9)
    children = [scene.enqueue(after=[parent])[0] for parent in parents]
    scene.succeed(scene.claim(9))
    whole = scene.one("select pg_get_functiondef('penstock.outcome_of(bigint)'::regprocedure)")
    scene.connection.execute(
        (
            "create or replace function penstock.outcome_of(p_job bigint) returns int language plpgsql as $$ begin"
            f" if p_job = {parents[4]} then {damage('missing chunk number 0')} end if; return 0; end $$"
        ).encode()
    )
    assert sweep.unblock_all(scene.connection) == 8
    assert [job for _, job in scene.claim(100)] == [job for job in children if job != children[4]]
    assert aside(scene) == {}
    assert told(scene)["unblock"].startswith(f"job {children[4]} stays where it is")
    scene.connection.execute(whole.encode())
    assert sweep.unblock_all(scene.connection) == 1
    scene.assert_conserved()


def test_damaged_data_is_met_as_a_refusal_is(scene: Scene) -> None:
    (parent,) = scene.enqueue()
    children = [scene.enqueue(after=[parent])[0] for _ in range(4)]
    later = scene.enqueue(4, run_at=LATER)
    scene.succeed(scene.claim())
    scene.connection.execute("update penstock.scheduled set due_at = now()")
    bad = (children[1], later[1])
    met = " or ".join(
        f"(new.range = {job // 1024} and penstock.has_member(new.low, new.high, new.members, {job % 1024}))"
        for job in bad
    )
    scene.connection.execute(
        (
            "create function penstock.meet() returns trigger language plpgsql as $$ begin"
            f" if not new.is_parked and ({met}) then {damage('invalid page in block 7')} end if; return new; end $$;"
            "create trigger meet before insert on penstock.ready for each row execute function penstock.meet()"
        ).encode()
    )
    assert sweep.promote(scene.connection) == 4
    assert sweep.unblock_all(scene.connection) == 4
    assert sorted(aside(scene)) == sorted(bad)
    assert [job for _, job in scene.claim(100)] == sorted({*children, *later}.difference(bad))
    scene.assert_conserved()


def test_children_are_cancelled_but_for_the_one_whose_history_is_refused(scene: Scene) -> None:
    (parent,) = scene.dead()
    control.bury_dead(scene.connection, [parent])
    children = [scene.enqueue(after=[parent])[0] for _ in range(9)]
    bad = children[4]
    (grandchild,) = scene.enqueue(after=[bad])
    refuse(scene.connection, "finished", bad)
    assert sweep.unblock_all(scene.connection) == 9
    assert aside(scene) == {bad: "a parent did not succeed and it cannot be cancelled"}
    found = state(scene)
    assert [found[job] for job in children if job != bad] == ["cancelled"] * 8
    assert found[grandchild] == "blocked", "it waits for what becomes of the one that was set aside"
    scene.assert_conserved()


@pytest.mark.parametrize("can_be_set_aside", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 40, 1)])
def test_a_claim_goes_on_past_an_overdue_job_whose_end_is_refused(
    scene: Scene, sizes: tuple[int, ...], can_be_set_aside: bool
) -> None:
    ids = [job for size in sizes for job in scene.enqueue(size)]
    bad = ids[3]
    scene.connection.execute("update penstock.ready set ready_at = now() - interval '1 hour'")
    scene.connection.execute("update penstock.queue set rules = '{\"max_wait\": 60}'")
    good = scene.enqueue(3)
    refuse(scene.connection, "finished", bad)
    if not can_be_set_aside:
        refuse(scene.connection, "ready", bad, "not is_parked")
    assert [job for _, job in scene.claim()] == (good if can_be_set_aside else [bad, *good])
    overdue = {job: place for job, place in state(scene).items() if job in ids and job != bad}
    assert overdue == dict.fromkeys(overdue, "expired")
    assert len(overdue) == len(ids) - 1
    assert aside(scene) == ({bad: "its end (expired) cannot be written"} if can_be_set_aside else {})
    assert list(told(scene)) == ([] if can_be_set_aside else ["expire"])
    scene.assert_conserved()


def test_a_claim_that_finds_nothing_overdue_enters_no_block_that_catches(scene: Scene) -> None:
    scene.connection.execute("update penstock.queue set rules = '{\"max_wait\": 60}'")
    ids = scene.enqueue(3)
    scene.connection.execute(
        "create or replace function penstock.expire_some(p_partition int, p_rows tid[]) returns int"
        " language plpgsql as $$ begin raise exception 'entered'; end $$"
    )
    assert [job for _, job in scene.claim()] == ids


def test_children_that_cannot_be_looked_at_are_left_to_upkeep(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    looked: list[int] = []

    def damaged(_: Connection, children: list[int]) -> tuple[int, list[int]]:
        looked.extend(children)
        raise errors.DataCorrupted("missing chunk number 0")

    monkeypatch.setattr(reporting, "unblock_next", damaged)
    with App(database_url) as app:

        @app.queue("q").task
        def t(n: int) -> None:
            ran.append(n)

        child = t.options(after=[t.enqueue(n=1)]).enqueue(n=2)
        app.work(until_idle=True)
        assert app.job(child).state == "succeeded"
    assert ran == [1, 2]
    assert looked == [child]


def test_a_cron_whose_job_is_refused_keeps_no_other_from_firing(database: Database) -> None:
    with App(database.url) as app, database.connect() as connection:
        queue = app.queue("q")
        tasks = {name: queue.task(name=name)(lambda: None) for name in ("good", "bad")}
        for number in range(5):
            app.cron(f"entry-{number}", "0 3 * * *", tasks["bad" if number == 2 else "good"])
        app.crons()
        connection.execute("update penstock.cron set next_at = now() - interval '3 days'")
        connection.execute("alter table penstock.job add constraint damaged check (task <> 'bad')")
        with pytest.raises(PenstockError, match=r"cron 'entry-2' cannot fire: .*damaged"):
            fire_crons(connection)
        fired = "select array_agg(attributes->>'cron' order by 1) from penstock.job"
        assert connection.execute(fired).fetchone() == ([f"entry-{number}" for number in (0, 1, 3, 4)],)
        due = "select array_agg(name) from penstock.cron where next_at <= now()"
        assert connection.execute(due).fetchone() == (["entry-2"],)
        connection.execute("alter table penstock.job drop constraint damaged")
        assert fire_crons(connection) == 1


def test_explain_names_the_rescue_that_fails_while_a_worker_is_gone(scene: Scene) -> None:
    scene.enqueue()
    ((_, job),) = scene.claim()
    sweep.note_trouble(scene.connection, "rescue", "no room on the disk", 60.0)
    assert "rescue" not in explain(scene.databases, job).reason
    scene.connection.execute("update penstock.worker set renewed_at = '-infinity'")
    reason = explain(scene.databases, job).reason
    assert "; no worker is alive: start one; upkeep's rescue fails: no room on the disk" in reason
    scene.connection.execute("delete from penstock.worker")
    assert explain(scene.databases, job).reason.endswith("upkeep's rescue fails: no room on the disk")


def test_the_doctor_names_all_that_are_set_aside_up_to_a_hundred(scene: Scene) -> None:
    ids = scene.enqueue(120)
    set_aside(scene.connection, dict.fromkeys(ids[:3], "damaged"))

    def found() -> str:
        return next(each.found for each in doctor([scene.database]) if each.name == "jobs set aside")

    assert found() == f"3 jobs: {', '.join(map(str, ids[:3]))}; the first: damaged"
    set_aside(scene.connection, dict.fromkeys(ids[3:], "damaged"))
    assert found() == f"120 jobs: {', '.join(map(str, ids[:100]))}, ...; the first: damaged"


def test_a_job_that_is_set_aside_and_has_no_row_is_not_said_never_to_have_been(database_url: str) -> None:
    with App(database_url) as app:

        @app.queue("q").task
        def t(n: int) -> None: ...

        job = t.enqueue(n=1)
        with app.databases.lead.connect() as connection:
            connection.execute("delete from penstock.job where id = %s", [job])
            set_aside(connection, {job: "it is in no table of jobs"})
        for ask in (app.job, lambda id_: app.result(id_, timeout=5)):
            with pytest.raises(NotFound, match=rf"job {job} is set aside: it is in no table of jobs; .*explain"):
                ask(job)
        with pytest.raises(NotFound, match="it never was"):
            app.job(job + 1)

"""Behind a transaction pooler: receipts of calls, and numbers of turns; and who says that there is a pooler."""

from __future__ import annotations

import psycopg
import pytest
from tests.database.conftest import Scene

from penstock import App
from penstock.errors import InvalidInput
from penstock.storage import Database
from penstock.storage.connection.queries import query
from penstock.storage.connection.sessions import stop_turns
from penstock.storage.upkeep.sweep import forget_receipts
from penstock.storage.work.exchange import exchange

NOTED = {"token": 5, "kept_seconds": 60.0, "first_id": 1024}
SOUGHT = {"token": 5, "kept_seconds": 60.0}


def test_a_call_that_was_looked_for_before_it_came_is_refused_however_often_it_was_looked_for(scene: Scene) -> None:
    for _ in range(2):
        assert scene.connection.execute(query("find_or_void_receipt"), SOUGHT).fetchone() == (None,)
    with pytest.raises(psycopg.errors.UniqueViolation):
        scene.connection.execute(query("note_written"), NOTED)


def test_a_call_that_was_written_is_found_by_its_receipt(scene: Scene) -> None:
    scene.connection.execute(query("note_written"), NOTED)
    for _ in range(2):
        assert scene.connection.execute(query("find_or_void_receipt"), SOUGHT).fetchone() == (1024,)


def test_nothing_is_concluded_while_a_call_is_being_written(scene: Scene) -> None:
    writer = scene.connect()
    with writer.transaction():
        writer.execute(query("note_written"), NOTED)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            scene.connection.execute(query("find_or_void_receipt"), SOUGHT)
    assert scene.connection.execute(query("find_or_void_receipt"), SOUGHT).fetchone() == (1024,)


def test_a_turn_with_an_old_number_claims_nothing(scene: Scene) -> None:
    old = stop_turns(scene.connection, scene.database, scene.worker, None, has_numbers=True)
    new = stop_turns(scene.connection, scene.database, scene.worker, None, has_numbers=True)
    exchange(scene.connection, scene.worker, "w", [], [], None, number=new)
    with pytest.raises(psycopg.errors.SerializationFailure, match="was given up"):
        exchange(scene.connection, scene.worker, "w", [], [], None, number=old)


def test_old_receipts_and_the_turns_of_workers_that_are_gone_are_forgotten(scene: Scene) -> None:
    scene.connection.execute(query("note_written"), NOTED)
    scene.connection.execute(query("note_written"), {"token": 6, "kept_seconds": -1.0, "first_id": 2048})
    stop_turns(scene.connection, scene.database, scene.worker, None, has_numbers=True)
    stop_turns(scene.connection, scene.database, 999, None, has_numbers=True)
    assert forget_receipts(scene.connection) == 2
    assert scene.one("select token from penstock.receipt") == 5
    assert scene.one("select worker_id from penstock.turn") == scene.worker


@pytest.mark.parametrize(("said", "is_pooled"), [(None, False), (True, True), (False, False)])
def test_who_uses_a_pooler_can_say_so(database_url: str, said: bool | None, is_pooled: bool) -> None:
    database = Database(database_url, is_pooled=said)
    try:
        database.run(lambda connection: connection.execute("select"))
        assert database.is_pooled is is_pooled
    finally:
        database.close()


def test_the_environment_says_it_for_those_who_do_not(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_POOLED", "1")
    assert Database(database_url).is_pooled is True
    assert Database(database_url, is_pooled=False).is_pooled is False
    monkeypatch.setenv("PENSTOCK_POOLED", "perhaps")
    with pytest.raises(InvalidInput, match="PENSTOCK_POOLED"):
        Database(database_url)


def test_an_app_takes_nothing_but_yes_and_no_for_a_pooler(database_url: str) -> None:
    with pytest.raises(InvalidInput, match="pooled"):
        App(database_url, pooled="yes")  # type: ignore[arg-type]

"""What an error of PostgreSQL means is decided once, by its SQLSTATE."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from penstock.storage.connection.error_meaning import ConnectionCut, DatabaseDown, LockHeld, is_lost, may_repeat
from penstock.storage.connection.flow import SessionEnded
from penstock.storage.connection.sqlstate import DECISIONS, Decision, decide

EXPECTED: dict[Decision, str] = {
    "lost": "08000 08001 08003 08004 08006 08007 25006 25P03 25P04 26000 40003 42P05 53000 53100 53200 53300 57000"
    " 57P01 57P02 57P03 57P04 57P05 58000 58030 58P01",
    "repeat": "40001 40P01 40000 55006 55P03 57014 72000 XX000",
    "stop": "3F000 42501 42703 42883 42P01 XX001 XX002",
    "refuse": "03000 08P01 0A000 21000 22001 22P02 23505 24000 25001 25P02 28000 28P01 2BP01 34000 38000 40002 42601"
    " 42P07 44000 53400 54001 55000 F0000 HV000 P0001 PS001 PS007",
}


@pytest.mark.parametrize("decision", EXPECTED)
def test_each_code_has_one_decision(decision: Decision) -> None:
    for code in EXPECTED[decision].split():
        assert decide(code) == decision, code


def test_every_code_the_driver_knows_is_decided_and_only_outages_are_lost() -> None:
    codes = {each.sqlstate for each in vars(errors).values() if isinstance(getattr(each, "sqlstate", None), str)}
    assert len(codes) > 200
    lost = {code for code in codes if decide(code) == "lost"}
    assert {code[:2] for code in lost} == {"08", "25", "26", "40", "42", "53", "57", "58"}
    assert set(DECISIONS.values()) == {"lost", "repeat", "stop", "refuse"}


def test_an_error_without_a_code_is_a_broken_connection() -> None:
    for error in (psycopg.OperationalError("server closed"), psycopg.InterfaceError(), DatabaseDown(), ConnectionCut()):
        assert is_lost(error)
    assert is_lost(SessionEnded(errors.RaiseException("a FATAL of any code")))
    assert not is_lost(ValueError("not of the database"))


def test_our_own_queue_full_and_a_protocol_violation_are_no_outages() -> None:
    assert not may_repeat(errors.ConfigurationLimitExceeded("QueueFull: queue 'q' is full"))
    assert not may_repeat(errors.ProtocolViolation("bind message supplies 1 parameters"))
    assert not is_lost(LockHeld())
    assert not is_lost(errors.QueryCanceled())
    assert may_repeat(errors.QueryCanceled())
    assert is_lost(errors.TransactionTimeout())
    assert is_lost(errors.IdleInTransactionSessionTimeout())

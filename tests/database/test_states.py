"""States move on by the steps of penstock.model.catalogue_states and by no others: the tables hold themselves to them,
and the functions that make them are those named there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors, sql

from penstock.model.catalogue_states import COPIES, STATES, STEPS
from penstock.storage import Connection
from penstock.storage.connection.queries import QUERIES
from penstock.storage.schema import OURS

FUNCTION = re.compile(r"create or replace function @schema@\.(\w+)\(.*?(?=^create or replace function|\Z)", re.S | re.M)
INSERT = re.compile(r"\binsert into @schema@\.(\w+)")
UPDATE = re.compile(
    r"\bupdate @schema@\.(\w+)(?: as \w+)?\s+set\s+(.*?)(?:\bwhere\b|\bfrom\b|\breturning\b|;|\Z)", re.S
)
# What goes with a partition's state.
NUMBERS = {"unused": (None, None), "current": (None, None), "left": (7, None), "shut": (7, 1)}
INSERTS: dict[str, LiteralString] = {
    "shard": "insert into penstock.shard (number, identity, address, state)"
    " values (2, gen_random_uuid(), 'b', %(state)s)",
    "queue_map": "insert into penstock.queue_map (queue_id, epoch, partition_ids, state)"
    " values (1, 3, '{1}', %(state)s)",
    "map_here": "insert into penstock.map_here (queue_id, epoch, state) values (1, 2, %(state)s)",
    "partition": "insert into penstock.partition (id, queue_id, number, name, state)"
    " values (2, 1, 1, 'q__p1', %(state)s)",
}
PAIRS = [(table, *pair) for table, states in STATES.items() for pair in product(states, repeat=2)]


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url) as connection:
        yield connection


def writers(text: str) -> set[str]:
    """The tables with states to which these statements write one."""
    updated = {table for table, change in UPDATE.findall(text) if re.search(r"\bstate =", change)}
    return {*INSERT.findall(text), *updated} & set(STATES)


def make_rows(connection: Connection) -> None:
    connection.execute("select set_config('penstock.copies', 'on', true)")
    connection.execute("insert into penstock.queue (id, name) values (1, 'q')")
    connection.execute(
        "insert into penstock.queue_map (queue_id, epoch, partition_ids, state)"
        " values (1, 1, '{1}', 'open'), (1, 2, '{1}', 'open')"
    )
    connection.execute("insert into penstock.map_here (queue_id, epoch) values (1, 1)")
    connection.execute("insert into penstock.partition (id, queue_id, number, name) values (1, 1, 0, 'q')")
    connection.execute("insert into penstock.shard (number, identity, address) values (1, gen_random_uuid(), 'a')")


def set_state(connection: Connection, table: str, state: str, *, is_copy: bool) -> None:
    connection.execute("select set_config('penstock.copies', %s, true)", ["on" if is_copy else "off"])
    numbers: sql.Composable = sql.SQL("")
    if table == "partition":
        numbers = sql.SQL(", left_at = {}, shut_by = {}").format(*map(sql.Literal, NUMBERS[state]))
    statement = sql.SQL("update penstock.{} set state = {}{}").format(
        sql.Identifier(table), sql.Literal(state), numbers
    )
    connection.execute(statement)


def test_each_table_knows_the_states_of_its_scope(connection: Connection) -> None:
    rows = connection.execute(
        "select conrelid::regclass::text, pg_get_constraintdef(oid) from pg_constraint"
        " where conname like '%state_is_known'"
    ).fetchall()
    known = {table.removeprefix("penstock."): tuple(re.findall(r"'(\w+)'", check)) for table, check in rows}
    assert known == STATES


def test_each_table_holds_itself_to_the_steps_of_its_scope(connection: Connection) -> None:
    rows = connection.execute(
        "select t.tgrelid::regclass::text, t.tgargs from pg_trigger as t join pg_proc as f on f.oid = t.tgfoid"
        " where f.proname = 'check_step'"
    ).fetchall()
    held = {table.removeprefix("penstock."): set(args.decode().split("\0")[:-1]) for table, args in rows}
    assert held == {table: {f"{step.before or ''}>{step.after}" for step in steps} for table, steps in STEPS.items()}


def test_only_the_functions_that_a_step_names_write_a_state() -> None:
    found = defaultdict(set)
    for match in FUNCTION.finditer(OURS.function_text):
        for table in writers(match[0]):
            found[table].add(match[1])
    assert found == {table: {COPIES, *(step.by for step in steps)} for table, steps in STEPS.items()}
    assert [name for name, text in QUERIES.items() if writers(text.replace("penstock.", "@schema@."))] == []


def test_every_legal_step_is_made_and_every_other_is_refused(connection: Connection) -> None:
    make_rows(connection)
    for table, before, after in PAIRS:
        is_legal = before == after or any((step.before, step.after) == (before, after) for step in STEPS[table])
        with connection.transaction(force_rollback=True):
            set_state(connection, table, before, is_copy=True)
            if is_legal:
                set_state(connection, table, after, is_copy=False)
                continue
            with pytest.raises(errors.CheckViolation, match=f"{table}: no state moves on by the step {before}>{after}"):
                set_state(connection, table, after, is_copy=False)


def test_a_row_begins_only_in_a_state_that_a_step_from_nothing_leads_to(connection: Connection) -> None:
    make_rows(connection)
    for table, state in [(table, state) for table, states in STATES.items() for state in states]:
        with connection.transaction(force_rollback=True):
            connection.execute("select set_config('penstock.copies', 'off', true)")
            if any((step.before, step.after) == (None, state) for step in STEPS[table]):
                connection.execute(INSERTS[table], {"state": state})
                continue
            with pytest.raises(errors.CheckViolation, match=f"by the step >{state}"):
                connection.execute(INSERTS[table], {"state": state})

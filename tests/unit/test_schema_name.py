"""The name of a schema travels in the URL."""

from __future__ import annotations

import pytest

from penstock import App, InvalidInput
from penstock.storage.connection.addresses import at_address, plain_address
from penstock.storage.connection.schema_name import SCHEMA, checked_schema, split_schema, with_schema
from penstock.storage.connection.urls import checked_url, plain_url


@pytest.mark.parametrize(
    ("url", "conninfo", "schema"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u:p@h:1/d", SCHEMA),
        ("postgresql://h/d?schema=staging", "postgresql://h/d", "staging"),
        ("postgresql://h/d?schema=staging&sslmode=disable", "postgresql://h/d?sslmode=disable", "staging"),
        ("postgresql://h/d?sslmode=disable&schema=staging", "postgresql://h/d?sslmode=disable", "staging"),
        ("postgresql://h/d?a=1&schema=staging&b=2", "postgresql://h/d?a=1&b=2", "staging"),
        ("host=h dbname=d schema=staging", "host=h dbname=d", "staging"),
        ("schema=staging host=h", "host=h", "staging"),
        ("host=h dbname=schema", "host=h dbname=schema", SCHEMA),
    ],
)
def test_the_driver_s_part_and_the_schema_are_told_apart(url: str, conninfo: str, schema: str) -> None:
    assert split_schema(url) == (conninfo, schema)
    assert split_schema(with_schema(url, "other")) == (conninfo, "other")
    assert with_schema(url, SCHEMA) == conninfo


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u:p@h:1/d"),
        ("postgresql://u:p@h:1/d?require_auth=scram-sha-256", "postgresql://u:p@h:1/d"),
        ("postgresql://h/d?require_auth=scram-sha-256&schema=staging", "postgresql://h/d"),
        ("postgresql://h/d?sslmode=require&schema=staging&port=1", "postgresql://h/d?sslmode=require&port=1"),
        ("host=h dbname=d password='p & q' schema=staging", "postgresql://?password=p%20%26%20q&dbname=d&host=h"),
    ],
)
def test_other_drivers_are_given_nothing_that_only_penstock_or_libpq_knows(url: str, plain: str) -> None:
    assert plain_url(url) == plain
    assert App(url).plain_url == plain


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "it is empty"),
        ("Staging", "holds 'S', and only lower-case letters, digits and _"),
        ("2nd", "begins with a digit; the first is a lower-case letter or _"),
        ("a b", "holds ' '"),
        ('a"b', "holds '\"'"),
        ("ä", "holds .*xe4"),
        ("pg_x", "begins with pg_, which PostgreSQL keeps"),
        ("public", "a schema that others use too"),
        ("information_schema", "a schema that others use too"),
        ("x" * 41, "41 characters is too long, 40 is the most"),
        ("select", "a word of SQL"),
        ("json_table", "a word of SQL"),
        (None, "text is needed, not NoneType"),
        (3, "text is needed, not int"),
    ],
)
def test_a_name_that_would_need_quotes_or_is_somebody_else_s_is_refused(name: object, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rf"schema: .*{rule}.*; give a name such as staging"):
        checked_schema(name)
    with pytest.raises(InvalidInput, match="schema: "):
        App("postgresql://h/d", schema=name)  # type: ignore[arg-type]


def test_a_url_is_checked_with_the_schema_it_names() -> None:
    assert checked_url("postgresql://h/d?schema=staging") == "postgresql://h/d?schema=staging"
    with pytest.raises(InvalidInput, match="schema: "):
        checked_url("postgresql://h/d?schema=Staging")
    with pytest.raises(InvalidInput, match="the URL names 'one', and schema= 'two'"):
        App("postgresql://h/d?schema=one", schema="two")


def test_a_shard_that_is_found_later_is_in_the_same_schema() -> None:
    given = "postgresql://u:p@h:1/d?schema=staging"
    found = at_address(plain_address("postgresql://other:2/e"), given)
    conninfo, schema = split_schema(found)
    assert schema == "staging"
    assert "host=other" in conninfo
    assert "schema" not in plain_address(given)

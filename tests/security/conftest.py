"""A database as it stands in production: an owner who is no superuser, and a role of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from tests.servers import created_database

from penstock import App, admin
from penstock.storage import Connection

KINDS = ("worker", "producer", "reader")
ROLES = ("owner", *KINDS, "stranger")
TEMPLATE = "penstock_roles"
_PASSWORD = "said-among-tests"


@dataclass(frozen=True)
class Realm:
    """One database; a role bears the name of its kind, `owner`, or `stranger`, who was granted nothing."""

    server_url: str
    name: str

    def url(self, role: str | None = None) -> str:
        parts = urlsplit(self.server_url)
        _, _, host = parts.netloc.rpartition("@")
        netloc = parts.netloc if role is None else f"{role}:{_PASSWORD}@{host}"
        return parts._replace(netloc=netloc, path=f"/{self.name}").geturl()

    def connect(self, role: str) -> Connection:
        return psycopg.connect(self.url(role), autocommit=True)


@pytest.fixture(scope="session")
def roles_template(server_url: str) -> str:
    """The name of a database that `owner` has migrated, and granted to the others; to be copied."""
    made = Realm(server_url, TEMPLATE)
    with psycopg.connect(server_url, autocommit=True) as connection:
        for role in ROLES:
            create = sql.SQL("create role {} login password {}")
            connection.execute(create.format(sql.Identifier(role), sql.Literal(_PASSWORD)))
        connection.execute(sql.SQL("create database {} owner owner").format(sql.Identifier(TEMPLATE)))
    with App(made.url("owner")) as app:
        app.migrate()
        for kind in KINDS:
            admin.grant(app.database, kind, kind)
    return TEMPLATE


@pytest.fixture
def realm(server_url: str, roles_template: str) -> Iterator[Realm]:
    """A copy of it, gone after the test."""
    with created_database(server_url, roles_template, "owner") as url:
        yield Realm(server_url, url.rpartition("/")[2])

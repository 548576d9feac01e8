"""Commands about access tokens: make one, list them, revoke one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.app_target import open_answering_app, unavailable
from penstock.cli.help_page import Command, Group
from penstock.cli.shared_options import AsJson, Url
from penstock.cli.terminal import Column, say, show_json, show_table, warn
from penstock.cli.times import ago, parse_wait
from penstock.clock import system
from penstock.model import Token

__all__ = ["tokens"]

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")]

tokens = typer.Typer(
    name="token",
    cls=Group,
    help="Make, list and revoke tokens: programs come in over HTTP by them.",
)


@tokens.command(cls=Command)
def create(
    name: TokenName,
    role: Annotated[str, typer.Option("--role", help="What its bearer may do: read, produce, work; admin is all.")],
    queues: Annotated[list[str] | None, typer.Option("--queue", help="Only this queue; may be repeated.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's jobs: to read or produce.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WAIT", help="Good for so long: 12h, 30d; else until revoked.")
    ] = None,
    hide_args: Annotated[
        bool, typer.Option("--hide-args", help="Its bearer sees no arguments or results of jobs.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it: nobody can be told it again."""
    seconds = None if expires is None else parse_wait("expires", expires)
    with open_answering_app(url) as app:
        # Asked first: nothing may go wrong between a token and its being told.
        known = app.queue_names() if queues else []
        secret = app.create_token(
            name,
            role=role,  # type: ignore[arg-type]  # Checked there, by name.
            queues=queues or None,
            tenant=tenant,
            expires=seconds,
            hides_args=hide_args,
        )
    for queue in dict.fromkeys(queues or ()):
        if queue not in known:
            warn(f"there is no queue {queue!r}: if that is no slip of the pen, the token is good there once it is made")
    if as_json:
        show_json({"token": secret, "name": name, "role": role})
        return
    say(f"token {name!r} with the role {role}; keep it now, for it is not shown again:")
    say(secret)


@tokens.command("list", cls=Command)
def list_tokens(url: Url = None, as_json: AsJson = False) -> None:
    """List the tokens, newest first; expired and revoked ones too."""
    with open_answering_app(url) as app:
        found = app.tokens()
        missing = unavailable(app)
    if as_json:
        show_json({"tokens": [asdict(each) for each in found], "unavailable": missing})
        return
    if not found:
        say("there is no token: penstock token create NAME --role ROLE makes one")
        return
    columns = [
        Column("name", is_cut=True),
        Column("role"),
        Column("queues", is_cut=True),
        Column("tenant", is_cut=True),
        Column("made", is_spared=True),
        Column("by", is_cut=True, is_spared=True),
        Column("state"),
    ]
    show_table(columns, [_row(each) for each in found])


@tokens.command(cls=Command)
def revoke(name: TokenName, url: Url = None, as_json: AsJson = False) -> None:
    """Let nobody in any more by a token, within a second."""
    with open_answering_app(url) as app:
        app.revoke_token(name)
    if as_json:
        show_json({"name": name, "revoked": True})
    else:
        say(f"token {name!r} is revoked")


def _row(token: Token) -> list[object]:
    queues = "all" if token.queues is None else ", ".join(token.queues)
    role = f"{token.role}, no arguments" if token.hides_args else token.role.value
    return [token.name, role, queues, token.tenant, ago(token.created_at), token.created_by, _state(token)]


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return f"revoked {ago(token.revoked_at)}"
    if token.expires_at is None:
        return "good"
    return f"{'expired' if token.expires_at <= system.now() else 'expires'} {ago(token.expires_at)}"

"""An example of each command, as its help and the reference show it. A test reads each as the command line would."""

from __future__ import annotations

from typing import Any

import typer

__all__ = ["EXAMPLES", "add_examples"]

EXAMPLES = {
    "up": "penstock up tasks:app --concurrency 8",
    "work": "penstock work tasks:app --queue mail=4 --queue reports",
    "serve": "penstock serve tasks:app --host 0.0.0.0 --port 8080",
    "enqueue": "penstock enqueue tasks:app send to=ada@example.org",
    "top": "penstock top --sort waiting --every 1",
    "watch": "penstock watch november --timeout 15m",
    "stats": "penstock stats orders",
    "jobs": "penstock jobs --queue orders --state failed --limit 50",
    "job": "penstock job 40895488",
    "explain": "penstock explain 40895488",
    "workers": "penstock workers --json",
    "causes": "penstock causes --queue orders",
    "blocked-keys": "penstock blocked-keys orders",
    "audit": "penstock audit --act retry",
    "load": "penstock load orders.parquet --queue orders --task book --key customer_id --name november",
    "loads": "penstock loads --limit 5",
    "pause-load": "penstock pause-load november",
    "resume-load": "penstock resume-load november",
    "cancel-load": "penstock cancel-load november --reason 'wrong file'",
    "report": "penstock report lake/ --out report.html",
    "advise": "penstock advise orders",
    "archive": "penstock archive lake/",
    "replay": "penstock replay lake/ --where \"outcome = 'failed'\" --load again",
    "cancel": "penstock cancel --queue orders --key c-42 --preview",
    "retry": "penstock retry --queue orders --state failed --preview",
    "reschedule": "penstock reschedule 40895488 15m",
    "pause": "penstock pause orders",
    "resume": "penstock resume orders",
    "purge": "penstock purge orders --state scheduled --preview",
    "limit": "penstock limit orders --limit 5 --rate 100/s",
    "release": "penstock release orders c-42",
    "resize": "penstock resize orders 8",
    "delete-queue": "penstock delete-queue orders --force --preview",
    "stop-worker": "penstock stop-worker 7",
    "migrate": "penstock migrate --url postgresql://localhost/jobs",
    "sql": "penstock sql --new penstock",
    "grant": "penstock grant worker mailer",
    "doctor": "penstock doctor",
    "completion": "penstock completion bash",
    "version": "penstock version --json",
    "token create": "penstock token create billing --role produce --queue invoices --expires 30d",
    "token list": "penstock token list",
    "token revoke": "penstock token revoke billing",
    "shards": "penstock shards",
    "shards add": "penstock shards add postgresql://second/jobs",
    "shards move": "penstock shards move orders 3 2",
    "shards drain": "penstock shards drain 2",
    "crons": "penstock crons",
    "crons pause": "penstock crons pause nightly",
    "crons resume": "penstock crons resume nightly",
    "crons run": "penstock crons run nightly",
    "crons remove": "penstock crons remove nightly",
}


def add_examples(program: typer.Typer, path: str = "") -> None:
    """Have the help of each command end with its example."""
    for command in program.registered_commands:
        function: Any = command.callback
        command.epilog = _epilog(path + (command.name or function.__name__.replace("_", "-")))
    for group in program.registered_groups:
        inner = group.typer_instance
        name = inner.info.name if inner is not None else None
        if inner is None or not isinstance(name, str):
            continue
        if path + name in EXAMPLES:
            group.epilog = _epilog(path + name)
        add_examples(inner, f"{path}{name} ")


def _epilog(name: str) -> str | None:
    return f"Example: {EXAMPLES[name]}" if name in EXAMPLES else None

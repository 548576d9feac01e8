"""The keys of a queue: which wait, for a retry or for a person; which have most jobs; to let one go on."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["queue_keys"]

queue_keys = Pages()
MOST_SHOWN = 100


@queue_keys.show("/queues/{queue}/keys")
def show_keys(view: View, queue: str) -> Shown:
    """Those that wait first, then the hottest."""
    blocked = view.api.get("queues", queue, "blocked-keys", limit=MOST_SHOWN)
    halted = [each for each in blocked.keys if each.until is None]
    hot = view.api.get_if_allowed("queues", queue, "hot-keys")
    return Shown(
        "queue_keys.html",
        f"Keys of {queue}",
        {
            "stats": view.api.get("queues", queue, "stats"),
            "halted": halted,
            "said_halted": _said_halted(halted),
            "held": [each for each in blocked.keys if each.until is not None],
            "blocked": blocked,
            "hot": hot,
            "key_fields": _fields,
            "job_filter": _job_filter,
        },
    )


@queue_keys.act("/queues/{queue}/release")
def release(view: View, queue: str) -> Done:
    """Let a halted key go on: one of those shown, or one that is typed."""
    encoded = view.form.text("key_base64")
    key = view.form.required("key") if encoded is None else {"base64": encoded}
    view.api.send("POST", "queues", queue, "release", body={"key": key})
    said = f"Key {key[:200]}" if isinstance(key, str) else _text_of(key["base64"])
    return Done(view.url("queues", queue, "keys"), f"{said} goes on.")


def _said_halted(halted: Sequence[Any]) -> str:
    if not halted:
        return ""
    many = f"{len(halted):,} key{' is' if len(halted) == 1 else 's are'} halted"
    return f"{many} since {halted[0].since:%H:%M} UTC on {halted[0].since.day} {halted[0].since:%B}."


def _fields(key: Any) -> dict[str, str]:
    """A key in a form: each byte as it is, whatever a browser would make of the text."""
    return {"key_base64": b64encode(key.encode()).decode() if isinstance(key, str) else key.base64}


def _job_filter(key: Any) -> dict[str, str]:
    """A key as jobs are asked for by it."""
    return {"key": key} if isinstance(key, str) else {"key_base64": key.base64}


def _text_of(encoded: str) -> str:
    try:
        return f"Key {b64decode(encoded).decode()[:200]}"
    except UnicodeDecodeError:
        return "The key"

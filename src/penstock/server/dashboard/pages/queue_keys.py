"""The keys of a queue: which wait, for a retry or for a person; which have most jobs; to let one go on."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["queue_keys"]

queue_keys = Pages()
MOST_SHOWN = 100


@queue_keys.show("/queues/{queue}/keys")
def show_keys(view: View, queue: str) -> Shown:
    """Those that wait first, then the hottest."""
    halted = view.api.get("queues", queue, "blocked-keys", kind="halted", limit=MOST_SHOWN)
    held = view.api.get("queues", queue, "blocked-keys", kind="held", limit=MOST_SHOWN)
    told = [each for each in view.api.get("attention").attention if (each.kind, each.queue) == ("halted-keys", queue)]
    return Shown(
        "queue_keys.html",
        f"Keys of {queue}",
        {
            "stats": view.api.get("queues", queue, "stats"),
            "halted": halted.keys,
            "held": held.keys,
            "unavailable": halted.unavailable,
            # All of them are counted for the overview.
            "halted_count": max([len(halted.keys), *(each.count for each in told)]),
            "most": MOST_SHOWN,
            "hot": view.api.get("queues", queue, "hot-keys"),
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

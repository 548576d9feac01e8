"""The partitions of a queue: how each stands; to give it another number of them, and to move one to another shard."""

from __future__ import annotations

from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["queue_partitions"]

queue_partitions = Pages()
MOST_SHOWN = 100


@queue_partitions.show("/queues/{queue}/partitions")
def show_partitions(view: View, queue: str) -> Shown:
    """Each with its figures, a hundred at a time; how far a resize or a move is."""
    stats = view.api.get("queues", queue, "stats")
    shards = view.api.get_if_allowed("shards")
    first = max(0, view.query.number("from") or 0)
    return Shown(
        "queue_partitions.html",
        f"Partitions of {stats.queue}",
        {
            "stats": stats,
            "resize": view.api.get("queues", queue, "resize"),
            # Where there is one there is nowhere to move to.
            "shards": [] if shards is None or len(shards.shards) < 2 else shards.shards,
            "shown": list(enumerate(stats.partitions))[first : first + MOST_SHOWN],
            "first": first,
            "most": MOST_SHOWN,
        },
    )


@queue_partitions.act("/queues/{queue}/resize")
def resize(view: View, queue: str) -> Done:
    """Give it another number of partitions."""
    view.form.required("partitions")
    done = view.api.send("POST", "queues", queue, "resize", body={"partitions": view.form.number("partitions")})
    many = f"{done.partitions} partition{'' if done.partitions == 1 else 's'}"
    return Done(view.url("queues", queue, "partitions"), f"{queue} has {many}. {_told(done.is_through)}")


@queue_partitions.act("/queues/{queue}/partitions/{partition}/move")
def move(view: View, queue: str, partition: str) -> Done:
    """Let one live on another shard."""
    shard = view.form.required("shard")
    done = view.api.send("POST", "queues", queue, "partitions", partition, "move", body={"shard": shard})
    said = f"{partition} lives on shard {shard}. {_told(done.is_through)}"
    return Done(view.url("queues", queue, "partitions"), said)


def _told(is_through: bool) -> str:
    return "Nothing is left elsewhere." if is_through else "What was sent elsewhere before drains now."

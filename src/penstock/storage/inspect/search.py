"""Looking for a text among the names, keys and tags of one database: it reads what is few, or goes by an index."""

from __future__ import annotations

from collections.abc import Collection

from penstock.model.search_hit import SearchHit
from penstock.storage.connection.database import Connection
from penstock.storage.connection.queries import query
from penstock.storage.inspect.system_figures import MOST_PARKED

__all__ = ["search_names"]


def search_names(
    connection: Connection, text: str, key: bytes, limit: int, queues: Collection[str] | None
) -> list[SearchHit]:
    """What has a text in its name, or is called so; of some queues, or of all."""
    asked: dict[str, object] = {
        "text": text,
        "key": key,
        "limit": limit,
        "queues": None if queues is None else list(queues),
    }
    asked["most_parked"] = MOST_PARKED
    rows = connection.execute(query("search"), asked).fetchall()
    return [SearchHit(kind=kind, name=name, queue=queue, id=id_) for kind, name, queue, id_ in rows]

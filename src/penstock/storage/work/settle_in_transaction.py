"""Settling one job in the transaction of its handler: it has succeeded if that commits."""

from __future__ import annotations

from typing import Any

from penstock.model.encoding import encode_result
from penstock.storage.connection.callers_transaction import (
    async_connection_beneath,
    callers_cursor,
    connection_beneath,
    fetch_async,
)
from penstock.storage.connection.queries import query
from penstock.storage.work.settle import Succeeded, succeeded_parameters

__all__ = ["settle_in", "settle_in_async"]


def _settle_parameters(worker: int, name: str, lease: int, token: int, job_id: int, result: Any) -> dict[str, Any]:
    results: list[bytes | None] | None = None if result is None else [encode_result(result)]
    done = Succeeded(lease, token, job_id // 1024, True, [job_id % 1024], [0], [0], results)
    return succeeded_parameters(worker, name, [done])


def settle_in(
    given: Any, schema: str, worker: int, name: str, lease: int, token: int, job_id: int, result: Any
) -> bool:
    """Settle one job as succeeded in the caller's transaction; False where it is not held."""
    cursor = callers_cursor(connection_beneath(given))
    parameters = _settle_parameters(worker, name, lease, token, job_id, result)
    return not cursor.execute(query("settle_succeeded_if_leased", schema), parameters).fetchall()


async def settle_in_async(
    given: Any, schema: str, worker: int, name: str, lease: int, token: int, job_id: int, result: Any
) -> bool:
    """The same on an asynchronous connection."""
    connection = await async_connection_beneath(given)
    parameters = _settle_parameters(worker, name, lease, token, job_id, result)
    return not await fetch_async(connection, query("settle_succeeded_if_leased", schema), parameters)

"""What may start next in an owned partition."""

from __future__ import annotations

from penstock.policy import Roster, Rules, Waiting

ORDERED = Rules(per_key=1)


def job(
    number: int,
    key: bytes | None = b"a",
    *,
    priority: int = 5,
    pos: int | None = None,
    rank: float | None = None,
    tenant: str = "",
    epoch: int = 1,
    is_known: bool = True,
) -> Waiting:
    place = number if pos is None else pos
    return Waiting(
        number, key, priority, place, place + 60.0 * priority if rank is None else rank, tenant, epoch, is_known
    )


def flat(chains: list[list[int]]) -> list[int]:
    return [number for chain in chains for number in chain]


def test_a_key_has_one_chain_and_keys_start_side_by_side() -> None:
    roster = Roster(ORDERED, 0, 0.0)
    roster.add([job(1), job(2), job(3, b"b"), job(4)])
    assert roster.take(2, 0.0) == [[1], [3]]
    assert roster.take(2, 0.0) == []
    roster.ended(1, "succeeded", 0.0)
    assert roster.take(5, 0.0) == [[2, 4]]


def test_at_most_a_limit_are_out_and_they_start_in_order() -> None:
    roster = Roster(Rules(per_key=1, limit=2), 0, 0.0)
    roster.add([job(number, b"%d" % number) for number in range(1, 6)])
    assert roster.take(10, 0.0) == [[1], [2]]
    roster.ended(2, "succeeded", 0.0)
    assert roster.take(10, 0.0) == [[3]]
    roster.ended(1, "succeeded", 0.0)
    roster.ended(3, "succeeded", 0.0)
    assert roster.take(10, 0.0) == [[4], [5]]

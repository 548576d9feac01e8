"""How permits are shared between partitions: they follow the work, and nobody who has some is left without for long."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.policy.permits import TURN_SECONDS, PermitUse, share_permits

LONG = 60.0


def use(
    partition: int, permits: int, running: int = 0, waiting: int = 0, waited: float = 0.0, **more: Any
) -> PermitUse:
    return PermitUse(partition, permits, running, waiting, waited, **more)


def test_all_permits_go_where_all_the_work_is_but_for_what_runs_elsewhere() -> None:
    assert share_permits(10, [use(1, 5, 5, 10), use(2, 5)]) == {1: 10, 2: 0}
    assert share_permits(10, [use(1, 5, 5, 10), use(2, 5, 2)]) == {1: 8, 2: 2}


def test_where_all_have_much_to_do_all_get_equally_many() -> None:
    shares = share_permits(10, [use(1, 10, 10, 10), use(2, 0, 0, 10), use(3, 0, 0, 1)])
    assert (shares[3], sum(shares.values())) == (1, 10)
    assert sorted((shares[1], shares[2])) == [4, 5]


def test_one_permit_more_than_an_equal_share_stays_where_it_is() -> None:
    assert share_permits(3, [use(1, 1, 1, 9), use(2, 2, 2, 9)]) == {1: 1, 2: 2}
    assert share_permits(3, [use(1, 2, 2, 9), use(2, 1, 1, 9)]) == {1: 2, 2: 1}


def test_what_nobody_wants_stays_where_it_is_and_each_partition_has_one_to_begin_with() -> None:
    assert share_permits(10, [use(1, 9, 3), use(2, 0)]) == {1: 9, 2: 1}
    assert share_permits(10, [use(1, 9), use(2, 1)]) == {1: 9, 2: 1}
    assert share_permits(10, [use(1, 0), use(2, 0)]) == {1: 5, 2: 5}


def test_two_billion_permits_are_spread_as_fast_as_two() -> None:
    most = 2**31 - 1
    assert share_permits(most, [use(n, 0) for n in range(3)]) == {0: most // 3 + 1, 1: most // 3, 2: most // 3}
    assert share_permits(most, [use(1, 0, limit=4), use(2, 7), use(3, 0, limit=most)]) == {
        1: 4, 2: (most - 4) // 2 + 1, 3: (most - 4) // 2,
    }  # fmt: skip
    assert sum(share_permits(most, [use(n, n, limit=most - 1) for n in range(1_000)]).values()) == most


def test_a_partition_that_cannot_use_what_it_has_keeps_one_more_than_it_uses() -> None:
    stuck = use(1, 5, 1, 100, LONG)
    assert share_permits(10, [stuck, use(2, 5, 5, 100, LONG)]) == {1: 2, 2: 8}
    just_come = use(1, 5, 1, 100, 0.1)
    assert share_permits(10, [just_come, use(2, 5, 5, 100, LONG)]) == {1: 5, 2: 5}


def test_where_more_run_than_there_are_permits_nobody_has_one_until_fewer_do() -> None:
    assert share_permits(1, [use(1, 2, 2), use(2, 4, 4, 9)]) == {1: 0, 2: 0}
    assert share_permits(1, [use(1, 0, 1), use(2, 0, 0, 9)]) == {1: 1, 2: 0}


def test_no_partition_gets_more_than_its_own_limit() -> None:
    assert share_permits(10, [use(1, 0, 0, 50, limit=3), use(2, 0, 0, 2, limit=3)]) == {1: 3, 2: 3}


def test_with_fewer_permits_than_partitions_the_one_that_was_longest_without_is_next() -> None:
    uses = [
        use(1, 1, 1, 9, LONG, changed_seconds=TURN_SECONDS),
        use(2, 0, 0, 9, LONG, changed_seconds=2.0),
        use(3, 0, 0, 9, 3.0, changed_seconds=LONG),
    ]
    assert share_permits(1, uses) == {1: 0, 2: 0, 3: 1}
    # In the middle of its turn it keeps it.
    in_turn = use(1, 1, 1, 9, LONG, changed_seconds=TURN_SECONDS / 2)
    assert share_permits(1, [in_turn, *uses[1:]]) == {1: 1, 2: 0, 3: 0}
    assert share_permits(1, uses[:1]) == {1: 1}


@pytest.mark.parametrize("seed", range(200))
def test_no_more_are_shared_out_than_there_are_and_none_is_idle_while_it_is_wanted(seed: int) -> None:
    random = Random(seed)
    permits = random.randint(0, 20)
    uses = [
        use(
            number, random.randint(0, 5), random.randint(0, 5), random.choice([0, 0, 3, 40]),
            random.choice([0.0, LONG]),
            changed_seconds=random.choice([0.0, 1.0, LONG]), limit=random.choice([None, None, 4]),
        )
        for number in range(random.randint(1, 8))
    ]  # fmt: skip
    shares = share_permits(permits, uses)
    assert sum(shares.values()) <= permits
    assert all(share >= 0 for share in shares.values())
    unmet = [each for each in uses if shares[each.partition] < each.wanted]
    if unmet and sum(each.running for each in uses) <= permits:
        assert sum(shares.values()) == permits
        # Nobody has two more than somebody who lacks some.
        least = min(shares[each.partition] for each in unmet)
        assert all(share <= least + 1 for share in shares.values())

"""How the tokens of a total_rate are shared between partitions: to where work waits, and nobody hoards them."""

from __future__ import annotations

from random import Random
from typing import Any

from penstock.policy.tokens import TokenUse, share_tokens


def use(partition: int, waiting: int, tokens: int = 0, used: int = 0, **more: Any) -> TokenUse:
    return TokenUse(partition, tokens, used, waiting, **more)


def test_tokens_go_where_work_waits_and_no_more_than_that() -> None:
    assert share_tokens(10, [use(1, 4), use(2, 0)]) == {1: 4}
    assert share_tokens(10, [use(1, 40), use(2, 0)]) == {1: 10}
    assert share_tokens(0, [use(1, 40)]) == {}


def test_where_all_have_much_to_do_all_get_equally_many_with_what_they_have() -> None:
    assert share_tokens(10, [use(1, 40), use(2, 40), use(3, 2)]) == {1: 4, 2: 4, 3: 2}
    assert share_tokens(10, [use(1, 40, tokens=6, used=9), use(2, 40)]) == {1: 2, 2: 8}


def test_the_last_one_goes_to_who_has_been_without_for_longest() -> None:
    waiting = [use(n, 9, waited_seconds=100.0, granted_seconds=float(n)) for n in (1, 3, 2)]
    assert share_tokens(1, waiting) == {3: 1}
    new = use(4, 9, waited_seconds=50.0)
    assert share_tokens(1, [*waiting, new]) == {4: 1}
    assert share_tokens(5, waiting) == {1: 1, 2: 2, 3: 2}


def test_who_does_not_use_what_it_has_gets_no_more() -> None:
    assert share_tokens(10, [use(1, 40, tokens=5), use(2, 40)]) == {2: 10}
    assert share_tokens(10, [use(1, 40, tokens=2, used=3), use(2, 40)]) == {1: 4, 2: 6}


def test_what_has_run_out_unused_is_given_back_and_who_has_none_gives_nothing() -> None:
    assert share_tokens(3, [use(1, 40, tokens=5, has_expired=True), use(2, 1)]) == {1: 0, 2: 1}
    assert share_tokens(3, [use(1, 40, has_expired=True)]) == {1: 3}


def test_no_more_is_ever_shared_than_there_is_or_is_wanted() -> None:
    random = Random(5)
    for _ in range(2_000):
        room = random.randrange(30)
        uses = [
            use(n, random.randrange(40), random.randrange(12), random.randrange(12), waited_seconds=random.random())
            for n in range(random.randrange(6))
        ]
        grants = share_tokens(room, uses)
        by_partition = {each.partition: each for each in uses}
        assert sum(grants.values()) <= room
        assert all(more > 0 for more in grants.values())
        assert all(by_partition[n].tokens + more <= by_partition[n].waiting for n, more in grants.items())
        left = room - sum(grants.values())
        assert not left or all(each.tokens + grants.get(each.partition, 0) >= each.wanted for each in uses)

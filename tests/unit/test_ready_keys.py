"""Ready keys: the least rank comes first, whichever order keys got ready in, and what is out of date is passed over."""

from __future__ import annotations

from random import Random

import pytest

from penstock.policy.key import Key
from penstock.policy.ready_keys import ReadyKeys


@pytest.mark.parametrize("disorder", [0, 3, 1_000])
@pytest.mark.parametrize("seed", range(5))
def test_the_least_rank_comes_first_whichever_order_keys_entered_in(seed: int, disorder: int) -> None:
    random = Random(seed)
    ready_keys = ReadyKeys()
    ready: dict[bytes, Key] = {}
    for number in range(2_000):
        act = random.random()
        if act < 0.5:
            key = Key(b"k%d" % number)
            key.entry = (number + random.randint(0, disorder), number, key)
            ready[b"k%d" % number] = key
            ready_keys.enter(key.entry, 0)
        elif act < 0.6 and ready:
            # Not ready any more: its entry stays, and is passed over.
            ready.pop(random.choice(list(ready))).entry = None
        else:
            entries = [key.entry for key in ready.values() if key.entry is not None]
            expected = min(entries, default=None)
            assert ready_keys.first() == (None if expected is None else expected[0])
            found = ready_keys.next()
            assert found is (None if expected is None else expected[2])
            if found is not None and found.name is not None:
                assert found.entry is None
                del ready[found.name]

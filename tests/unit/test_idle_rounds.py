"""When all sites of a worker are idle in the same moment."""

from __future__ import annotations

from penstock.worker.idle_rounds import IdleRounds


class Place:
    """Two sites that report, and whether each is away."""

    def __init__(self, *sites: str) -> None:
        self.calls = 0
        self.away: set[str] = set()
        self.idle_rounds = IdleRounds(self._call)
        for member in sites:
            self.idle_rounds.join(member, lambda member=member: member in self.away)  # type: ignore[misc]

    def _call(self) -> None:
        self.calls += 1

    def note_idle(self, member: str, began_in: int | None = None) -> bool:
        return self.idle_rounds.note_idle(member, self.idle_rounds.round if began_in is None else began_in)


def test_alone_one_look_is_enough() -> None:
    assert Place("a").note_idle("a")


def test_after_all_were_idle_all_look_again() -> None:
    place = Place("a", "b")
    assert not place.note_idle("a")
    # What ran on b before it was idle may have enqueued on a, which had looked before.
    assert not place.note_idle("b")
    assert place.calls == 1
    assert not place.note_idle("a")
    assert place.note_idle("b")


def test_whoever_does_something_lets_all_look_again_twice() -> None:
    place = Place("a", "b")
    place.note_idle("a")
    place.note_idle("b")
    place.note_idle("a")
    place.idle_rounds.note_busy()
    assert not place.note_idle("b")
    assert not place.note_idle("a")
    assert not place.note_idle("b")
    assert place.note_idle("a")


def test_a_look_that_began_before_somebody_did_something_does_not_count() -> None:
    place = Place("a")
    began_in = place.idle_rounds.round
    place.idle_rounds.note_busy()
    assert not place.note_idle("a", began_in)
    assert place.note_idle("a")


def test_a_site_that_is_away_is_left_out_and_one_that_is_not_is_waited_for() -> None:
    place = Place("a", "b")
    assert not any(place.note_idle("a") for _ in range(5))
    place.away.add("b")
    assert not place.note_idle("a")
    assert place.note_idle("a")

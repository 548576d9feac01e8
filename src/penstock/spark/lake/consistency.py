"""Whether a database and a lake know the same past. Where they do not, nothing is read, moved or removed.

A database knows what it verified and where; a lake lists what it was given. They part when a database is restored from
a backup, or a copy of it archives; when another lake is given, or files of it are gone. Each is an error that says so.
`reconcile` gives up what only one of them has: nothing is deleted, it only is not counted on any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.storage.history.archive import Archiving
from penstock.storage.history.lake_writings import Writing

if TYPE_CHECKING:
    from penstock.spark.lake.open_lake import Lake

__all__ = ["LakeComparison", "another_lake"]

_MOST_NAMED = 8
_RECONCILE = "call ps.archive with reconcile=True (penstock archive LAKE --reconcile)"


@dataclass(frozen=True, slots=True)
class LakeComparison:
    """What a database and a lake say of each other.

    `cold` are the writings in this lake that history reads: their slices have left the database. `elsewhere` and
    `damaged` are of those that it would have to read as well: in another lake, and not whole any more. `begun` is what
    a killed archive began in another lake. `strangers` are listed in the lake, and unknown to the database. `given_up`
    and `set_aside` are what a reconcile gave up: of what the database knew, and of what only the lake lists.
    """

    root: str
    cold: list[Writing]
    elsewhere: list[Writing]
    damaged: list[Writing]
    begun: list[Writing]
    strangers: dict[str, int]
    given_up: list[Writing]
    set_aside: list[Writing]

    @classmethod
    def compare(
        cls, lake: Lake, listed: Mapping[str, int], slices: Iterable[int], writings: Sequence[Writing]
    ) -> LakeComparison:
        """Compare a lake with what the database knows.

        An archive may run meanwhile, so the caller reads in this order: `listed`, what the lake lists, which the
        database has known before; `slices`, those in the database; `writings`, among which are those of slices that
        left since. The identity of the lake is read last: it is made before anything is written there.
        """
        here = set(slices)
        identity = lake.identity()
        gone = [each for each in writings if each.slice not in here]
        mine = [each for each in gone if each.lake == identity and each.state in ("verified", "lost")]
        damaged = lake.find_damaged(mine) if mine else []
        known = {each.identity for each in writings}
        return cls(
            lake.root,
            [each for each in mine if each not in damaged],
            [each for each in writings if each.lake != identity and each.state == "verified"],
            [each for each in damaged if each.state == "verified"],
            [each for each in writings if each.lake != identity and each.state == "begun"],
            {writing: number for writing, number in listed.items() if writing not in known},
            [each for each in gone if each.state == "lost" and (each.lake != identity or each in damaged)],
            [each for each in writings if each.state == "set_aside" and each.identity in listed],
        )

    def check(self) -> None:
        """Raise where history would have a row twice, or lack one."""
        if self.strangers:
            raise PenstockError(
                f"the lake {self.root} lists {_name_slices(self.strangers.values())} of this database, of which the "
                "database knows nothing: it was restored from a backup since, or a copy of it has archived here. Their "
                "jobs may be in the database too, or their ids be those of other jobs by now. To go on without them "
                f"(their files stay where they are) {_RECONCILE}"
            )
        if self.elsewhere:
            raise another_lake(self.elsewhere, self.root)
        if self.damaged:
            first = self.damaged[0]
            raise PenstockError(
                f"of {_name_slices(each.slice for each in self.damaged)} in the lake {self.root} files are missing or "
                f"damaged, as in {first.folder}, which had {first.jobs:,} jobs in {first.files} files of "
                f"{first.bytes:,} bytes: bring them back from a backup of the lake. To go on without them {_RECONCILE}"
            )

    def check_begun(self) -> None:
        """Raise where a killed archive may have left files in another lake."""
        if self.begun:
            raise PenstockError(
                f"an archive to {self.begun[0].location} was killed while it wrote "
                f"{_name_slices(each.slice for each in self.begun)}, or is running: archive there again, so that "
                f"nothing is left of it. To archive to {self.root} instead, and leave those files to you, {_RECONCILE}"
            )

    def describe_left_out(self) -> list[str]:
        """What history lacks because a reconcile gave it up; one that came back whole is read, and not among it."""
        said = []
        if self.given_up:
            named, jobs = _name_slices(each.slice for each in self.given_up), sum(each.jobs for each in self.given_up)
            was, is_not = ("was", "is not") if len(self.given_up) == 1 else ("were", "are not")
            said.append(
                f"{named} with {jobs:,} job{'s' * (jobs != 1)} {was} given up by a reconcile and {is_not} read: files "
                f"in {self.given_up[0].location} were missing or damaged, or that is another lake"
            )
        if self.set_aside:
            was, is_not = ("was", "is not") if len(self.set_aside) == 1 else ("were", "are not")
            said.append(
                f"{_name_slices(each.slice for each in self.set_aside)} in the lake {self.root} {was} given up by a "
                f"reconcile and {is_not} read: this database knows of no such writing"
            )
        return said

    def reconcile(self, run: Archiving) -> None:
        """Give up what only one of the two has."""
        here = set(run.slices())
        gone = [*self.elsewhere, *self.damaged]
        run.mark([each for each in gone if each.slice not in here], "lost")
        run.mark([*self.begun, *(each for each in gone if each.slice in here)], "abandoned")
        run.set_aside(
            Writing(identity, number, 0, "", self.root, "", "set_aside") for identity, number in self.strangers.items()
        )


def another_lake(elsewhere: Sequence[Writing], root: str) -> PenstockError:
    """The error where these writings are in another lake than the one that was given."""
    jobs = sum(each.jobs for each in elsewhere)
    return PenstockError(
        f"{jobs:,} jobs of this database, {_name_slices(each.slice for each in elsewhere)}, are in the "
        f"lake {elsewhere[0].location}, and {root} is another one: give that lake, or, if it was "
        f"moved, see that its folder _penstock came along. To go on without them {_RECONCILE}"
    )


def _name_slices(slices: Iterable[int]) -> str:
    numbers = sorted(set(slices))
    few = ", ".join(map(str, numbers[:_MOST_NAMED]))
    if len(numbers) == 1:
        return f"slice {few}"
    return f"slices {few}" + (f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else "")

"""What those who watch ask again and again: which jobs have ended, and which became dead letters.

Dead letters are found by their time. A transaction may commit after others that began later, so each look goes back a
little before where the last one ended; whoever asks leaves out what it has told already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from penstock.admin.answers import ask_everywhere
from penstock.model.dead_letter import DeadLetter
from penstock.shards.databases import Databases
from penstock.storage import Connection, Database
from penstock.storage.catalogue.crons import database_now
from penstock.storage.inspect.watching import dead_letters_after, jobs_going_on

__all__ = ["OVERLAP", "DeadLetters", "DeadLettersSeen", "dead_letters", "ended_jobs"]

# A settle that takes longer to commit is told of by the lists alone.
OVERLAP = timedelta(seconds=10)
# Of one shard in one look; what there is beyond comes with the next.
MOST_DEAD = 1_000


class DeadLettersSeen(NamedTuple):
    """How far a shard was read: up to an instant, and at that instant up to a job."""

    at: datetime
    job_id: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """What a look found, the oldest first, and by shard where the next one goes on. `is_all`: there was no more."""

    found: list[DeadLetter]
    seen: Mapping[int, DeadLettersSeen]
    is_all: bool


def ended_jobs(databases: Databases, ids: Collection[int]) -> set[int]:
    """Those of these jobs that have ended, or are nowhere to be found; not those of a shard that does not answer.

    One that is carried to another shard meanwhile may be among them: look at it.
    """
    asked = sorted(ids)
    answers = ask_everywhere(databases, lambda connection: jobs_going_on(connection, asked))
    going_on = {id_ for each in answers for id_ in each}
    return {id_ for id_ in asked if id_ not in going_on and databases.number_of(id_) not in answers.missing}


def dead_letters(
    databases: Databases, seen: Mapping[int, DeadLettersSeen], since: datetime | None = None
) -> DeadLetters:
    """Dead letters after what was seen; of a shard that was not read yet since an instant, by default a moment ago.

    One look gives a thousand of each shard at most.
    """

    def look(connection: Connection, shard: int) -> tuple[list[DeadLetter], DeadLettersSeen]:
        now = database_now(connection)
        start = seen.get(shard) or DeadLettersSeen((since or now) - OVERLAP)
        letters = dead_letters_after(connection, start.at, start.job_id, MOST_DEAD)
        if len(letters) == MOST_DEAD:
            return letters, DeadLettersSeen(letters[-1].failed_at, letters[-1].job_id)
        return letters, DeadLettersSeen(max(start.at, now - OVERLAP))

    def ask(database: Database) -> tuple[list[DeadLetter], DeadLettersSeen]:
        return databases.ask(database, lambda connection: look(connection, database.shard), writes=False)

    answers = databases.each_database(ask)
    found = [letter for letters, _ in answers for letter in letters]
    return DeadLetters(
        sorted(found, key=lambda letter: (letter.failed_at, letter.job_id)),
        {**seen, **{number: further for number, (_, further) in answers.given.items()}},
        all(len(letters) < MOST_DEAD for letters, _ in answers),
    )

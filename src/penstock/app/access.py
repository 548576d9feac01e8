"""Access: how the calls of an app reach its databases, within their deadlines.

While `app.testing()` lasts there is none: what would need a database is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock import admin
from penstock.app.auditing import begin_record
from penstock.app.calls import Bounded
from penstock.app.connecting import Connecting
from penstock.app.declarations import Declarations
from penstock.client.testing import Testing
from penstock.deadline import current_deadline
from penstock.errors import PenstockError
from penstock.model import Shard
from penstock.shards.databases import Databases

__all__ = ["Access"]


class Access:
    """One for each app; used by all its calls."""

    def __init__(self, connecting: Connecting, declarations: Declarations) -> None:
        self.connecting = connecting
        self.declarations = declarations
        # What takes the place of the databases in a test.
        self.testing: Testing | None = None

    @property
    def databases(self) -> Databases:
        """Every database, with everything declared so far written down, and the act for which they are wanted."""
        if self.testing is not None:
            raise PenstockError("app.testing() keeps jobs in memory, without a database: ask the object it gave you")
        databases = self.connecting.databases()
        self.declarations.write_declarations()
        call = current_deadline()
        if call is not None:
            # What was declared before is not what the call is for.
            call.may_have_written = False
        begin_record(databases)
        return databases

    def begin_call(
        self,
        seconds: float | None = None,
        *,
        is_change: bool = True,
        is_in_steps: bool = False,
        creates: bool = True,
    ) -> Bounded:
        """A call begins: from here on its time counts. Embedded servers are started before it does.

        A change creates them where there are none, unless it says otherwise.
        """
        given = self.connecting.request_timeout if seconds is None else seconds
        if self.testing is None:
            self.connecting.start(given, creates=is_change and creates)
        return Bounded(given, is_change=is_change, renews=is_in_steps)

    def create_embedded(self) -> None:
        """Create embedded servers where they are meant and not there yet."""
        if self.testing is None:
            self.connecting.create()

    def look_at_shards(self) -> list[Shard]:
        """The databases, whether they answer, and how much is on them; none that is silent is waited for."""
        databases = self.connecting.unchecked()
        if not any(admin.answers(database) for database in databases):
            return [admin.silent_shard(database) for database in databases]
        return admin.shards(self.connecting.databases())

    def add_shard(self, url: str) -> int:
        """Make an empty database a further shard; its number."""
        return self.connecting.add(self.databases, url)

    def migrate(self) -> list[str]:
        """Create or upgrade the schema, and write down what is declared; what was applied."""
        applied = self.connecting.migrate()
        self.declarations.write_declarations()
        return applied

    @contextmanager
    def without_databases(self, *, inline: bool) -> Iterator[Testing]:
        """For the block: jobs stay in memory, and run at once or when the test says so."""
        before, self.testing = self.testing, Testing(inline=inline, is_owned=self.declarations.is_owned)
        try:
            yield self.testing
        finally:
            self.testing = before

    def close(self) -> None:
        """Give back every connection; what is declared is written again where the app is used again."""
        self.connecting.close()
        self.declarations.forget()

"""An app on a database of its own, without Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import App


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    with App(database_url) as app:
        app.queue("q", partitions=2)
        app.migrate()
        yield app

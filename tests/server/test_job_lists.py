"""Lists of jobs over HTTP: every filter, page by page, and a filter that matches little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.server.asking import Client, asking
from tests.server.conftest import Shop, shop_of

from penstock import App
from penstock.storage.inspect import jobs as reading
from penstock.storage.inspect import selection


def pages(client: Client, **query: Any) -> Iterator[dict[str, Any]]:
    """Page after page, to the end."""
    while True:
        page = client.get(f"jobs?{urlencode(query)}")
        yield page
        if page["next"] is None:
            assert page["searched_to"] is None
            return
        query["before"] = page["next"]


def ids(page: dict[str, Any]) -> list[int]:
    return [int(job["id"]) for job in page["jobs"]]


def test_jobs_are_listed_by_every_filter(shop: Shop, client: Client) -> None:
    plain = shop.send.enqueue_many([{"to": str(n)} for n in range(3)])
    special = shop.send.options(key=b"\xff", tenant="acme", created_by="me", tags=["x", "y"]).enqueue()
    (keyed, *_) = shop.book.enqueue_many([{"customer": f"c-{n}"} for n in range(8)])
    assert ids(client.get("jobs?queue=mail")) == [special, *plain[::-1]]
    for query in ("tenant=acme", "created_by=me", "tag=y", "key_base64=/w==", "queue=mail&tenant=acme&state=ready"):
        assert ids(client.get(f"jobs?{query}")) == [special], query
    assert ids(client.get("jobs?key=c-0")) == [keyed]
    partition = shop.app.job(keyed).partition
    assert keyed in ids(client.get(f"jobs?partition={partition}"))
    assert keyed in ids(client.get(f"jobs?queue=orders&partition={['orders', 'orders__p1'].index(partition)}"))
    assert ids(client.get("jobs?task=send&state=ready&limit=2")) == [special, plain[2]]
    assert ids(client.get("jobs?state=succeeded")) == ids(client.get("jobs?load=none")) == []
    assert client.refused("GET", "jobs?queue=nowhere")["code"] == "not-found"


def test_pages_follow_each_other_to_the_end(shop: Shop, client: Client) -> None:
    written = sorted(shop.send.enqueue_many([{"to": str(n)} for n in range(25)]), reverse=True)
    for query in ({}, {"queue": "mail"}, {"state": "ready"}, {"task": "send"}):
        found = list(pages(client, limit=10, **query))
        assert [id_ for page in found for id_ in ids(page)] == written, query
        assert found[0]["next"] == str(written[9])
        assert found[0]["searched_to"] == found[0]["jobs"][-1]["enqueued_at"]


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is small, and there is time for one."""
    monkeypatch.setattr(selection, "FULL_LOOK", selection.FULL_LOOK._replace(jobs=10))
    monkeypatch.setattr(reading, "LONGEST_SEARCH_SECONDS", 0.0)


@pytest.mark.usefixtures("short_looks")
def test_a_search_that_takes_long_says_how_far_it_came_and_can_be_resumed(shop: Shop, client: Client) -> None:
    rare = shop.send.options(tags=["rare"]).enqueue()
    shop.send.enqueue_many([{"to": str(n)} for n in range(60)])
    found = list(pages(client, tag="rare"))
    assert len(found) > 3
    assert [id_ for page in found for id_ in ids(page)] == [rare]
    times = [page["searched_to"] for page in found[:-1]]
    assert None not in times
    assert times == sorted(times, reverse=True)
    assert ids(found[0]) == []


@pytest.mark.usefixtures("short_looks")
def test_a_search_over_several_shards_misses_nothing(shard_urls: list[str]) -> None:
    with App(shards=shard_urls) as app, asking(app) as client:
        shop = shop_of(app)
        rare = []
        for number in range(6):
            rare.append(shop.book.options(tags=["rare"]).enqueue(customer=f"rare-{number}"))
            for other in range(20):
                shop.book.enqueue(customer=f"c-{other}")
        assert {(id_ >> 10) & 1023 for id_ in rare} == {1, 2}
        found = [id_ for page in pages(client, tag="rare", limit=2) for id_ in ids(page)]
        assert found == sorted(rare, reverse=True)

"""Access tokens on several shards: revoked on any is revoked, whichever was away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.fault.proxy import Proxy
from tests.servers import created_database
from tests.shards.place import Place

from penstock import App, PartitionUnavailable
from penstock.admin import TokenBook
from penstock.clock import ManualClock
from penstock.shards.access_tokens import level_tokens
from penstock.upkeep.shared_upkeep import SharedUpkeep

IS_REVOKED = "select revoked_at is not null from penstock.access_token"
# By hand, where the call would go to all shards.
REVOKE = "update penstock.access_token set revoked_at = now()"


def names_found(place: Place, secret: str) -> list[str | None]:
    """What a server finds that has been up all along in its mind, and one that starts now."""
    found = TokenBook(place.app.databases).find(secret)
    return [None if found is None else found.name]


def come_back(place: Place, second: Proxy) -> None:
    second.come_up()
    assert place.database(2).breaker.wait_until_up(60.0)


def test_a_token_is_on_every_shard_when_it_is_told(place: Place) -> None:
    place.app.create_token("shop", role="produce", queues=["q"], tenant="acme", expires=60, hides_args=True)
    columns = "digest, name, role, queues, tenant, hides_args, created_at, created_by, expires_at, revoked_at"
    here, there = (place.execute(shard, f"select {columns} from penstock.access_token") for shard in (1, 2))
    assert here == there
    assert len(here) == 1
    assert len(place.app.tokens()) == 1


@pytest.mark.parametrize("shard", [1, 2])
def test_one_that_is_revoked_on_any_shard_is_revoked_and_the_others_hear_of_it(place: Place, shard: int) -> None:
    secret = place.app.create_token("shop", role="read")
    assert names_found(place, secret) == ["shop"]
    place.execute(shard, REVOKE)
    assert names_found(place, secret) == [None]
    assert place.app.tokens()[0].revoked_at is not None
    assert level_tokens(place.app.databases) == 1
    assert [place.execute(each, IS_REVOKED) for each in (1, 2)] == [[(True,)], [(True,)]]
    assert level_tokens(place.app.databases) == 0


def test_a_shard_that_was_away_when_a_token_was_revoked_does_not_bring_it_back(place: Place, second: Proxy) -> None:
    secret = place.app.create_token("shop", role="read")
    second.go_down()
    with pytest.raises(PartitionUnavailable, match=r"^revoked token 'shop' on the shards that answered; shard 2"):
        place.app.revoke_token("shop")
    assert names_found(place, secret) == [None]
    come_back(place, second)
    assert place.execute(2, IS_REVOKED) == [(False,)]
    assert names_found(place, secret) == [None]
    SharedUpkeep(place.app.databases).sweep()
    assert place.execute(2, IS_REVOKED) == [(True,)]
    # What could not be told everywhere is told as such, and again where it is asked for again.
    assert [entry.outcome for entry in place.app.audit(act="revoke_token")] == ["unknown"]
    place.app.revoke_token("shop")
    assert place.app.audit(act="revoke_token")[0].outcome == "done"


def test_a_server_remembers_what_only_a_shard_knew_that_is_away_by_now(place: Place, second: Proxy) -> None:
    secret = place.app.create_token("shop", role="read")
    clock = ManualClock()
    book = TokenBook(place.app.databases, clock)
    place.execute(2, REVOKE)
    assert book.find(secret) is None
    second.go_down()
    clock.advance(1.0)
    assert book.find(secret) is None
    clock.advance(3600.0)
    assert book.find(secret) is None
    assert book.has_any


def test_a_token_that_is_made_while_a_shard_is_away_gets_there_when_it_is_back(place: Place, second: Proxy) -> None:
    second.go_down()
    secret = place.app.create_token("shop", role="read")
    assert names_found(place, secret) == ["shop"]
    come_back(place, second)
    assert place.execute(2, IS_REVOKED) == []
    SharedUpkeep(place.app.databases).sweep()
    assert place.execute(2, IS_REVOKED) == [(False,)]


def test_where_the_lead_is_away_tokens_are_revoked_and_none_is_made(shard_urls: list[str]) -> None:
    lead = Proxy(shard_urls[0])
    with App(shards=[lead.url, shard_urls[1]], request_timeout=2.0) as app:
        secret = app.create_token("shop", role="read")
        lead.go_down()
        with pytest.raises(PartitionUnavailable, match="revoked token 'shop'"):
            app.revoke_token("shop")
        assert TokenBook(app.databases).find(secret) is None
        with pytest.raises(PartitionUnavailable):
            app.create_token("other", role="read")
        # What was done meanwhile was entered where it could be.
        assert [(entry.act, entry.outcome) for entry in app.audit(limit=2)] == [
            ("create_token", "not done"), ("revoke_token", "unknown"),
        ]  # fmt: skip
    lead.close()


def test_a_shard_that_joins_later_has_them(place: Place, server_url: str, template_database: str) -> None:
    place.app.create_token("shop", role="read")
    place.app.create_token("gone", role="admin")
    place.app.revoke_token("gone")
    with created_database(server_url, template_database) as url:
        place.app.add_shard(url)
        place.urls[3] = url
        rows = place.execute(3, "select name, revoked_at is not null from penstock.access_token order by name")
        assert rows == [("gone", True), ("shop", False)]
        place.app.close()


def test_an_act_on_a_shard_that_answers_is_entered_there_where_the_lead_does_not(shard_urls: list[str]) -> None:
    lead = Proxy(shard_urls[0])
    with App(shards=[lead.url, shard_urls[1]], request_timeout=5.0) as app:
        task = app.queue("q", partitions=2).task(name="t")(lambda: None)
        ids = [task.options(key=str(n)).enqueue() for n in range(20)]
        job_id = next(each for each in ids if app.databases.number_of(each) == 2)
        lead.go_down()
        assert app.cancel(job_id) == "cancelled"
        (entry, *_) = app.audit()
        assert (entry.act, entry.target, entry.outcome) == ("cancel", str(job_id), "done")
        lead.come_up()
        assert app.databases.lead.breaker.wait_until_up(60.0)
        assert app.audit()[0] == entry
    lead.close()


def test_where_a_shard_did_not_answer_the_outcome_is_unknown(place: Place, second: Proxy) -> None:
    place.enqueue(1, 3)
    place.enqueue(2, 4)
    second.go_down()
    acts: list[Callable[[], object]] = [lambda: place.app.cancel(queue="q"), lambda: place.app.release("q", "k")]
    for do in acts:
        with pytest.raises(PartitionUnavailable):
            do()
    release, cancel = place.app.audit(limit=2)
    assert (cancel.outcome, cancel.detail) == ("unknown", {"error": "PartitionUnavailable"})
    assert release.act == "release"

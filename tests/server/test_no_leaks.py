"""Tokens of every kind ask everything at random: nothing is told or touched that is outside of what a token is for."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.server.asking import Client, Events, asking
from tests.server.matrix import (
    LONG_NUMBER,
    NO_LOAD,
    NO_QUEUE,
    NO_TENANT,
    QUEUES,
    TENANTS,
    TEXT,
    Bearer,
    Request,
    Requests,
    World,
    bearers,
)

from penstock.model.token import Role
from penstock.server.operations import OPERATIONS

IN_A_BATCH = 20
BATCHES_A_FILL = 12
STREAM = next(each for each in OPERATIONS if each.path == "/events")
OTHERS = [each for each in OPERATIONS if each is not STREAM]


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    world = World(database_url)
    world.app.migrate()
    world.fill()
    world.run(*QUEUES.values())
    yield world
    world.close()


# Milliseconds and seconds that are others at each look; only administrators of everything may ask.
MEASURES = {"read_doctor"}
NEED_ANOTHER_SHARD = {"move_partition", "drain_shard"}
NEEDS_AN_EMPTY_QUEUE = {"delete_queue"}


class Judge:
    """Holds what a bearer is told against what it may know."""

    def __init__(self, world: World, bearer: Bearer) -> None:
        self._world = world
        self._bearer = bearer

    def hear(self, told: str, asked: str) -> None:
        """Refuse what says more than was asked with, and is not for this bearer."""
        for queue, tenant, kind, number in TEXT.findall(told):
            if f"Z{queue}{tenant}{kind}{number}Z" not in asked:
                where = (QUEUES[queue], TENANTS[tenant])
                assert self._bearer.may_see(where, kind), f"{self._bearer} is told a text of {where}: {told}"
        for id_ in LONG_NUMBER.findall(told):
            if id_ in self._world.ids and id_ not in asked:
                where = self._world.ids[id_]
                assert self._bearer.may_touch(where), f"{self._bearer} is told of job {id_} of {where}: {told}"
        for name in self.foreign_names():
            assert name not in told or name in asked, f"{self._bearer} is told of {name}: {told}"

    def foreign_names(self) -> Iterator[str]:
        """What this bearer never hears of by itself."""
        if self._bearer.queues is not None:
            yield from sorted({*QUEUES.values()} - self._bearer.queues)
        if self._bearer.tenant is not None:
            yield "globex"

    def twins(self, request: Request) -> Iterator[Request]:
        """The same about things that are not there, for each that is not there for this bearer."""
        asked = request.text
        for id_ in {*LONG_NUMBER.findall(asked)} & self._world.ids.keys():
            # A list goes on below an id, whosever it is.
            if not self._bearer.may_touch(self._world.ids[id_]) and f"before={id_}" not in request.path:
                if self._world.missing_job in asked:
                    continue  # The twin would name one job twice, and be answered once for it.
                yield request.about(id_, self._world.missing_job)
        if request.operation.path.endswith("/loads/{load}"):
            # Names of loads are everybody's: that one is taken is told.
            return
        for name in self.foreign_names():
            for old, new in ((f"load-{name}", NO_LOAD), (name, NO_TENANT if name == "globex" else NO_QUEUE)):
                if old in asked:
                    yield request.about(old, new)
                    break


def plain(response: httpx.Response, *names: str) -> tuple[int, str]:
    """An answer without what it was asked with."""
    text = LONG_NUMBER.sub("N", TEXT.sub("T", response.text))
    for name in names:
        text = text.replace(name, "X")
    return response.status_code, text


def ask(client: Client, bearer: Bearer, request: Request) -> httpx.Response:
    headers = request.headers | {"authorization": f"Bearer {bearer.secret}"}
    operation = request.operation
    return client.request(operation.method, request.path, content=request.body, headers=headers)


@contextmanager
def listening(client: Client, bearer: Bearer, request: Request) -> Iterator[Events]:
    """A stream of events beside the block."""
    query = request.path.partition("?")[2]
    with client.events(query, {"authorization": f"Bearer {bearer.secret}"}) as events:
        yield events


def ask_at_random(world: World, client: Client, count: int, seed: int) -> Counter[tuple[str, int]]:
    """Ask so often; how often which operation was answered with which status."""
    chance = random.Random(seed)
    requests = Requests(world, seed + 1)
    everybody = list(bearers(world.app))
    answered: Counter[tuple[str, int]] = Counter()
    for batch in range(-(-count // IN_A_BATCH)):
        if batch % BATCHES_A_FILL == BATCHES_A_FILL - 1:
            world.fill()
            world.run("mail", "vault")
        bearer = everybody[batch] if batch < len(everybody) else chance.choice(everybody)
        judge, before = Judge(world, bearer), world.outside(bearer)
        stream = requests.make(STREAM, bearer)
        with listening(client, bearer, stream) as events:
            # Half of them are what the role may do, as most of what it may not is refused before anything is looked at.
            mine = [each for each in OTHERS if bearer.role in (each.may, Role.ADMIN)]
            for number in range(IN_A_BATCH):
                request = requests.make(chance.choice(mine if number % 2 else OTHERS), bearer)
                response = ask(client, bearer, request)
                answered[request.operation.name, response.status_code] += 1
                judge.hear(f"{response.text} {response.headers}", request.text)
                note_made(world, request, response)
                for twin in judge.twins(request):
                    names = (*judge.foreign_names(), NO_LOAD, NO_QUEUE, NO_TENANT)
                    assert plain(response, *names) == plain(ask(client, bearer, twin), *names), f"{bearer}: {request}"
                if (
                    request.operation.method == "GET"
                    and request.operation.name not in MEASURES
                    and chance.random() < 0.2
                ):
                    assert not notices(world, client, bearer, request), f"{bearer} notices others: {request}"
            events.close()
            judge.hear(events.rest(), stream.text)
        after = world.outside(bearer, newest=1_000)
        assert before == {id_: after.get(id_) for id_ in before}, f"{bearer} has touched others' jobs"
    return answered


def notices(world: World, client: Client, bearer: Bearer, request: Request) -> bool:
    """Whether an answer is another one each time that something happened which this bearer must not notice. What goes
    on by itself, as time does, changes it now and then.
    """
    for _ in range(3):
        before = plain(ask(client, bearer, request))
        world.poke(bearer)
        if plain(ask(client, bearer, request)) == before:
            return False
    return True


def note_made(world: World, request: Request, response: httpx.Response) -> None:
    """What was made can be asked for from now on."""
    if response.status_code != 201:
        return
    value: Any = response.json()
    if "worker" in value:
        world.workers.append(value["worker"])


def test_no_token_is_told_or_touches_what_it_is_not_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    judge_at_random(world, caplog, 1_500, 20_261_119)


@pytest.mark.long_run
def test_no_token_is_told_or_touches_what_it_is_not_for_at_length(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answered = judge_at_random(world, caplog, 20_000, random.randrange(1 << 30))
    # Each has been carried out, too, for somebody; where a queue is empty is up to chance.
    done = {name for name, status in answered if status < 300}
    assert {each.name for each in OTHERS} - done - NEEDS_AN_EMPTY_QUEUE == NEED_ANOTHER_SHARD


def judge_at_random(world: World, caplog: pytest.LogCaptureFixture, count: int, seed: int) -> Counter[tuple[str, int]]:
    print(f"the seed is {seed}")  # noqa: T201
    caplog.set_level(logging.INFO, "penstock")
    with asking(world.app) as client:
        answered = ask_at_random(world, client, count, seed)
    assert {name for name, _ in answered} == {each.name for each in OTHERS}
    assert not [each for each in answered if each[1] >= 500]
    # A worker that runs jobs logs why one failed; its log is whose the jobs are.
    logged = "\n".join(record.getMessage() for record in caplog.records if record.filename != "end_log.py")
    assert "penstock_" not in logged
    assert not [found for found in TEXT.findall(logged) if found[2] == "p"]
    return answered

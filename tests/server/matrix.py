"""Everything that may be asked of the HTTP API by every kind of token, in a world whose every text says whose it is.

A text of the world is such as `Zvgp17Z`: of the queue vault and the tenant globex, private, the 17th. So whatever is
answered tells by itself what of it its reader may not see. Requests are made at random of the operations there are, by
the names of their fields: an operation with a field that is not known here has to be told what to ask of it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus, urlencode

import msgspec

from penstock import App, Task
from penstock.model.job_state import State
from penstock.model.token import Role
from penstock.server.loading.load_request import LoadRequest
from penstock.server.loading.receive import receive_load
from penstock.server.operation import NDJSON, Operation
from penstock.server.produce import JobRequest

__all__ = ["Bearer", "Request", "Requests", "World", "bearers"]

QUEUES = {"m": "mail", "o": "orders", "v": "vault"}
TENANTS = {"a": "acme", "g": "globex", "n": None}
NO_QUEUE, NO_TENANT, NO_LOAD = "nowhere", "nobody", "load-none"
TEXT = re.compile(r"Z([mov])([agn])([po])(\d+)Z")
# As many digits have ids of jobs, and hardly anything else.
LONG_NUMBER = re.compile(r"\d{4,}")
Where = tuple[str, str | None]


@dataclass(frozen=True)
class Bearer:
    """A token, and what its bearer may see."""

    secret: str
    role: Role
    queues: frozenset[str] | None
    tenant: str | None
    hides_args: bool

    def may_touch(self, where: Where) -> bool:
        queue, tenant = where
        return (self.queues is None or queue in self.queues) and self.tenant in (None, tenant)

    def may_see(self, where: Where, kind: str) -> bool:
        """Whether a text of a job may stand in an answer. Whoever runs a job has its arguments."""
        if self.role is Role.PRODUCE or not self.may_touch(where):
            return False
        return self.role is Role.WORK or kind == "o" or not self.hides_args

    @property
    def is_narrow(self) -> bool:
        return self.queues is not None or self.tenant is not None

    def __str__(self) -> str:
        queues = "all" if self.queues is None else "+".join(sorted(self.queues))
        return f"{self.role} of {queues} for {self.tenant}{' without arguments' if self.hides_args else ''}"


def bearers(app: App) -> Iterator[Bearer]:
    """One of every kind of token there can be, but those that see everything."""
    number = count()
    for role in Role:
        for queues in (None, {"mail"}, {"mail", "orders"}):
            for tenant in (None, "acme") if role in (Role.READ, Role.PRODUCE) else (None,):
                for hides_args in (False, True):
                    sees_all = role is Role.ADMIN and queues is None and not hides_args
                    if sees_all or (role is Role.WORK and hides_args):
                        continue
                    secret = app.create_token(
                        f"t{next(number)}",
                        role=role.value,
                        queues=None if queues is None else sorted(queues),
                        tenant=tenant,
                        hides_args=hides_args,
                    )
                    yield Bearer(secret, role, None if queues is None else frozenset(queues), tenant, hides_args)


class World:
    """Jobs of every queue and tenant, in every state, that are related to each other; and what else there is."""

    def __init__(self, url: str) -> None:
        self.app, self._runner = App(url), App(url)
        self._numbers = count()
        self.ids: dict[str, Where] = {}
        self.workers: list[str] = []
        # Keys and tags of jobs there are.
        self.texts: list[str] = []
        self._tasks = {
            (queue, name): _declare(self.app, queue, name) for queue in QUEUES.values() for name in ("send", "fetch")
        }
        for queue in QUEUES.values():
            _declare(self._runner, queue, "send")

    @property
    def missing_job(self) -> str:
        """An id as those of jobs, and none of one."""
        return str(int(next(reversed(self.ids))) + 1)

    def close(self) -> None:
        self._runner.close()
        self.app.close()

    def fill(self) -> None:
        """Let there be some of everything, also where it was deleted meanwhile."""
        for queue in QUEUES.values():
            self.app.set_queue(queue)
            self.app.resume(queue)
        foreign: list[int] = []
        for queue in QUEUES:
            for tenant in TENANTS:
                foreign = foreign[-6:] + self._some_of(queue, tenant, foreign)
        for queue in QUEUES:
            text = self.text(queue, "n", "p")
            self._load(queue)
            self.app.set_cron(
                f"cron-{queue}",
                "@yearly",
                QUEUES[queue],
                "send",
                args={"to": text},
                key=self.text(queue, "n", "o"),
            )

    def run(self, *queues: str) -> None:
        """Let jobs end in every way."""
        self._runner.work(queues, until_idle=True)

    def poke(self, bearer: Bearer) -> None:
        """Let something happen that this bearer must not notice."""
        for queue, tenant in (("v", "g"), ("m", "g"), ("o", "n")):
            if not bearer.may_touch((QUEUES[queue], TENANTS[tenant])):
                self._enqueue(queue, tenant, delay=3600)

    def text(self, queue: str, tenant: str, kind: str) -> str:
        return f"Z{queue}{tenant}{kind}{next(self._numbers)}Z"

    def outside(self, bearer: Bearer, newest: int = 300) -> dict[int, tuple[object, ...]]:
        """How the newest jobs stand that a bearer has nothing to do with. Whether one runs is for whoever runs it."""
        found: dict[int, tuple[object, ...]] = {}
        for queue in QUEUES.values():
            for job in self.app.jobs(queue=queue, limit=newest):
                if not bearer.may_touch((job.queue, job.tenant)):
                    state = "open" if job.state in ("ready", "running") else job.state
                    if state == "blocked" or job.after:
                        # Its parents may be this bearer's.
                        continue
                    found[job.id] = (state, str(job.args), job.run_at, job.error, len(job.failures))
        return found

    def note(self, ids: list[str], where: Where) -> None:
        """Some have been enqueued."""
        self.ids |= dict.fromkeys(ids, where)

    def _load(self, queue: str) -> None:
        """One for each queue; the second time it is there already."""
        row = {
            "task": "send",
            "args": json.dumps({"to": self.text(queue, "n", "p")}),
            "key": self.text(queue, "n", "o"),
        }
        request = LoadRequest(
            queue=QUEUES[queue],
            name=f"load-{QUEUES[queue]}",
            content_type=NDJSON,
            content_encoding=None,
            task=None,
            key=None,
            order_by=None,
            types=None,
            rows=None,
            trace=None,
        )
        receive_load(self.app, request, iter([json.dumps(row).encode()]))

    def _some_of(self, queue: str, tenant: str, foreign: list[int]) -> list[int]:
        """Some jobs, of which some wait for those of others."""
        plain = [self._enqueue(queue, tenant) for _ in range(3)]
        later = self._enqueue(queue, tenant, delay=3600)
        children = [
            self._enqueue(queue, tenant, after=[later, *foreign[-2:]]),
            self._enqueue(queue, tenant, after=[plain[0], *foreign[:1]], on_parent_failure="wait"),
        ]
        cancelled = self._enqueue(queue, tenant, delay=3600)
        self.app.cancel(cancelled, reason=self.text(queue, tenant, "o"))
        return [*plain, later, *children, cancelled, self._enqueue(queue, tenant, "fetch")]

    def _enqueue(self, queue: str, tenant: str, task: str = "send", **options: Any) -> int:
        where = (QUEUES[queue], TENANTS[tenant])
        text = self.text(queue, tenant, "o")
        bound = self._tasks[where[0], task].options(
            tenant=where[1], tags=[text, "common"], created_by=text, idempotency_key=text, key=text, **options
        )
        id_: int = bound.enqueue(to=self.text(queue, tenant, "p"))
        self.ids[str(id_)] = where
        self.texts.append(text)
        return id_


def _declare(app: App, queue: str, name: str) -> Task[..., Any]:
    is_ordered = queue == "orders"
    declared = app.queue(queue, partitions=2, order="key") if is_ordered else app.queue(queue)

    @declared.task(name=name, max_attempts=1)
    def send(to: str) -> dict[str, str]:
        if to.endswith(("0Z", "1Z", "2Z")):
            raise ValueError(f"there is no {to}")
        return {"sent": to}

    return send


def _in_query(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


class Request(NamedTuple):
    """What is asked for."""

    operation: Operation
    path: str
    body: bytes | None
    headers: dict[str, str]

    def __str__(self) -> str:
        return f"{self.operation.method} {self.path} {self.headers} {self.body!r}"

    @property
    def text(self) -> str:
        """All of it that an answer may repeat."""
        return " ".join((unquote_plus(self.path), (self.body or b"").decode(), *self.headers.values()))

    def about(self, old: str, new: str) -> Request:
        """The same about something else."""
        body = None if self.body is None else self.body.replace(old.encode(), new.encode())
        return self._replace(path=self.path.replace(old, new), body=body)


class Requests:
    """Makes requests at random, by the names of fields."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        # Where what is made now is to be, as far as it is known.
        self._queue: str | None = None
        self._tenant: str | None = None
        self._enqueues = False
        pick = self._random.choice
        self._values: dict[str, Callable[[], Any]] = {
            "queue": lambda: pick([*QUEUES.values(), NO_QUEUE]),
            "partition": lambda: pick(["0", "1", *(f"{queue}/0" for queue in QUEUES.values()), *QUEUES.values(), "x"]),
            "job_id": self._job,
            "before": self._job,
            "name": lambda: pick([*(f"cron-{queue}" for queue in QUEUES), "none"]),
            "load": lambda: pick(self._loads()),
            "worker": lambda: pick([*self._world.workers[-9:], "999999", "x"]),
            "shard": lambda: pick(["0", "7", "x"]),
            "state": lambda: pick([each.value for each in State]),
            "task": lambda: pick(["send", "fetch", "other"]),
            "key": lambda: pick([self._text("o"), "plain"]),
            "key_base64": lambda: pick(["YQ==", "x"]),
            "tag": lambda: pick(["common", self._text("o")]),
            "tags": lambda: [self._text("o")],
            "tenant": lambda: pick(["acme", "globex", NO_TENANT]),
            "created_by": lambda: self._text("o"),
            "limit": lambda: pick([1, 3, 1_000]),
            "wait": lambda: pick([0, 0.01]),
            "after": lambda: pick([[], [self._job()], [self._job(), self._job()]]),
            "force": lambda: False,
            "preview": lambda: pick([True, False]),
            "minutes": lambda: pick([1, 60]),
            "types": lambda: pick(["n:number", "x"]),
            "order_by": lambda: "n",
            "rows": lambda: pick([1, 2]),
            "actor": lambda: pick(["token t0", "x"]),
            "act": lambda: pick(["cancel", "purge"]),
            "target": lambda: pick([*QUEUES.values(), self._job()]),
            "dead_letters": lambda: True,
            "job": lambda: [self._job()],
            "q": lambda: pick([self._job(), *world.texts[-40:], *QUEUES.values(), "send", "cron", "load", "common"]),
            "cause": lambda: pick(["1", "x"]),
            "causes": lambda: pick([1, 5]),
            "kind": lambda: pick(["halted", "x"]),
            "since": lambda: "2020-01-01T00:00:00Z",
            # Bodies.
            "ids": lambda: [self._job(), self._job()],
            "role": lambda: pick([each.value for each in Role]),
            "expires": lambda: 3_600,
            "hides_args": lambda: True,
            "args": lambda: {"to": self._text("p")},
            "priority": lambda: pick([0, 9]),
            "delay": lambda: pick([0, 3600]),
            "run_at": lambda: "2040-01-01T00:00:00Z",
            "on_parent_failure": lambda: pick(["cancel", "run", "wait"]),
            "idempotency_key": lambda: pick([self._text("o"), "same"]),
            "unique": lambda: "waiting",
            "unique_key": lambda: pick(["same", self._text("o")]),
            "jobs": lambda: [self._struct(JobRequest) for _ in range(self._random.randrange(4))],
            "reason": lambda: self._text("p"),
            "partitions": lambda: pick([1, 2]),
            "order": lambda: "key",
            "per_key": lambda: 1,
            "fair_by": lambda: "tenant",
            "on_retry": lambda: "hold",
            "on_dead": lambda: "continue",
            "run": lambda: None,
            "total_limit": lambda: pick([None, 1_000]),
            "rate": lambda: None,
            "total_rate": lambda: None,
            "per_key_rate": lambda: None,
            "weights": lambda: None,
            "max_length": lambda: pick([None, 1_000_000]),
            "max_wait": lambda: None,
            "expression": lambda: "@yearly",
            "timezone": lambda: "UTC",
            "queues": lambda: {pick(list(QUEUES.values())): pick([{"fetch": {}}, {"fetch": {}, "send": {}}])},
            "concurrency": lambda: 3,
            "lease": lambda: 2,
            "number": lambda: pick([1, 1, 2, 3]),
            "ends": list,
            "want": lambda: pick([0, 3]),
            "progress": lambda: {self._job(): {"note": self._text("o")}},
        }

    def make(self, operation: Operation, bearer: Bearer) -> Request:
        """One of them, such as this bearer might make."""
        self._tenant = bearer.tenant
        self._enqueues = operation.may is Role.PRODUCE
        self._queue = (
            self._values["queue"]()
            if self._random.random() < 0.4 or not bearer.queues
            else self._random.choice(sorted(bearer.queues))
        )
        path = operation.path
        for name in re.findall(r"\{(\w+)\}", path):
            named = "load" if name == "name" and path.startswith("/loads") else name
            value = self._queue if name == "queue" else self._values[named]()
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        if operation.query is not None and (query := self._struct(operation.query)):
            path += f"?{urlencode({name: _in_query(value) for name, value in query.items()}, doseq=True)}"
        body, headers = None, {}
        if operation.forms:
            media = self._random.choice(list(operation.forms))
            body = self._body(operation, media)
            headers["content-type"] = media
        if self._random.random() < 0.1:
            headers["idempotency-key"] = self._random.choice(["same", self._text("o")])
        return Request(operation, path.lstrip("/"), body, headers)

    def _body(self, operation: Operation, media: str) -> bytes:
        kinds = operation.forms[media]
        if kinds == (bytes,):
            rows = [{"to": self._text("p")} for _ in range(2)]
            return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        if media == NDJSON:
            return b"".join(json.dumps(self._struct(kinds[0])).encode() + b"\n" for _ in range(2))
        return json.dumps(self._struct(self._random.choice(kinds))).encode()

    def _struct(self, kind: Any) -> dict[str, Any]:
        if kind is not JobRequest or self._random.random() < 0.7:
            return self._fields(kind)
        # Whose it is is known before its texts are made.
        before, self._tenant = self._tenant, self._values["tenant"]()
        try:
            return self._fields(kind) | {"tenant": self._tenant}
        finally:
            self._tenant = before

    def _fields(self, kind: Any) -> dict[str, Any]:
        return {
            each.encode_name: self._values[each.encode_name]()
            for each in msgspec.structs.fields(kind)
            if each.required or (self._random.random() < 0.3 and not (kind is JobRequest and each.name == "tenant"))
        }

    def _job(self) -> str:
        return self._random.choice([*self._random.sample(sorted(self._world.ids), 4), self._world.missing_job])

    def _loads(self) -> list[str]:
        return [*(f"load-{queue}" for queue in QUEUES.values()), NO_LOAD]

    def _text(self, kind: str) -> str:
        """One of what is enqueued there. What is said of jobs of anybody is nobody's."""
        if not self._enqueues:
            return "plain"
        queues = {name: short for short, name in QUEUES.items()}
        tenants = {name: short for short, name in TENANTS.items()}
        return self._world.text(queues.get(self._queue or "", "v"), tenants.get(self._tenant, "n"), kind)

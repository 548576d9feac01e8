"""openapi.json is true: whatever fits it or does not is answered as it says, and nothing breaks the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.server.conftest import shop_of
from tests.servers import created_database

from penstock import App
from penstock.server import Application
from penstock.server.beside import serving_beside
from penstock.server.openapi import describe
from penstock.server.operations import OPERATIONS
from penstock.server.serving import bind

SCHEMA = schemathesis.openapi.from_dict(describe(OPERATIONS))
# A stream goes on: tests/server/test_events.py reads it.
TESTED = {
    operation.label: operation
    for found in SCHEMA.get_all_operations()
    if isinstance(found, Ok) and (operation := found.ok()).path != "/events"
}
TOKEN = "penstock_of_this_machine"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
FEW = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
MANY = settings(FEW, max_examples=150, derandomize=False)


@dataclass(frozen=True)
class Served:
    """A server on a port, and what there is to ask for."""

    url: str
    app: App
    known: dict[str, str]


@pytest.fixture(scope="module")
def served(server_url: str, template_database: str) -> Iterator[Served]:
    with created_database(server_url, template_database) as url, App(url) as app:
        shop = shop_of(app)
        job = shop.send.enqueue(to="nobody")
        shop.app.work(until_idle=True)
        app.set_cron("nightly", "@daily", "mail", "send")
        known = {"queue": "mail", "job_id": str(job), "name": "nightly", "partition": "0", "shard": "1"}
        # One that an example makes would close the door to those after it that have none.
        application = Application(app, is_local=True, machine_token=TOKEN)
        with serving_beside(application, bind("127.0.0.1", 0)) as base:
            yield Served(f"{base}/api/v1", app, known)


def judge(served: Served, operation: APIOperation[Any, Any, Any, Any], examples: settings) -> None:
    """Ask for what there is and what there is not, with what the document allows and what it does not."""
    known = {each: served.known[each] for each in served.known if f"{{{each}}}" in operation.path}
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        checks = CHECKS if mode is GenerationMode.POSITIVE else [*CHECKS, negative_data_rejection]
        for path in [known, None] if known else [None]:
            try:
                ask(served, operation.as_strategy(generation_mode=mode, path_parameters=path), checks, examples)
            except Unsatisfiable:
                # Nothing is wrong with what has no parameters.
                assert mode is GenerationMode.NEGATIVE


def ask(served: Served, cases: Any, checks: list[Any], examples: settings) -> None:
    @examples
    @given(case=cases)
    def check(case: Any) -> None:
        # An example may have deleted it.
        served.app.set_queue("mail")
        case.call_and_validate(base_url=served.url, checks=checks, headers=BEARER)

    check()


@pytest.mark.parametrize("label", TESTED)
def test_whatever_is_asked_is_answered_as_the_document_says(label: str, served: Served) -> None:
    judge(served, TESTED[label], FEW)


@pytest.mark.long_run
@pytest.mark.parametrize("label", TESTED)
def test_whatever_is_asked_is_answered_as_the_document_says_at_length(label: str, served: Served) -> None:
    judge(served, TESTED[label], MANY)


def walk(served: Served, seeds: range, steps: int) -> None:
    """Ask one thing after another, with what came of those before: what was made is looked at, changed, deleted."""

    class Walk(SCHEMA.exclude(path="/events").as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"base_url": served.url, "headers": BEARER}

        def before_call(self, case: Any) -> None:
            for options in (case.query, case.body):
                if isinstance(options, dict) and "wait" in options:
                    options["wait"] = 0

        def validate_response(self, response: Any, case: Any, *_: Any, **__: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    # Each is a run by itself: what the server holds is never again as it was.
    once = settings(FEW, max_examples=1, derandomize=False, stateful_step_count=steps)
    for number in seeds:
        run_state_machine_as_test(seed(number)(Walk), settings=once)


def test_one_call_after_another_is_answered_as_the_document_says(served: Served) -> None:
    walk(served, range(4), steps=12)


@pytest.mark.long_run
def test_one_call_after_another_is_answered_as_the_document_says_at_length(served: Served) -> None:
    walk(served, range(1_000, 1_060), steps=40)

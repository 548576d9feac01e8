"""The public surface, kept exact: what users write may grow, and changes only on purpose, here."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import App, InvalidInput, NotFound, PenstockError, Queue, Task
from penstock.client import Bound

NAMES = {
    "App", "Attention", "AuditEntry", "BatchContext", "BlockedKey", "Cause", "Check", "Context", "Cron", "Discard",
    "Drain", "DrainRest", "Due", "DueSpan", "Edit", "Event", "Explanation", "Failure", "FailureHistory",
    "FailuresOfCause", "History", "HotKey", "HotKeys", "InvalidInput", "Job", "JobAct", "JobFailed", "JobFilter",
    "JobPage", "JsonFormatter", "LeaseLost", "Load", "Minute", "NotFound", "PartitionStats", "PartitionUnavailable",
    "PendingJob", "PenstockError", "Percentiles", "Queue", "QueueFull", "QueueRules", "RequestTimeout", "Resize",
    "ResultTimeout", "Retry", "Role", "RunningJob", "SchemaMismatch", "SearchHit", "Shard", "Snooze", "State", "Stats",
    "Task", "Token", "TraceContext", "UnknownTask", "Worked", "WorkerInfo", "WorkerStuck", "__version__",
}  # fmt: skip

# Each public name of App with its parameters; "*" begins those that are given by name only, "=" marks a default.
APP = {
    "__init__": (
        "url= * shards= embedded_shards= embedded= request_timeout= lease= retention= pool_size= imports= "
        "accept_data_loss= pooled= schema= tracing="
    ),
    "queue": (
        "name * partitions= order= per_key= run= limit= total_limit= rate= total_rate= per_key_rate= fair_by= "
        "weights= on_retry= on_dead= max_length= max_wait="
    ),
    "cron": "name expression task * args= timezone=",
    "set_queue": "name **options",
    "set_cron": "name expression queue task * args= key= timezone=",
    "crons": "",
    "resize_progress": "queue",
    "drain_progress": "shard",
    "due": "queue=",
    "adue": "queue=",
    "acrons": "",
    "pause_cron": "name",
    "resume_cron": "name",
    "remove_cron": "name",
    "run_cron": "name",
    "enqueue_many": "jobs * connection= request_timeout=",
    "aenqueue_many": "jobs * connection= request_timeout=",
    "work": "queues= concurrency= * until_idle= grace=",
    "awork": "queues= concurrency= * until_idle= grace=",
    "stop": "",
    "on": "event function",
    "middleware": "function",
    "result": "job_id timeout=",
    "aresult": "job_id timeout=",
    "stats": "queue",
    "astats": "queue",
    "queues": "names=",
    "aqueues": "names=",
    "histories": "minutes= names=",
    "ahistories": "minutes= names=",
    "history": "queue minutes=",
    "ahistory": "queue minutes=",
    "causes": "queue= * limit= queues=",
    "acauses": "queue= * limit= queues=",
    "failures": "queue minutes= * causes=",
    "afailures": "queue minutes= * causes=",
    "attention": "queues=",
    "aattention": "queues=",
    "search": "text limit= * queues= tenant=",
    "asearch": "text limit= * queues= tenant=",
    "workers": "* jobs=",
    "aworkers": "* jobs=",
    "worker": "worker_id",
    "aworker": "worker_id",
    "doctor": "",
    "stop_worker": "worker_id",
    "job": "job_id * queues= tenant=",
    "ajob": "job_id * queues= tenant=",
    "children": "job_id * queues= tenant=",
    "job_page": "* limit= before= **filters",
    "ajob_page": "* limit= before= **filters",
    "jobs": "* limit= before= **filters",
    "ajobs": "* limit= before= **filters",
    "explain": "job_id * queues= tenant=",
    "loads": "limit= * names=",
    "aloads": "limit= * names=",
    "pause_load": "name",
    "resume_load": "name",
    "cancel_load": "name * preview= reason=",
    "aexplain": "job_id * queues= tenant=",
    "hot_keys": "queue limit=",
    "ahot_keys": "queue limit=",
    "blocked_keys": "queue * kind= limit=",
    "ablocked_keys": "queue * kind= limit=",
    "cancel": "job_id= * preview= reason= **filters",
    "retry": "job_id= * args= preview= **filters",
    "aretry": "job_id * args=",
    "cancel_jobs": "ids * reason= queues= tenant=",
    "retry_jobs": "ids * queues= tenant=",
    "reschedule": "job_id run_at",
    "pause": "queue",
    "resume": "queue",
    "purge": "queue * preview= reason= **filters",
    "delete_queue": "queue * force= preview=",
    "limit": "queue **limits",
    "move_partition": "queue partition shard",
    "resize": "queue * partitions",
    "release": "queue key",
    "create_token": "name * role queues= tenant= expires= hides_args=",
    "revoke_token": "name",
    "tokens": "",
    "audit": "limit= before= * actor= act= target= since=",
    "add_shard": "url",
    "drain_shard": "shard",
    "migrate": "",
    "testing": "* inline=",
    "close": "",
}
# For the package's other parts, not for users; they are no part of the contract.
INNER = {
    "register", "send", "send_rows", "send_in_async", "create_embedded", "dead_letters", "ended_jobs", "known_jobs",
    "overview", "queue_names",
}  # fmt: skip
PROPERTIES = {
    "url", "plain_url", "shards", "tasks", "database", "databases", "unchecked_databases", "is_embedded",
    "lease_seconds", "request_timeout", "retention", "shared_duties",
}  # fmt: skip

TASK_OPTIONS = (
    "priority run_at delay after on_parent_failure idempotency_key unique unique_key key tenant created_by tags"
    " connection request_timeout"
)
STATES = ["scheduled", "blocked", "ready", "running", "succeeded", "failed", "cancelled", "discarded", "expired"]


def shape(function: Callable[..., Any]) -> str:
    words = []
    has_star = False
    for parameter in list(inspect.signature(function).parameters.values()):
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            words.append("*")
            has_star = True
        default = "=" if parameter.default is not parameter.empty else ""
        prefix = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        words.append(f"{prefix}{parameter.name}{default}")
    return " ".join(words)


def test_the_package_offers_these_names_and_no_others() -> None:
    assert set(penstock.__all__) == NAMES
    assert len(penstock.__all__) == len(set(penstock.__all__))
    assert all(hasattr(penstock, name) for name in NAMES)


def test_an_app_has_these_methods_with_these_parameters() -> None:
    public = {name for name in vars(App) if not name.startswith("_")} - PROPERTIES - INNER
    assert public | {"__init__"} == set(APP)
    assert {name: shape(getattr(App, name)) for name in APP} == APP


def test_an_app_has_these_properties() -> None:
    assert {name for name, value in vars(App).items() if isinstance(value, property)} == PROPERTIES


def test_a_task_is_called_and_enqueued_like_this() -> None:
    assert shape(Task.options).replace("* ", "").replace("=", "") == TASK_OPTIONS
    public = {name for kind in (Task, Bound) for name in vars(kind) if not name.startswith("_")}
    assert public == {
        "definition", "name", "queue", "options", "job", "enqueue", "enqueue_many", "aenqueue", "aenqueue_many",
    }  # fmt: skip
    assert {name for name in vars(Queue) if not name.startswith("_")} == {"name", "task"}


def test_a_task_is_still_a_plain_function() -> None:
    with App("postgresql://nowhere/x") as app:

        @app.queue("q").task
        def add(a: int, b: int = 2) -> int:
            """Adds."""
            return a + b

        assert add(1) == 3
        assert (add.__doc__, add.name, add.queue) == ("Adds.", "add", "q")


def test_every_error_is_one_of_ours_and_says_so() -> None:
    tree = {
        name: kind.__mro__[1].__name__
        for name in NAMES
        if isinstance(kind := getattr(penstock, name), type) and issubclass(kind, PenstockError)
    }
    assert tree == {
        "PenstockError": "Exception",
        **dict.fromkeys(
            ("QueueFull", "PartitionUnavailable", "RequestTimeout", "LeaseLost", "UnknownTask", "InvalidInput",
             "SchemaMismatch", "NotFound", "JobFailed", "ResultTimeout", "WorkerStuck"),
            "PenstockError",
        ),
    }  # fmt: skip
    assert issubclass(penstock.ResultTimeout, TimeoutError)
    assert str(penstock.QueueFull("x", 10_000)) == "queue 'x' is full: max_length 10000"


def test_the_states_are_these_and_equal_their_text() -> None:
    assert [str(state) for state in penstock.State] == STATES
    assert all(state == text for state, text in zip(penstock.State, STATES, strict=True))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"shards": "postgresql://a/x"}, "a list of URLs is needed"),
        ({"shards": []}, "a list of URLs is needed"),
        ({"shards": ["postgresql://a/x", "postgresql://a/x"]}, "given twice"),
        ({"shards": ["postgresql://a/x", "nowhere"]}, "a PostgreSQL URL is needed"),
        ({"embedded_shards": 0}, "embedded_shards"),
        ({"embedded_shards": 2, "shards": ["postgresql://a/x"]}, "not several of them"),
        ({"embedded_shards": 2, "embedded": False}, "leave one of the two out"),
        ({"embedded": "no"}, "embedded: must be True or False"),
        ({"url": "postgresql://a/x,postgresql://b/x"}, "several URLs"),
        ({"url": "postgresql+psycopg://a:secret@b/x"}, r"^url: '\+psycopg' names a driver, as only SQLAlchemy does; "),
    ],
)
def test_databases_that_cannot_be_meant_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        App(**options)


def test_an_option_that_never_existed_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="colour"):
        App("postgresql://nowhere/x").queue("q", colour="red")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="colour"):
        App("postgresql://nowhere/x", colour="red")  # type: ignore[call-arg]


def test_a_queue_declared_twice_alike_is_one_and_differently_is_refused() -> None:
    app = App("postgresql://nowhere/x")
    assert app.queue("q", partitions=2) is app.queue("q", partitions=2)
    with pytest.raises(InvalidInput, match="twice") as caught:
        app.queue("q", partitions=3)
    assert caught.value.field == "partitions"


def test_another_task_under_a_name_of_a_queue_is_refused_and_on_two_queues_is_two() -> None:
    app = App("postgresql://nowhere/x")
    app.queue("a").task(name="t")(print)
    app.queue("b").task(name="t")(print)
    with pytest.raises(InvalidInput, match="already") as caught:
        app.queue("a").task(name="t")(lambda: None)
    assert caught.value.field == "name"


def test_declaring_does_no_input_or_output() -> None:
    app = App("postgresql://nowhere.invalid/x")
    app.queue("q").task(name="t")(print)
    app.close()


def test_what_the_database_says_otherwise_is_logged_once_and_used(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with App(database_url) as first:
        first.queue("q", partitions=2, max_length=5)
        first.migrate()
    with App(database_url) as second, caplog.at_level(logging.WARNING, logger="penstock"):
        second.queue("q", partitions=4, max_length=7, max_wait=9.0)
        for _ in range(3):
            assert len(second.stats("q").partitions) == 2
        second.queues()
    (record,) = [record for record in caplog.records if "declared here" in record.getMessage()]
    said = record.getMessage()
    assert "partitions=4 (the database has 2)" in said
    assert "max_length=7 (the database has 5)" in said
    assert "max_wait=9.0 (the database has None)" in said


def test_what_the_database_says_otherwise_about_limits_is_logged_in_one_line(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with App(database_url) as first:
        first.queue("q", limit=2, rate="30/m", fair_by="tenant", weights={"a": 2})
        first.migrate()
    with App(database_url) as second, caplog.at_level(logging.WARNING, logger="penstock"):
        second.queue("q", limit=3, rate="60/m", per_key_rate="1/s", fair_by="tenant", on_dead="halt")
        second.migrate()
        assert second.stats("q").limit == 2
    (record,) = [record for record in caplog.records if "declared here" in record.getMessage()]
    assert record.getMessage() == (
        "queue 'q' is declared here with limit=3 (the database has 2), rate=1/s (the database has 30/m), "
        "per_key_rate=1/s (the database has None), on_dead=halt (the database has continue): "
        "the database's value is used"
    )


@pytest.mark.parametrize("options", [{}, {"max_wait": 9.0}])
def test_only_options_that_a_declaration_gives_are_compared_with_the_database(
    database_url: str, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    with App(database_url) as owner:
        owner.queue("q", partitions=3, limit=5, rate="30/m", per_key_rate="1/s", on_dead="halt", max_length=7)
        owner.migrate()
    with App(database_url) as producer, caplog.at_level(logging.WARNING, logger="penstock"):
        task = producer.queue("q", **options).task(name="t")(print)
        task.enqueue()
        assert producer.stats("q").limit == 15
    said = "queue 'q' is declared here with max_wait=9.0 (the database has None): the database's value is used"
    assert [record.getMessage() for record in caplog.records] == [said] * len(options)


def test_the_same_rules_written_otherwise_are_no_difference(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with App(database_url) as first:
        first.queue("q", order="key", per_key=3, rate="60/m")
        first.migrate()
    with App(database_url) as second, caplog.at_level(logging.WARNING, logger="penstock"):
        second.queue("q", per_key=3, rate="1/s")
        second.migrate()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("first", "second", "field", "said"),
    [
        ({}, {"order": "key"}, "order", "order='key', per_key=1 (the database has order=None)"),
        ({"order": "key"}, {}, "order", "order=None (the database has order='key', per_key=1)"),
        ({"order": "key"}, {"per_key": 2}, "per_key", "per_key=2 (the database has order='key', per_key=1)"),
        ({"fair_by": "tenant"}, {}, "fair_by", "fair_by=None (the database has 'tenant')"),
    ],
)
def test_another_order_than_the_database_has_is_refused_and_both_are_named(
    database_url: str, first: dict[str, Any], second: dict[str, Any], field: str, said: str
) -> None:
    with App(database_url) as app:
        app.queue("q", **first)
        app.migrate()
    with App(database_url) as other:
        task = other.queue("q", **second).task(name="t")(print)
        for call in (other.migrate, task.enqueue, lambda: other.stats("q"), lambda: other.work(until_idle=True)):
            with pytest.raises(InvalidInput) as caught:
                call()
            assert said in str(caught.value)
            assert caught.value.field == field


def test_a_queue_whose_name_is_another_s_partition_is_refused(database_url: str) -> None:
    with App(database_url) as app:
        app.queue("q", partitions=2)
        app.migrate()
        app.queue("q__p1")
        with pytest.raises(InvalidInput, match="partition"):
            app.migrate()


def test_any_queue_the_database_knows_can_be_asked_about(database_url: str) -> None:
    with App(database_url) as first:
        first.queue("q")
        first.migrate()
    with App(database_url) as second:
        assert second.stats("q").queue_length == 0
        assert [stats.queue for stats in second.queues()] == ["q"]
        second.pause("q")
        assert second.stats("q").paused
        with pytest.raises(NotFound, match="nowhere"):
            second.stats("nowhere")

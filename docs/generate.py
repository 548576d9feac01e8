"""Writes the pages of the reference that follow from the code: api.md, cli.md, http.md, spark.md, metrics.md, and the
vectors of key-hash.md.

    python docs/generate.py

A test sees to it that the pages in the repository are what this would write.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, get_overloads, get_type_hints

import typer

import penstock
import penstock.spark
from penstock.app.inputs import Filters, FiltersInQueue
from penstock.cli.program import program
from penstock.client import Bound, TaskWithContext
from penstock.client.testing import Testing, TestJob
from penstock.metrics import OF_SYSTEM, OF_WORKER, Metric
from penstock.metrics.series_bound import MOST_PARTITIONS, MOST_QUEUES, MOST_TASKS
from penstock.server.attention import attention
from penstock.server.audit import audit
from penstock.server.causes import causes
from penstock.server.crons import crons
from penstock.server.doctor import doctor
from penstock.server.due import due
from penstock.server.events import events
from penstock.server.job_acts import job_acts
from penstock.server.jobs import jobs
from penstock.server.load_bodies import load_bodies
from penstock.server.loads import loads
from penstock.server.openapi import describe
from penstock.server.operation import EVENTS, Operation
from penstock.server.operations import OPERATIONS
from penstock.server.problem import CODES
from penstock.server.produce import produce
from penstock.server.queue_acts import queue_acts
from penstock.server.queues import queues
from penstock.server.remote_work import remote_work
from penstock.server.search import search
from penstock.server.shards import shards
from penstock.server.tokens import tokens
from penstock.server.worker_list import worker_list
from penstock.worker import BOUNDS

REFERENCE = Path(__file__).resolve().parent / "reference"

SECTIONS: list[tuple[str, str, list[Any]]] = [
    (
        "The app",
        "What each option means is told in [configuration](configuration.md).",
        [penstock.App, penstock.Shard],
    ),
    (
        "Queues, tasks, jobs to be",
        "`app.queue(...)` gives a `Queue`, `@queue.task` a `Task`, `task.options(...)` a `Bound` and `task.job(...)` a "
        "`PendingJob`. A `Task` can do all that a `Bound` can. A `Handler[P, R]` is a function with the parameters P, "
        "a `HandlerWithContext[P, R]` one with a `context` before them, and `Declare` makes a `Task` of either; "
        "`DeclareBatch` makes one whose jobs are enqueued as items, or by the names of their fields.",
        [penstock.Queue, penstock.Task, TaskWithContext, Bound, penstock.PendingJob],
    ),
    (
        "In a handler",
        "A handler with a parameter named `context`, which comes first or has a default, is given one; with `batch=` "
        "it is a `BatchContext`; `context.trace` is a `TraceContext`. The others are raised.",
        [
            penstock.Context,
            penstock.BatchContext,
            penstock.TraceContext,
            penstock.Retry,
            penstock.Snooze,
            penstock.Discard,
        ],
    ),
    (
        "What is read back",
        "All of these are frozen: what a call returned stays what it was.",
        [
            penstock.Job,
            penstock.Failure,
            penstock.Edit,
            penstock.State,
            penstock.JobPage,
            penstock.JobAct,
            penstock.Stats,
            penstock.PartitionStats,
            penstock.History,
            penstock.Minute,
            penstock.Percentiles,
            penstock.Cause,
            penstock.FailureHistory,
            penstock.FailuresOfCause,
            penstock.QueueRules,
            penstock.Explanation,
            penstock.BlockedKey,
            penstock.HotKeys,
            penstock.HotKey,
            penstock.Attention,
            penstock.SearchHit,
            penstock.Check,
            penstock.Due,
            penstock.DueSpan,
            penstock.RunningJob,
            penstock.Resize,
            penstock.Drain,
            penstock.DrainRest,
            penstock.Worked,
            penstock.WorkerInfo,
            penstock.Cron,
            penstock.Load,
            penstock.Token,
            penstock.Role,
            penstock.AuditEntry,
            penstock.Event,
        ],
    ),
    (
        "In the log",
        "See [logs of a worker](../how-to/logging.md).",
        [penstock.JobFilter, penstock.JsonFormatter],
    ),
    (
        "In tests",
        "`app.testing()` gives a `Testing`: see [test your tasks](../how-to/test-your-tasks.md).",
        [Testing, TestJob],
    ),
]

# What the layers around the app use; not for users, and free to change.
INTERNAL = {
    "App.database",
    "App.tasks",
    "App.create_embedded",
    "App.dead_letters",
    "App.ended_jobs",
    "App.known_jobs",
    "App.overview",
    "App.queue_names",
    "App.databases",
    "App.is_embedded",
    "App.unchecked_databases",
    "QueueRules.changed",
    "QueueRules.contradictions",
    "QueueRules.declared",
    "QueueRules.differences",
    "QueueRules.fixed_differences",
    "QueueRules.from_json",
    "QueueRules.halts_on_dead",
    "QueueRules.has_key_rule",
    "QueueRules.holds_on_retry",
    "QueueRules.is_fair",
    "QueueRules.is_owned",
    "QueueRules.starts_a_second",
    "QueueRules.starts_of_key_a_second",
    "QueueRules.to_json",
    "QueueRules.unknown_in",
    "Stats.of",
    "Testing.enqueue",
}
# Made by calling them; the others come from a call of something else.
CONSTRUCTED = (penstock.App, penstock.Retry, penstock.Snooze, penstock.Discard)
ALIASES = {
    "Limits": "int | str | float | Mapping[str, float] | None",
    "KeyOf": "str | Callable[..., Any] | None",
    "Exceptions": "type[BaseException] | tuple[type[BaseException], ...]",
}
# What these stand for is written out.
FILTERS = {"Unpack[Filters]": Filters, "Unpack[FiltersInQueue]": FiltersInQueue}
BY_HAND = "<!-- Written by docs/generate.py: change the code's docstrings, not this page. -->"


def api_page() -> str:
    """Every public name with its signature and meaning."""
    lines = ["# Python API", "", BY_HAND, "", "Everything here is imported from `penstock`.", ""]
    for title, about, kinds in SECTIONS:
        lines += [f"## {title}", "", about, ""]
        for kind in kinds:
            lines += _kind(kind)
    lines += ["## Errors", "", "Told in [errors](errors.md).", ""]
    lines += [f"- `{name}`: {_summary(getattr(penstock, name))}" for name in _errors()]
    lines += ["", "## The version", "", "`penstock.__version__` is the version as text.", ""]
    return "\n".join(lines)


def cli_page() -> str:
    """Every command with its arguments and options."""
    lines = [
        "# Command line",
        "",
        BY_HAND,
        "",
        "`python -m penstock` is the same as `penstock`. Commands that print take `--json`. Exit codes: 0 done, 1 "
        "refused, 2 wrong use, 75 a worker is stuck and is to be started again, 124 a watch took too long, 130 "
        "interrupted. "
        "`penstock watch` exits with 1 also where what it watched did not go well.",
        "",
        "`--json` prints the fields of the [Python object](api.md#what-is-read-back) that the same call gives, under "
        "their names: `stats QUEUE` a `Stats`, `job` a `Job`, `explain` an `Explanation`, `resize` and `shards move` a "
        "`Resize`, `shards drain` a `Drain`, `work` a `Worked` and its `seconds`. Lists stand under their plural, with "
        'the shards that did not answer: `{"jobs": […], "unavailable": []}`, and so `workers`, `crons`, `loads`, the '
        "`keys` of `blocked-keys` and, each without its URL, `shards`. `stats` of every queue, `doctor` and `sql` "
        "print a list. Ids of jobs and workers are text, for they pass what JavaScript's numbers hold; times are text "
        'in ISO 8601; a key that is no text is `{"base64": "…"}`; what drains is `{"partition": …, "jobs": …}`. What a '
        "command changed it names: `enqueue` prints `id`, `cancel ID` prints `job_id` and `state`.",
        "",
    ]
    panel = ""
    for name, command in typer.main.get_command(program).commands.items():  # type: ignore[attr-defined]
        if command.rich_help_panel != panel:
            panel = command.rich_help_panel
            lines += [f"## {panel}", ""]
        lines += _command(name, command)
        for further, part in getattr(command, "commands", {}).items():
            lines += _command(f"{name} {further}", part)
    return "\n".join(lines)


def _command(name: str, command: Any) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(["penstock", name, *(each.metavar for each in arguments), "[OPTIONS]" if options else ""])
    lines = [f"### {name}", "", "```text", usage.rstrip(), "```", "", _joined(command.help), ""]
    lines += ["| | |", "| --- | --- |"] if command.params else []
    lines += [f"| `{_cell(each.metavar)}` | {_cell(each.help)} |" for each in arguments]
    lines += [f"| {_option(each)} | {_cell(each.help)}{_default(each)} |" for each in options]
    example = (command.epilog or "").removeprefix("Example: ")
    return [*lines, "", *(["```text", example, "```", ""] if example else [])]


SPARK_OPTIONS = """## The data source

After `ps.register(spark)`, `format("penstock")` takes these options. Others are refused.

| option | load | stream in | `table` | stream out | |
| --- | --- | --- | --- | --- | --- |
| `url` | yes | yes | yes | yes | the database, or several shards with spaces between; Spark hides it in its logs |
| `queue` | yes | yes | yes | yes | the queue; of a table, only its jobs |
| `task` | yes | yes | yes | | the task, where no column `task` names it; of a table, only its jobs |
| `key` | yes | yes | yes | | the column that is the key; of a table, only jobs with this key |
| `load` | yes | | | | the load's name; made up where none is given |
| `sink` | | yes | | | the stream's name; its query's id where none is given |
| `order_by` | yes | yes | | | columns to sort each task's rows by |
| `connections` | yes | yes | | | how many tasks write at a time, to each shard: 4 |
| `bad_rows` | yes | yes | | | `fail`, or a folder for rows that are no jobs |
| `traceparent`, `tracestate` | yes | | | | the [trace](../how-to/trace-jobs.md#from-spark) that its jobs link to |
| `table` | | | yes | | `finished`, `jobs` or `failures` |
| `columns` | | | yes | | which of its columns, separated by commas |
| `outcome`, `state` | | | yes | | only jobs that ended so, or are in this state |
| `since`, `until` | | | yes | | only what ended, or was enqueued, from then on, or before |
| `partitions` | | | yes | yes | how many tasks read at a time |
| `max_jobs` | | | | yes | the most jobs of a micro-batch |
| `tasks` | | | | yes | only these, separated by commas |
| `lease` | | | | yes | for how many seconds a stream that is silent keeps its jobs: 60 |
"""


def spark_page() -> str:
    """Every function of the pipeline, and the options of its data source."""
    lines = ["# Spark", "", BY_HAND, "", "Everything here is imported from `penstock.spark`, as `ps`.", ""]
    lines += ["## Functions", ""]
    values = {name: getattr(penstock.spark, name) for name in penstock.spark.__all__}
    for name, value in values.items():
        if not isinstance(value, type):
            lines += [f"### ps.{name}", "", *_signature(name, value, is_method=False), *_paragraphs(value), ""]
    lines += ["## Outcomes", "", "What a handler of `ps.process` says of each row.", ""]
    for name, value in values.items():
        if isinstance(value, type):
            lines += [f"### ps.{name}", "", *_signature(name, value), *_paragraphs(value), ""]
    return "\n".join([*lines, SPARK_OPTIONS])


def key_hash_page() -> str:
    """The page as it is, with its vectors anew."""
    page = (REFERENCE / "key-hash.md").read_text(encoding="utf-8")
    vectors = json.loads(files("penstock.routing").joinpath("vectors.json").read_text(encoding="utf-8"))["vectors"]
    counts = list(vectors[0]["partition"])
    table = [
        f"| key, as bytes | h64 | {' | '.join(f'of {count}' for count in counts)} |",
        "| --- | --- |" + " --- |" * len(counts),
    ]
    table += [
        f"| {_key(each['key_hex'])} | {each['h64']} | {' | '.join(str(each['partition'][c]) for c in counts)} |"
        for each in vectors
    ]
    return re.sub(
        r"(<!-- vectors -->\n).*(<!-- /vectors -->)", lambda m: m[1] + "\n".join(table) + "\n" + m[2], page, flags=re.S
    )


# The subjects of the HTTP API, in the order of the page.
HTTP_SUBJECTS: list[tuple[str, list[Any]]] = [
    ("Produce", [produce, load_bodies]),
    ("Work", [remote_work]),
    ("Jobs", [jobs, job_acts]),
    ("Queues", [queues, queue_acts]),
    ("Causes of failures", [causes]),
    ("Loads", [loads]),
    ("Crons, and what is due", [crons, due]),
    ("Attention and search", [attention, search]),
    ("Workers, shards, tokens, the audit and the doctor", [worker_list, shards, tokens, audit, doctor]),
    ("Events", [events]),
]
HTTP_INTRODUCTION = """Below `/api/v1`; [serve it](../how-to/serve-the-api.md) tells how to begin, and who needs a
[token](../how-to/security.md). `GET /api/v1/openapi.json` has the same for programs.

Bodies and answers are JSON. Ids are text, for they pass what JavaScript's numbers hold; times are ISO 8601 with their
zone; a key that is no text is `{"base64": "…"}`. A name in a path may hold anything: percent-encode it, a `/` too. A
body whose fields can all be left out can be left out itself. Fields and options that there are not are refused.

With a role of `read`, `produce` or `work` a token may do what bears that role, with `admin` everything. A token for
some queues keeps to them: where it is for several, lists of jobs need `queue`. A tenant's gets that tenant's jobs, and
nothing that tells of others. What it may not see is answered as what does not exist.
"""


def http_page() -> str:
    """Every operation of the HTTP API, and the values that it takes and gives."""
    document = describe(OPERATIONS)
    lines = ["# HTTP API", "", BY_HAND, "", *HTTP_INTRODUCTION.splitlines(), ""]
    for title, subjects in HTTP_SUBJECTS:
        lines += [f"## {title}", ""]
        for operation in (each for subject in subjects for each in subject):
            lines += _operation(operation, document["paths"][operation.path][operation.method.lower()])
    lines += ["## Errors", "", *_joined_lines(PROBLEMS), "| code | status | |", "| --- | --- | --- |"]
    lines += [f"| `{code}` | {status} | {title} |" for code, (status, title) in sorted(CODES.items())]
    lines += ["", "## Values", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if "enum" in schema:
            lines += [f"### {name}", "", *_described(schema.get("description", "")), f"{_schema(schema)}.", ""]
        if "properties" in schema:
            lines += [f"### {name}", "", *_described(schema.get("description", "")), *_fields(schema), ""]
    return "\n".join(lines)


PROBLEMS = """Answered as `application/problem+json`, with the fields of [`Problem`](#problem). `code` is for programs,
`detail` says what to do, and `field` names the value that cannot be used. `outcome` says of a call that failed whether
something may be written, and `written` which jobs of an enqueue are. Where coming again later helps, `Retry-After` says
when.
"""


def _operation(operation: Operation, described: dict[str, Any]) -> list[str]:
    lines = [f"### {operation.method} /{operation.path.strip('/')}", "", f"Role: `{operation.may}`.", ""]
    lines += _described(described["description"])
    rows = [
        f"| `{each['name']}` | {_schema(each['schema'])} |" for each in described["parameters"] if each["in"] == "query"
    ]
    if rows:
        lines += ["| option | |", "| --- | --- |", *rows, ""]
    if "requestBody" in described:
        forms = [f"`{media}`: {_schema(form['schema'])}" for media, form in described["requestBody"]["content"].items()]
        lines += [f"Body, {'; '.join(forms)}.", ""]
    answers = []
    for status in sorted(operation.answers):
        content = described["responses"][str(status)].get("content", {})
        shown = next((_schema(form["schema"]) for form in content.values()), "nothing")
        answers.append(f"{status}: {'`text/event-stream`' if EVENTS in content else shown}")
    return [*lines, f"Answer, {'; '.join(answers)}.", ""]


def _described(text: str) -> list[str]:
    """Paragraphs, each in one line, and an empty line behind them."""
    return [line for paragraph in text.split("\n\n") if paragraph for line in (_joined(paragraph), "")]


def _joined_lines(text: str) -> list[str]:
    return [*text.splitlines(), ""]


def _fields(schema: dict[str, Any]) -> list[str]:
    if not schema["properties"]:
        return ["No fields."]
    needed = schema.get("required", [])
    takes = "default" in str(schema) or schema.get("additionalProperties") is False
    rows = []
    for name, each in schema["properties"].items():
        must = " (needed)" if takes and name in needed else ""
        rows.append(f"| `{name}` | {_schema(each)}{must} |")
    return ["| field | |", "| --- | --- |", *rows]


def _schema(schema: dict[str, Any]) -> str:
    """A schema of JSON in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(_schema(each) for each in schema.get("anyOf", schema.get("oneOf"))))
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_schema(schema['items'])}" if schema.get("items") else "list"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"object of {_schema(inner)}" if isinstance(inner, dict) and inner else "object"
    words = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "null": "null",
    }
    shown = words.get(str(kind), "anything")
    if schema.get("format") == "date-time":
        shown = "time"
    if schema.get("format") == "binary":
        shown = "as it is"
    if "minimum" in schema or "maximum" in schema:
        bounds = (f"{each:g}" for each in (schema.get("minimum", 0), schema.get("maximum")) if each is not None)
        shown += f", {' to '.join(bounds)}"
    default = schema.get("default")
    return shown if default in (None, [], {}, "") else f"{shown}; default `{json.dumps(default)}`"


METRICS = """# Metrics

{by_hand}

In the text format of Prometheus, version 0.0.4. How they are scraped, and what to alert on, is told in [probes and
alerts](../how-to/probes-and-alerts.md).

Labels are names of the catalogue: a queue, a partition, a task, the number of a shard. A key or a tenant is never one.

## Of the whole system

A server tells them at `/metrics`, from the databases, at most a second old. Every server tells the same: take the
largest over them, `max by (queue, partition, shard) (…)`, and add that up. A partition that moved to another shard is
told of both; what it did before counts where it did it. What a shard that does not answer would tell is missing, not
zero.

There are series of their own for at most {partitions:,} partitions, {queues:,} queues and {tasks:,} tasks. Beyond
that the partitions of a queue are told as one without the label `partition`, those of the largest queues first, and
the queues beyond, in the order of their names, as one without `queue`: sums stay right. `penstock_folded_partitions`,
`penstock_folded_queues` and `penstock_left_out_tasks` say that it is so. A task has a label only where an app has
announced it: who enqueues in SQL may make up any name.

{system}

How many attempts were retried, and how many jobs rescued, no database counts: workers tell that.

## Of a worker

`penstock work --metrics-port` tells them, of that process alone and since it began; they are added up over workers.
Prometheus gives each its own `instance`. A job counts once its end has been written; what runs just now is in
`penstock_worker_slots_used`. How many attempts have started is `penstock_worker_wait_seconds_count`.

{worker}

The buckets of both histograms end at {bounds} seconds, and at infinity. They do not change.
"""


def metrics_page() -> str:
    """Every metric with its type, labels and meaning."""
    return METRICS.format(
        by_hand=BY_HAND.replace("docstrings", "definitions"),
        partitions=MOST_PARTITIONS,
        queues=MOST_QUEUES,
        tasks=MOST_TASKS,
        system=_metrics(OF_SYSTEM),
        worker=_metrics(OF_WORKER),
        bounds=", ".join(BOUNDS),
    )


def _metrics(metrics: Iterable[Metric]) -> str:
    lines = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        lines.append(f"| `{each.name}` | {each.kind} | {labels} | {_cell(each.help)} |")
    return "\n".join(lines)


PAGES = {
    "api.md": api_page,
    "cli.md": cli_page,
    "http.md": http_page,
    "spark.md": spark_page,
    "metrics.md": metrics_page,
    "key-hash.md": key_hash_page,
}


def _errors() -> Iterator[str]:
    for name in penstock.__all__:
        value = getattr(penstock, name)
        if isinstance(value, type) and issubclass(value, penstock.PenstockError):
            yield name


def _kind(kind: type) -> list[str]:
    lines = [f"### {kind.__name__}", ""]
    if kind in CONSTRUCTED:
        lines += _signature(kind.__name__, kind)
    lines += [*_paragraphs(kind), ""]
    if issubclass(kind, enum.Enum):
        return [*lines, ", ".join(f"`{member.value}`" for member in kind) + ".", ""]
    rows = []
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        rows += [f"| `{name}` | `{_cell(_type(hints[name]))}` |" for name in kind._fields]
    if dataclasses.is_dataclass(kind) and kind is not penstock.PendingJob:
        fields = [(each.name, each.type) for each in dataclasses.fields(kind)]
        fields += [
            (name, _returned(each))
            for name, each in vars(kind).items()
            if isinstance(each, property) and f"{kind.__name__}.{name}" not in INTERNAL
        ]
        rows += [f"| `{name}` | `{_cell(_type(type_))}` |" for name, type_ in fields]
    if rows:
        lines += ["| field | type |", "| --- | --- |", *rows, ""]
    for name, member in _members(kind):
        if isinstance(member, property):
            lines += [f"#### {kind.__name__}.{name}", "", f"`{_returned(member)}`: {_summary(member.fget)}", ""]
        else:
            lines += [f"#### {kind.__name__}.{name}", ""]
            lines += [*_signature(name, member, is_method=True), *_paragraphs(member), ""]
    return lines


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        if name.startswith("_") or f"{kind.__name__}.{name}" in INTERNAL:
            continue
        plain = member.__func__ if isinstance(member, classmethod) else member
        if (isinstance(plain, property) and plain.fget.__doc__) or inspect.isfunction(plain):
            yield name, plain


def _returned(member: property) -> str:
    assert member.fget is not None  # noqa: S101
    return _type(inspect.signature(member.fget).return_annotation)


def _signature(name: str, function: Any, *, is_method: bool = False) -> list[str]:
    """Every form in which a function may be called, as code."""
    forms = (get_overloads(function) if is_method else []) or [function]
    return ["```py", *(_form(name, form, is_method=is_method) for form in forms), "```", ""]


def _form(name: str, function: Any, *, is_method: bool) -> str:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
    shown: list[str] = []
    has_star = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not has_star:
            shown.append("*")
            has_star = True
        if each.kind is each.VAR_KEYWORD and each.annotation in FILTERS:
            shown += ["*"] * (not has_star)
            given = sorted(FILTERS[each.annotation].__annotations__.items(), key=lambda each: each[0] != "queue")
            shown += [f"{name}: {_type(getattr(kind, '__forward_arg__', kind))} = None" for name, kind in given]
            continue
        stars = "*" * (each.kind is each.VAR_POSITIONAL) + "**" * (each.kind is each.VAR_KEYWORD)
        text = stars + each.name
        if each.annotation is not each.empty:
            text += f": {_type(each.annotation)}"
        if each.default is not each.empty:
            text += f" = {'...' if inspect.isfunction(each.default) else repr(each.default)}"
        shown.append(text)
    returned = signature.return_annotation
    end = ")" if returned is signature.empty or not is_method else f") -> {_type(returned)}"
    start = "async def " if inspect.iscoroutinefunction(function) else ""
    line = f"{start}{name}({', '.join(shown)}{end}"
    if len(line) > 100:
        line = f"{start}{name}(\n" + "".join(f"    {each},\n" for each in shown) + end
    return line


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    for alias, meaning in ALIASES.items():
        text = re.sub(rf"\bUnpack\[{alias}\]|\b{alias}\b", meaning, text)
    return text.replace(" | None | None", " | None")


def _paragraphs(value: Any) -> list[str]:
    """A docstring as Markdown: its paragraphs unwrapped, what is indented as code."""
    lines: list[str] = []
    for paragraph in inspect.getdoc(value).split("\n\n") if inspect.getdoc(value) else []:  # type: ignore[union-attr]
        if paragraph.startswith("    "):
            lines += ["", "```text", inspect.cleandoc(paragraph), "```"]
        else:
            lines += ["", _joined(paragraph)] if lines else [_joined(paragraph)]
    return lines


def _summary(value: Any) -> str:
    return _joined((inspect.getdoc(value) or "").split("\n\n")[0])


def _joined(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _joined(text).replace("|", "\\|")


def _option(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.opts[0].strip('-').upper().replace('-', '_')}"
    return f"`{option.opts[0]}{value}`"


def _default(option: Any) -> str:
    return "" if option.is_flag or option.default is None else f" Default: {option.default}."


def _key(key_hex: str) -> str:
    octets = bytes.fromhex(key_hex)
    if not octets:
        return "(empty)"
    if octets == bytes(range(256)):
        return "`00` `01` … `ff`"
    if len(octets) > 40:
        return f"`{octets[:1].hex()}`, {len(octets)} times"
    text = octets.decode(errors="replace")
    is_shown = text.isprintable() and text.strip() and "\N{REPLACEMENT CHARACTER}" not in text
    return f"`{key_hex}` ({_cell(text)})" if is_shown else f"`{key_hex}`"


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

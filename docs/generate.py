"""Writes the pages of the reference that follow from the code: api.md, cli.md, spark.md, and the vectors of
key-hash.md.

    python docs/generate.py

A test sees to it that the pages in the repository are what this would write.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
from collections.abc import Iterator
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
            penstock.Stats,
            penstock.PartitionStats,
            penstock.QueueRules,
            penstock.Explanation,
            penstock.BlockedKey,
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
    "App.databases",
    "App.is_embedded",
    "App.unchecked_databases",
    "QueueRules.changed",
    "QueueRules.contradictions",
    "QueueRules.declared",
    "QueueRules.differences",
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
        "refused, 2 wrong use, 75 a worker is stuck and is to be started again, 130 interrupted.",
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
    return [*lines, ""]


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


PAGES = {"api.md": api_page, "cli.md": cli_page, "spark.md": spark_page, "key-hash.md": key_hash_page}


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

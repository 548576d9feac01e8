"""The command line as such: help, exit codes, refusals in one line, terminals of any width."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
from tests.servers import created_database
from tests.system.cli_runs import CommandLine, Run

from penstock import App
from penstock.cli import main
from penstock.cli.examples import EXAMPLES
from penstock.cli.program import program
from penstock.model.queue import QueueDefinition
from penstock.storage.catalogue.queues import declare_queue
from penstock.storage.connection.database import Database
from penstock.storage.schema import EMPTY, OURS, check_schema, plan
from penstock.version import __version__

COMMANDS = [
    "up", "work", "serve", "enqueue", "top", "watch", "stats", "jobs", "job", "explain", "workers", "causes",
    "blocked-keys", "audit",
    "load", "loads", "pause-load", "resume-load", "cancel-load", "report", "advise", "archive", "replay", "cancel",
    "retry", "reschedule", "pause", "resume", "purge", "limit", "release", "resize", "delete-queue", "stop-worker",
    "migrate", "sql", "grant", "doctor", "completion", "version", "token", "shards", "crons",
]  # fmt: skip


@pytest.fixture
def penstock(tmp_path: Path, database_url: str) -> CommandLine:
    return CommandLine(tmp_path, database_url)


InProcess = Callable[..., Run]


@pytest.fixture
def in_process(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> InProcess:
    """The same in the test's own process, for many short runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", database_url)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*words: str) -> Run:
        monkeypatch.setattr(sys, "argv", ["penstock", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Run(ended.value.code, *capfd.readouterr())

    return run


def test_a_flag_of_the_help_has_no_value_and_an_option_names_its_own(in_process: InProcess) -> None:
    first = in_process("--help").out
    assert re.search(r"--version +Print the version", first)
    assert not re.search(r"<bool>|<list|<int>", first + "".join(in_process(name, "--help").out for name in COMMANDS))
    assert re.search(r"--queue +QUEUE\[=N\] +Only this queue", in_process("work", "--help").out)


def test_a_worker_that_would_run_nothing_is_refused(in_process: InProcess, tmp_path: Path) -> None:
    (tmp_path / "without_tasks.py").write_text("from penstock import App\napp = App()\n", encoding="utf-8")
    (tmp_path / "one_task.py").write_text(
        "from penstock import App\napp = App()\napp.queue('mail')\n@app.queue('other').task\ndef work() -> None: ...\n",
        encoding="utf-8",
    )
    for words in (("work", "without_tasks"), ("up", "without_tasks"), ("work", "one_task", "--queue", "mail")):
        run = in_process(*words)
        assert run.code == 1
        assert "declares no task" in run.err
        assert "App(imports=['shop.tasks'])" in run.err
    assert "for queue 'mail'" in in_process("work", "one_task", "--queue", "mail").err


def test_every_command_argument_and_option_has_help() -> None:
    group = typer.main.get_command(program)
    commands = group.commands  # type: ignore[attr-defined]
    assert list(commands) == COMMANDS
    parts = {
        f"{name} {part}": each for name in commands for part, each in getattr(commands[name], "commands", {}).items()
    }
    assert {"token create", "shards move"} <= parts.keys()
    # One that only has others is not asked for anything itself.
    alone = {name: command for name, command in commands.items() if name != "token"}
    for name, command in (alone | parts).items():
        assert 0 < len(command.help or "") <= (70 if name in commands else 120), name
        for parameter in command.params:
            assert getattr(parameter, "help", None), (name, parameter.name)
        options = {word for parameter in command.params for word in parameter.opts}
        assert "--json" in options, name


def test_every_command_shows_an_example_that_it_takes(in_process: InProcess) -> None:
    group: Any = typer.main.get_command(program)
    commands = dict(commands_of(group))
    assert {"retry", "token create", "shards move", "crons"} <= commands.keys()
    # One that only has others shows none.
    assert {name for name in commands if name != "token"} == EXAMPLES.keys()
    for name, example in EXAMPLES.items():
        assert commands[name].epilog == f"Example: {example}"
        assert example.startswith(f"penstock {name}"), name
        # As the command line reads it; what is wrong with it is raised, and nothing is run.
        words, command, context = shlex.split(example)[1:], group, None
        while True:
            context = command.make_context(command.name, [*words], parent=context)
            rest = [*context._protected_args, *context.args]
            if not hasattr(command, "commands") or not rest:
                break
            _, command, words = command.resolve_command(context, rest)
        assert command is commands[name], name
    shown = re.sub(r"\s+", " ", in_process("token", "create", "--help").out)
    assert f"Example: {EXAMPLES['token create']}" in shown


def commands_of(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by its words, those of groups too."""
    for name, command in group.commands.items():
        yield path + name, command
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{path}{name} ")


def test_help_and_version_are_printed(penstock: CommandLine) -> None:
    for words in ((), ("--help",), ("-h",)):
        shown = penstock.done(*words).out
        assert all(f" {command} " in shown for command in COMMANDS)
    assert "--until-idle" in penstock.done("work", "--help").out
    assert penstock.done("version").out == penstock.done("--version").out == f"penstock {__version__}\n"
    assert penstock.done("version", "--json").json == {"version": __version__}


def test_a_lake_without_a_name_is_refused_before_spark_starts(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # Spark's start would be refused.
    for words in (
        *(("archive", ""), ("archive", " "), ("report", ""), ("advise", "q", "--lake", "")),
        ("replay", "", "--where", "true", "--load", "x"),
    ):
        run = in_process(*words)
        assert (run.code, run.err[:18]) == (1, "error: lake: the p"), words


def test_wrong_use_is_exit_code_2_and_one_line(penstock: CommandLine) -> None:
    assert "see penstock --help" in penstock.wrong("nonsense")
    assert "see penstock jobs --help" in penstock.wrong("jobs", "--nonsense")
    assert "filter" in penstock.wrong("cancel")
    (penstock.folder / "tasks.py").write_text(
        "from penstock import App\napp = App()\n@app.queue('q').task\ndef t(a): ..."
    )
    assert "write key=value" in penstock.wrong("enqueue", "tasks", "t", "a")
    assert "given twice" in penstock.wrong("enqueue", "tasks", "t", "a=1", "a=2")


@pytest.mark.parametrize(
    "words",
    [
        ("job", "x"),
        ("job", "0"),
        ("job", "99999999999999999999"),
        ("job", "\x1b[31m"),
        ("job", "1024"),
        ("explain", "1024"),
        ("cancel", "1024"),
        ("retry", "1024"),
        ("reschedule", "1024", "now"),
        ("reschedule", "1024", "tomorrow"),
        ("reschedule", "1024", "999999999999d"),
        ("stats", "nope"),
        ("stats", "a\nb"),
        ("stats", ""),
        ("pause", "x" * 201),
        ("resume", "nope"),
        ("purge", "nope", "--yes"),
        ("jobs", "--state", "[red]"),
        ("jobs", "--limit", "0"),
        ("jobs", "--before", "x"),
        ("jobs", "--key", "k" * 513),
        ("cancel", "--state", "succeeded"),
        ("stats", "--url", "nonsense"),
        ("stats", "--url", ""),
        ("stats", "--url", "postgresql://u:secret@127.0.0.1:1/x"),
        ("stats", "--url", "postgresql://u:secret@[x"),
        ("stats", "--url", "postgresql://u:secret@h/x?sslmod=require"),
        ("stats", "--url", "postgresql://u:secret"),
        ("up", "--shards", "0"),
        ("up", "--shards", "17"),
        ("shards", "drain", "x"),
        ("shards", "move", "q", "0", "2"),
        ("work", "nope:app"),
        ("work", "tasks.py"),
        ("work", "../tasks:app"),
        ("work", ":"),
        ("work", "json:app"),
        ("enqueue", "nope", "task"),
    ],
    ids=ascii,
)
def test_bad_input_is_refused_in_one_line(in_process: InProcess, words: tuple[str, ...]) -> None:
    run = in_process(*words)
    assert (run.code, run.out) == (1, "")
    assert re.fullmatch("error: .+\n", run.err)
    assert run.err[:-1].isprintable()
    assert "secret" not in run.err


@pytest.mark.parametrize("command", ["work", "up"])
def test_a_worker_that_cannot_be_is_refused_before_it_says_that_it_works(penstock: CommandLine, command: str) -> None:
    (penstock.folder / "tasks.py").write_text("from penstock import App\napp = App()\napp.queue('q')\n")
    for option in ("concurrency", "grace"):
        said = penstock.refused(command, "tasks:app", f"--{option}", "0")
        assert f"{option}: " in said
        assert "working on" not in said


def test_what_is_not_done_to_a_job_is_a_refusal(in_process: InProcess, database_url: str) -> None:
    with App(database_url) as app:
        queue = app.queue("q")

        @queue.task(max_attempts=1)
        def run(fails: bool = False) -> None:
            assert not fails

        parent = run.enqueue(fails=True)
        child = run.options(after=[parent]).enqueue()
        done = run.enqueue()
        app.work(until_idle=True)
        waiting, blocked = run.enqueue(), run.options(after=[run.options(delay=900).enqueue()]).enqueue()
    for words, told in {
        ("cancel", str(done)): "had already ended: succeeded",
        ("retry", str(done)): "is not retried: finished: succeeded; dead letters can be, and jobs that wait for a time",
        ("retry", str(child)): f"is not retried: cancelled for {parent}, a dead letter: retry it and it waits again",
        ("retry", str(blocked)): "is not retried: blocked by ",
        ("reschedule", str(done), "1h"): "is succeeded, and does not wait for a time: nothing was changed",
    }.items():
        for json in ((), ("--json",)):
            run_ = in_process(*words, *json)
            assert (run_.code, run_.out) == (1, ""), words
            assert run_.err.startswith(f"error: job {words[1]} {told}"), run_.err
    for words in (("cancel", str(waiting)), ("cancel", str(waiting)), ("retry", str(parent)), ("retry", str(parent))):
        assert in_process(*words).code == 0


def test_a_broken_module_is_refused_with_the_place_where_it_broke(penstock: CommandLine) -> None:
    (penstock.folder / "broken.py").write_text("x = 1\ny = x / 0\n")
    said = penstock.refused("work", "broken:app")
    assert re.search(r"ZeroDivisionError: division by zero \(.*broken\.py, line 2\)", said)
    (penstock.folder / "wants.py").write_text("import not_installed\n")
    assert "No module named 'not_installed'" in penstock.refused("work", "wants:app")
    (penstock.folder / "other.py").write_text("from penstock import App\nmine = App()\n")
    assert "did you mean other:mine?" in penstock.refused("work", "other")
    assert "declares no queue 'q'" in penstock.refused("work", "other:mine", "--queue", "q")


def test_a_database_without_the_schema_is_refused_until_it_is_migrated(tmp_path: Path, empty_database_url: str) -> None:
    penstock = CommandLine(tmp_path, empty_database_url)
    assert "run `penstock migrate --url postgresql://" in penstock.refused("stats")
    newest = OURS.tables[-1].title
    made = penstock.done("migrate", "--json").json
    steps = [step.name for step in plan(EMPTY, OURS)]
    assert made == {"applied": steps, "tables": newest, "functions": OURS.version}
    assert penstock.done("migrate").out == f"the schema is up to date: {newest}, functions {OURS.version}\n"
    assert "no queue yet" in penstock.done("stats").out


def test_the_sql_that_is_printed_makes_the_same_schema(tmp_path: Path, empty_database_url: str) -> None:
    penstock = CommandLine(tmp_path, empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        for step in penstock.done("sql", "--json").json:
            connection.execute(step["sql"].encode())
        check_schema(connection)
    assert penstock.done("migrate", "--json").json["applied"] == []
    assert penstock.done("sql").out.startswith("-- There is nothing to do in schema penstock of ")


def test_the_sql_that_is_printed_is_what_the_database_lacks(tmp_path: Path, database_url: str) -> None:
    penstock = CommandLine(tmp_path, database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update penstock.function_set set version = 0")
        assert [each["name"] for each in penstock.done("sql", "--json").json] == [f"functions {OURS.version}"]
        for step in penstock.done("sql", "--json").json:
            connection.execute(step["sql"].encode())
        check_schema(connection)
        connection.execute("update penstock.function_set set version = 9, checksum = 'x'")
    # A newer version's: they stay.
    assert penstock.done("sql").out.startswith("-- There is nothing to do in schema penstock of ")
    said = "the schema is newer than this program: functions 9, not 1; they work with it, and stay as they are\n"
    assert penstock.done("migrate").out == said
    everything = [step.name for step in plan(EMPTY, OURS)]
    without_url = CommandLine(tmp_path, "")
    assert [each["name"] for each in without_url.done("sql", "--json").json] == everything
    assert [each["name"] for each in penstock.done("sql", "--new", "staging", "--json").json] == everything


def test_the_sql_that_is_printed_says_where_it_belongs_and_who_runs_it(tmp_path: Path, database_url: str) -> None:
    penstock = CommandLine(tmp_path, database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update penstock.function_set set version = 0")
        (owner,) = connection.execute("select current_user").fetchone() or ("",)
        name = connection.info.dbname
    printed = penstock.done("sql").out
    assert printed.startswith(
        f"-- Penstock {__version__}: what `penstock migrate` does to schema penstock, to functions"
    )
    assert f"/{name}.\n-- Run it by psql, as the role {owner}, which owns the schema.\n" in printed
    new = penstock.done("sql", "--new", "staging").out
    assert "does to schema staging" in new
    assert "as the role that owns the schema, or is to own it.\n" in new
    assert "penstock.table_file" not in new
    assert "leave --url out" in penstock.wrong("sql", "--new", "staging", "--url", database_url)


def test_the_sql_for_several_databases_is_to_be_run_on_each(
    tmp_path: Path, server_url: str, empty_database_url: str
) -> None:
    with created_database(server_url, "template1") as second:
        printed = CommandLine(tmp_path, f"{empty_database_url} {second}").done("sql").out
    assert re.search(r"^-- For each of these 2 databases: \S+, \S+\.$", printed, flags=re.MULTILINE)


def test_the_doctor_says_what_is_wrong_by_its_exit_code(penstock: CommandLine, database_url: str) -> None:
    run = penstock("doctor")
    assert run.code == 0
    assert "none is alive" in run.out
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into penstock.worker (id, name, host, pid, version, concurrency, lease_seconds, renewed_at)"
            " values (1, 'silent', 'h', 1, '0', 1, 1, now() - interval '1 hour')"
        )
    run = penstock("doctor", "--json")
    wrong = [check["name"] for check in run.json if not check["ok"]]
    assert (run.code, wrong) == (1, ["workers"])
    assert "bad  workers" in penstock("doctor").out


@pytest.mark.parametrize("columns", [30, 80])
def test_tables_fit_the_terminal(penstock: CommandLine, database_url: str, columns: int) -> None:
    make_jobs(database_url)
    for words in (("jobs",), ("stats",)):
        lines = _without_escapes(penstock.on_terminal(*words, columns=columns).out).splitlines()
        assert max(map(len, lines)) <= columns, lines
        if words == ("jobs",):
            assert [line.split()[1] for line in lines[:2]] == ["state", "ready"]


def test_output_without_a_terminal_is_plain_and_whole(penstock: CommandLine, database_url: str) -> None:
    make_jobs(database_url)
    run = penstock("jobs", COLUMNS="20")
    assert "\x1b" not in run.out
    assert "x" * 150 in run.out
    assert "\x1b[3" not in penstock.on_terminal("jobs", NO_COLOR="1").out


def make_jobs(url: str) -> None:
    with Database(url).connect() as connection:
        declare_queue(connection, QueueDefinition("a-queue-with-quite-a-long-name"))
        connection.execute(
            "select penstock.enqueue(name, 'task', jsonb_build_object('to', repeat('x', 150))) from penstock.queue"
        )


def _without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)

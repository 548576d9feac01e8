"""The command line from enqueue to the end of a job, and what a person does in between."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from tests.system.cli_runs import CommandLine

NASTY = "[bold]x[/bold] \x1b[31mred \x9b1m \u202eback"

TASKS = f"""
NASTY = {NASTY!r}
from datetime import date
from decimal import Decimal
from uuid import UUID

from penstock import App

app = App(imports=["more_tasks"])
emails = app.queue("emails", partitions=2)
reports = app.queue("reports")


@emails.task(max_attempts=1)
def send(to: str, count: int = 1) -> dict:
    if to == "nowhere":
        raise ValueError(NASTY)
    return {{"to": to, "count": count}}


@reports.task
def typed(day: date, price: Decimal, item: UUID | None = None, zip_code: str = "", note: str | None = "",
          numbers: list[int] = (), anything=None, flag: bool = False) -> list:
    return [type(day).__name__, str(price), item, zip_code, note, numbers, anything, flag]


@emails.task(name="same")
def same_of_emails(): ...


@reports.task(name="same")
def same_of_reports(): ...


app.cron("nightly", "0 3 * * *", send, args={{"to": "all"}}, timezone="Europe/Berlin")
"""


@pytest.fixture
def penstock(tmp_path: Path, urls: list[str]) -> CommandLine:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "more_tasks.py").write_text(
        "from tasks import reports\n\n\n@reports.task\ndef imported(): ...\n", encoding="utf-8"
    )
    return CommandLine(tmp_path, " ".join(urls))


def enqueued(penstock: CommandLine, *words: str) -> str:
    id_: str = penstock.done("enqueue", "tasks:app", *words, "--json").json["id"]
    return id_


def test_a_job_goes_from_enqueue_to_its_result(penstock: CommandLine) -> None:
    id_ = penstock.done("enqueue", "tasks:app", "send", "to=00123", "count=2").out.strip()
    assert "no worker" in penstock.done("explain", id_).out
    run = penstock("work", "tasks", "--until-idle", "--json")
    assert run.code == 0
    assert run.json | {"seconds": 0} == {"succeeded": 1, "retried": 0, "failed": 0, "rescued": 0, "seconds": 0}
    first, last = run.err.splitlines()
    assert "working on emails, reports, 16 at a time, database 127.0.0.1:" in first
    assert penstock.environment["PENSTOCK_URL"].split("@")[0].split(":")[2] not in run.err
    assert "1 succeeded, 0 retried, 0 failed, 0 rescued" in last
    job = penstock.done("job", id_, "--json").json
    assert (job["id"], job["state"], job["result"]) == (id_, "succeeded", {"to": "00123", "count": 2})
    assert job["enqueued_at"].endswith("Z")
    assert penstock.done("explain", id_, "--json").json["reason"] == "finished: succeeded"


def test_arguments_are_read_as_the_annotations_say(penstock: CommandLine) -> None:
    id_ = enqueued(
        penstock, "reports/typed", "day=2026-01-02", "price=1.50", "item=null", 'zip_code="0123"', "note=null",
        "numbers=[1, 2]", "anything={\"a\": 1}", "flag=true",
    )  # fmt: skip
    penstock("work", "tasks", "--until-idle")
    result = penstock.done("job", id_, "--json").json["result"]
    assert result == ["date", "1.50", None, '"0123"', None, [1, 2], {"a": 1}, True]
    assert "day: 'x' does not fit date" in penstock.refused("enqueue", "tasks", "typed", "day=x", "price=1")
    assert "count: 'many' does not fit int" in penstock.refused("enqueue", "tasks", "send", "to=a", "count=many")


def test_a_task_is_found_by_name_or_refused(penstock: CommandLine) -> None:
    enqueued(penstock, "imported")
    enqueued(penstock, "reports/same")
    assert "write emails/same or reports/same" in penstock.refused("enqueue", "tasks", "same")
    assert "the app defines no task 'other'; it has emails/same" in penstock.refused("enqueue", "tasks", "other")


def test_every_option_of_a_job_is_kept(penstock: CommandLine) -> None:
    parent = enqueued(penstock, "send", "to=a")
    options = ("--priority", "2", "--delay", "2h", "--key", "k", "--tag", "x", "--tag", "y", "--tenant", "t")
    words = ("send", "to=b", *options, "--created-by", "o", "--after", parent, "--idempotency-key", "once")
    id_ = enqueued(penstock, *words)
    assert enqueued(penstock, *words) == id_
    job = penstock.done("job", id_, "--json").json
    expected = {"priority": 2, "key": "k", "tags": ["x", "y"], "tenant": "t", "created_by": "o", "after": [parent]}
    assert {name: job[name] for name in expected} == expected
    assert (job["state"], job["idempotency_key"]) == ("blocked", "once")
    assert penstock.done("explain", id_, "--json").json["detail"] == {"parents": [parent]}


def test_a_child_waits_for_a_dead_letter_as_it_was_told(penstock: CommandLine) -> None:
    parent = enqueued(penstock, "send", "to=nowhere")
    words = ("send", "to=a", "--after", parent, "--on-parent-failure")
    waits, ends = enqueued(penstock, *words, "wait"), enqueued(penstock, *words, "cancel")
    assert "on_parent_failure: 'explode' is unknown" in penstock.refused("enqueue", "tasks", *words, "explode")
    penstock("work", "tasks", "--until-idle", "--queue", "emails")
    assert [penstock.done("job", id_, "--json").json["state"] for id_ in (waits, ends)] == ["blocked", "cancelled"]
    assert f"blocked by {parent}, a dead letter" in penstock.done("explain", waits).out
    assert penstock.done("explain", ends, "--json").json["detail"] == {"parents": [], "dead": [parent]}


def test_dead_letters_are_retried_cancelled_and_purged(penstock: CommandLine) -> None:
    ids = [enqueued(penstock, "send", "to=nowhere") for _ in range(3)]
    penstock("work", "tasks", "--until-idle", "--queue", "emails")
    assert {job["id"] for job in penstock.done("jobs", "--state", "failed", "--json").json["jobs"]} == set(ids)
    assert penstock.done("retry", "--queue", "emails", "--preview").out == "3 jobs would be retried\n"
    assert penstock.done("retry", ids[0], "--json").json == {"job_id": ids[0], "state": "ready"}
    assert penstock.done("cancel", ids[0]).out == f"job {ids[0]} is cancelled\n"
    assert "is not retried: finished: cancelled by penstock cancel; dead letters can be" in penstock.refused(
        "retry", ids[0]
    )
    assert "is not retried" in penstock.refused("retry", ids[0], "--json")
    assert penstock.done("cancel", ids[0]).out == f"job {ids[0]} is cancelled\n"
    assert "is cancelled, and does not wait for a time" in penstock.refused("reschedule", ids[0], "now")
    assert penstock.done("retry", "--queue", "emails", "--json").json == {"jobs": 2, "preview": False}
    assert penstock.done("cancel", "--task", "send").out == "2 jobs cancelled\n"
    enqueued(penstock, "send", "to=a")
    assert "add --yes" in penstock.wrong("purge", "emails")
    assert penstock.done("purge", "emails", "--preview").out == "1 job would be purged\n"
    assert penstock.on_terminal("purge", "emails", answer="n\n").code == 1
    assert penstock.on_terminal("purge", "emails", answer="y\n").out.endswith("1 job purged\n")
    assert penstock.done("purge", "emails", "--state", "failed", "--yes", "--json").json["jobs"] == 0


def test_a_dead_letter_is_retried_with_other_arguments(penstock: CommandLine) -> None:
    ids = [enqueued(penstock, "send", "to=nowhere", "count=2") for _ in range(2)]
    penstock("work", "tasks", "--until-idle", "--queue", "emails")
    assert "not both" in penstock.wrong("retry", ids[0], "to=a", "--args", "{}")
    assert "JSON object" in penstock.wrong("retry", ids[0], "--args", "[1]")
    assert "arguments are changed of one job" in penstock.wrong("retry", "--queue", "emails", "--args", "{}")
    assert "does not fit int" in penstock.refused("retry", ids[0], "to=0123", "count=x", "--app", "tasks")
    assert penstock.done("retry", ids[0], "to=0123", "--app", "tasks:app").out == f"job {ids[0]} is ready\n"
    done = penstock.done("retry", ids[1], "--args", '{"to": "b", "count": 3}', "--json").json
    assert done == {"job_id": ids[1], "state": "ready"}
    penstock("work", "tasks", "--until-idle", "--queue", "emails")
    first, second = (penstock.done("job", id_, "--json").json for id_ in ids)
    assert (first["result"], second["result"]) == ({"to": "0123", "count": 1}, {"to": "b", "count": 3})
    (edit,) = first["edits"]
    assert (edit["args"], edit["at"][-1]) == ({"to": "nowhere", "count": 2}, "Z")
    assert 'before: {"to":"nowhere","count":2}' in penstock.done("job", ids[0]).out
    assert "is succeeded, and only a dead letter's" in penstock.refused("retry", ids[0], "to=c")


def test_a_waiting_job_is_moved_to_another_time(penstock: CommandLine) -> None:
    id_ = enqueued(penstock, "send", "to=a", "--run-at", "2130-01-31T09:00Z")
    assert penstock.done("job", id_, "--json").json["run_at"] == "2130-01-31T09:00:00Z"
    moved = penstock.done("reschedule", id_, "2131-01-31T09:00+01:00", "--json").json
    assert moved == {"job_id": id_, "state": "scheduled", "run_at": "2131-01-31T08:00:00Z"}
    assert penstock.done("reschedule", id_, "15m").out.startswith(f"job {id_} is scheduled: ")
    assert "has no time zone" in penstock.refused("reschedule", id_, "2130-01-31T09:00")
    assert penstock.done("reschedule", id_, "now").out == f"job {id_} is ready\n"
    assert penstock.done("job", id_, "--json").json["run_at"] is not None


def test_jobs_are_chosen_by_partition_tenant_and_creator_and_say_why_they_ended(penstock: CommandLine) -> None:
    ids = [enqueued(penstock, "send", "to=a", "--tenant", "acme", "--created-by", name) for name in ("b", "c", "c")]
    of_c = ("--tenant", "acme", "--created-by", "c")
    assert [job["id"] for job in penstock.done("jobs", *of_c, "--json").json["jobs"]] == [ids[2], ids[1]]
    partition = penstock.done("job", ids[1], "--json").json["partition"]
    assert penstock.done("cancel", *of_c, "--queue", "emails", "--partition", partition, "--preview").out.endswith(
        " would be cancelled\n"
    )
    assert penstock.done("cancel", ids[1], "--reason", "withdrawn").out == f"job {ids[1]} is cancelled\n"
    assert penstock.done("cancel", *of_c).out == "1 job cancelled\n"
    assert penstock.done("purge", "emails", "--tenant", "acme", "--yes").out == "1 job purged\n"
    assert [penstock.done("job", id_, "--json").json["error"] for id_ in ids] == [
        "cancelled by penstock purge", "withdrawn", "cancelled by penstock cancel",
    ]  # fmt: skip
    assert "reason: withdrawn" in penstock.done("job", ids[1]).out
    assert "queue 'emails' has no partition 7" in penstock.refused("jobs", "--queue", "emails", "--partition", "7")
    assert penstock.done("stats", "emails", "--json").json["total_cancelled"] == 3


def test_a_partition_is_chosen_by_its_number_only_where_no_name_is_the_same(penstock: CommandLine) -> None:
    with (penstock.folder / "tasks.py").open("a", encoding="utf-8") as tasks:
        tasks.write("\n@app.queue('7').task\ndef note(n: int) -> None: ...\n")
        tasks.write("\n@app.queue('0', partitions=2).task(key='n')\ndef count(n: int) -> None: ...\n")
    id_ = enqueued(penstock, "note", "n=1")

    def found(*words: str) -> list[str]:
        return [job["id"] for job in penstock.done("jobs", *words, "--json").json["jobs"]]

    assert found("--partition", "7") == found("--queue", "7", "--partition", "7") == [id_]
    assert found("--queue", "7", "--partition", "0") == [id_]
    assert penstock.done("purge", "7", "--partition", "0", "--preview").out == "1 job would be purged\n"
    assert "no partition '1': app.stats(queue), or `penstock stats QUEUE`" in penstock.refused(
        "jobs", "--partition", "1"
    )
    assert "has no partition 1" in penstock.refused("jobs", "--queue", "7", "--partition", "1")
    assert "has no partition" in penstock.refused("jobs", "--queue", "7", "--partition", "1" * 5_000)


def test_words_that_cannot_be_together_are_wrong_use_in_words_of_the_command_line(penstock: CommandLine) -> None:
    enqueue = ("enqueue", "tasks", "send", "to=a")
    assert "add --unique waiting (" in penstock.wrong(*enqueue, "--unique-key", "a")
    both = ("--unique", "waiting", "--idempotency-key", "a")
    assert "give --unique or --idempotency-key, not both" in penstock.wrong(*enqueue, *both)
    assert "give --delay or --run-at, not both" in penstock.wrong(*enqueue, "--delay", "1s", "--run-at", "1s")
    assert "'n=4' is an argument: give the id of the job before it" in penstock.wrong("retry", "n=4")
    assert "leave --url or --app out" in penstock.wrong("retry", "1", "--app", "tasks", "--url", "postgresql://a/b")


def test_pause_and_resume_and_what_can_be_looked_at(penstock: CommandLine) -> None:
    enqueued(penstock, "send", "to=a")
    assert penstock.done("pause", "emails", "--json").json == {"queue": "emails", "paused": True}
    assert penstock("work", "tasks", "--until-idle").code == 0
    (emails,) = [each for each in penstock.done("stats", "--json").json if each["queue"] == "emails"]
    assert (emails["paused"], emails["queue_length"], len(emails["partitions"])) == (True, 1, 2)
    penstock.done("resume", "emails")
    figures = penstock.done("stats", "emails", "--json").json
    assert (figures["paused"], figures["total_enqueued"]) == (False, 1)
    assert penstock.done("workers", "--json").json == {"workers": [], "unavailable": []}
    (cron,) = penstock.done("crons", "--json").json["crons"]
    assert (cron["name"], cron["timezone"], cron["args"]) == ("nightly", "Europe/Berlin", {"to": "all"})
    for words in (("stats",), ("stats", "emails"), ("jobs",), ("workers",), ("crons",)):
        assert penstock.done(*words).out


def test_a_cron_entry_is_paused_resumed_run_and_removed(penstock: CommandLine) -> None:
    penstock("work", "tasks", "--until-idle")  # Writes down what is declared.
    assert penstock.done("crons", "pause", "nightly").out == "cron 'nightly' is paused\n"
    assert penstock.done("crons").out.splitlines()[1].split()[-1] == "paused"
    # A worker that declares it again leaves it paused.
    penstock("work", "tasks", "--until-idle")
    (paused,) = penstock.done("crons", "--json").json["crons"]
    assert paused["is_paused"] is True
    resumed = penstock.done("crons", "resume", "nightly", "--json").json
    assert (resumed["name"], resumed["paused"]) == ("nightly", False)
    assert resumed["next_at"] == paused["next_at"]
    id_ = penstock.done("crons", "run", "nightly").out.strip()
    assert penstock.done("job", id_, "--json").json["args"] == {"to": "all"}
    assert penstock.done("crons", "run", "nightly", "--json").json["id"] != id_
    assert penstock.done("crons", "remove", "nightly").out == "cron 'nightly' is removed\n"
    assert penstock.done("crons", "--json").json["crons"] == []
    for act in ("pause", "resume", "run", "remove"):
        assert "there is no cron 'nightly'" in penstock.refused("crons", act, "nightly")
    assert "see penstock crons pause --help" in penstock.wrong("crons", "pause")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_ends_cleanly(penstock: CommandLine, number: signal.Signals) -> None:
    process = subprocess.Popen(
        penstock.command("work", "tasks", "--concurrency", "2"),
        cwd=penstock.folder,
        env=penstock.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "2 at a time" in process.stderr.readline()
    while not (alive := penstock.done("workers", "--json").json["workers"]):
        assert process.poll() is None
    assert (alive[0]["concurrency"], sorted(alive[0]["queues"])) == (2, ["emails", "reports"])
    process.send_signal(number)
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said.count("\n")) == (0, 1)
    assert "stopped after" in said
    assert penstock.done("workers", "--json").json == {"workers": [], "unavailable": []}


def test_text_of_users_is_shown_and_never_obeyed(penstock: CommandLine) -> None:
    id_ = enqueued(penstock, "send", "to=nowhere", "--tag", NASTY.replace("\x1b", ""), "--key", NASTY)
    penstock("work", "tasks", "--until-idle")
    for words in (("job", id_), ("job", id_, "--json"), ("jobs",), ("jobs", "--json")):
        for shown in (penstock.done(*words).out, penstock.on_terminal(*words, NO_COLOR="1", columns=200).out):
            assert "[bold]x[/bold]" in shown
            assert [bad for bad in ("\x1b[31m", "\x9b", "\u202e") if bad in shown] == []
    assert penstock.done("job", id_, "--json").json["key"] == NASTY


def test_dead_letters_are_told_by_cause_and_a_group_is_retried_and_purged(penstock: CommandLine) -> None:
    assert penstock.done("causes").out == "there are no dead letters\n"
    for count in (1, 2):
        penstock.done("enqueue", "tasks", "send", "to=nowhere", f"count={count}")
    penstock("work", "tasks", "--until-idle")
    (cause,) = penstock.done("causes", "--json").json["causes"]
    assert (cause["queue"], cause["task"], cause["dead"], sum(cause["last_hour"])) == ("emails", "send", 2, 2)
    told = penstock.done("causes", "--queue", "emails").out
    assert cause["id"] in told
    assert "\x1b[31m" not in told
    assert penstock.done("causes", "--queue", "reports").out == "there are no dead letters\n"
    assert "does not exist" in penstock.refused("causes", "--queue", "nowhere")
    listed = penstock.done("jobs", "--cause", cause["id"], "--json").json["jobs"]
    assert cause["job_id"] in [job["id"] for job in listed]
    assert cause["id"] in penstock.done("job", cause["job_id"]).out
    assert penstock.done("retry", "--cause", cause["id"], "--preview").out == "2 jobs would be retried\n"
    assert penstock.done("retry", "--cause", cause["id"]).out == "2 jobs retried\n"
    penstock("work", "tasks", "--until-idle")
    assert "not the id of a cause" in penstock.refused("retry", "--cause", "x")
    assert "retry or purge them" in penstock.refused("cancel", "--cause", cause["id"])
    assert penstock.done("purge", "emails", "--cause", cause["id"], "--yes").out == "2 jobs purged\n"
    assert penstock.done("causes").out == "there are no dead letters\n"

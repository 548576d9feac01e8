"""What comes and goes is the difference of two looks; what is wrong is said in words, the worst first."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.cli.live.attention import Weight, concerns, rate_text
from penstock.cli.live.keyboard import decode_keys
from penstock.cli.live.looks import Flow, Look, Looks
from penstock.cli.live.rows import ORDERS, queue_rows, sort_rows
from penstock.model.overview import Overview, QueueOverview, UnservedTask

NOW = datetime.now(UTC)


def looks(*seen: tuple[float, QueueOverview]) -> Looks:
    made = Looks()
    for seconds, queue in seen:
        made.add(Look(Overview(queues=[queue]), NOW, seconds))
    return made


def test_few_jobs_are_told_over_the_minute_and_many_over_the_last_seconds() -> None:
    slow = looks(*((n * 2.0, QueueOverview(queue="q", total_enqueued=n // 10)) for n in range(31)))
    assert slow.flows()["q"].incoming == 3 / 60
    # 10 a second, and for the last eight seconds 100.
    totals = [(n * 2.0, 20 * n if n <= 26 else 520 + 200 * (n - 26)) for n in range(31)]
    quick = looks(*((at, QueueOverview(queue="q", total_completed=total)) for at, total in totals))
    assert quick.flows()["q"].outgoing == 100.0
    assert quick.flows()["q"].incoming == 0.0


def test_no_rate_is_made_up() -> None:
    assert looks((0.0, QueueOverview(queue="q"))).flows() == {}
    again = looks((0.0, QueueOverview(queue="q", total_enqueued=9)), (2.0, QueueOverview(queue="q", total_enqueued=1)))
    assert again.flows()["q"] == Flow()
    other = looks((0.0, QueueOverview(queue="q")), (2.0, QueueOverview(queue="new", total_enqueued=5)))
    assert other.flows() == {"new": Flow()}


def test_totals_of_other_shards_than_before_are_not_compared() -> None:
    made = looks((0.0, QueueOverview(queue="q", total_enqueued=100)))
    made.add(Look(Overview(queues=[QueueOverview(queue="q", total_enqueued=40)], unavailable=["2"]), NOW, 2.0))
    made.add(Look(Overview(queues=[QueueOverview(queue="q", total_enqueued=44)], unavailable=["2"]), NOW, 4.0))
    assert made.flows()["q"].incoming == 2.0
    made.add(Look(Overview(queues=[QueueOverview(queue="q", total_enqueued=104)]), NOW, 6.0))
    assert made.flows() == {}


def test_looks_of_more_than_a_minute_ago_are_forgotten() -> None:
    made = looks(*((float(n), QueueOverview(queue="q", total_enqueued=n)) for n in range(200)))
    assert made.flows()["q"].seconds == 60.0


def test_the_worst_comes_first_in_words() -> None:
    overview = Overview(
        queues=[
            QueueOverview(queue="calm", waiting=5, workers=1, oldest_wait_seconds=3),
            QueueOverview(queue="dead", dead=1_200, workers=1),
            QueueOverview(queue="full", waiting=900, workers=1),
            QueueOverview(queue="halts", halted_keys=12, halted_seconds=7_300, workers=1),
            QueueOverview(queue="idle", waiting=1, oldest_wait_seconds=90),
            QueueOverview(queue="pause", waiting=4, paused=True),
            QueueOverview(queue="some", waiting=4, workers=1, unserved=[UnservedTask(task="send", waited_seconds=30)]),
        ],
        workers=1,
        unavailable=["2"],
        read_only=["3"],
        overdue_seconds=40.0,
        failing_duties=1,
        silent_workers=1,
    )
    flows = {"full": Flow(20.0, 2.0, 3, 600, 60.0), "calm": Flow(20.0, 19.0, 0, 60, 60.0)}
    found = concerns(overview, flows)
    assert [(each.weight, each.text) for each in found] == [
        (Weight.STANDS, "shard 2 does not answer: its partitions are not in these figures"),
        (Weight.STANDS, "shard 3 takes no writes"),
        (Weight.STANDS, "what is due has not been made ready for 40 s: the workers' upkeep is behind"),
        (Weight.STANDS, "halts: 12 keys halted, the first 2 h ago"),
        (Weight.STANDS, "idle has no worker: 1 job waiting, the oldest for 90 s"),
        (Weight.STANDS, "some has no worker for send, waiting for 30 s"),
        (Weight.FAILS, "upkeep fails again and again: penstock doctor says what of it"),
        (Weight.FAILS, "full: 3 new dead letters within 60 s"),
        (Weight.GROWS, "full grows: 20/s in, 2.0/s out, 900 wait"),
        (Weight.NOTE, "1 worker not heard of: their jobs run again"),
        (Weight.NOTE, "pause is paused, 4 wait"),
        (Weight.NOTE, "1,200 dead letters: dead 1,200"),
    ]
    rows = queue_rows(overview.queues, flows, found)
    assert [row.queue.queue for row in sort_rows(rows, "attention")][:4] == ["halts", "some", "idle", "full"]
    assert {row.queue.queue: row.cells()[7] for row in rows}["full"] == "fails, grows"
    for order in ORDERS:
        assert len(sort_rows(rows, order)) == len(rows)


def test_nothing_is_wrong_where_nothing_is() -> None:
    queues = [QueueOverview(queue="q", waiting=9, workers=1), QueueOverview(queue="empty")]
    assert concerns(Overview(queues=queues, workers=1), {}) == []


def test_a_rate_is_told_by_the_minute_where_it_is_small() -> None:
    told = [rate_text(each) for each in (None, 0.0, 0.05, 1.0, 9.96, 1_234.0)]
    assert told == ["", "0", "3/min", "1.0/s", "10.0/s", "1,234/s"]


def test_bytes_are_keys_and_what_is_unknown_is_passed_over() -> None:
    assert list(decode_keys(b"\x1b[A\x1bOBjq\r\x1b[5~\x7f")) == [
        "up",
        "down",
        "j",
        "q",
        "enter",
        "page up",
        "backspace",
    ]
    assert list(decode_keys(b"\x1b")) == ["escape"]
    assert list(decode_keys("\x1b[<0;10;10Mx\x1b[200~é\x00\x9b".encode())) == ["x", "é"]
    assert list(decode_keys(b"\xff\xfea")) == ["a"]

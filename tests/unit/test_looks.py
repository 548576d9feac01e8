"""What comes and goes is the difference of two looks; what is wrong is said in words, the worst first."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.cli.live.attention import concerns, rate_text
from penstock.cli.live.keyboard import decode_keys
from penstock.cli.live.looks import Flow, Look, Looks
from penstock.cli.live.page import Seen
from penstock.cli.live.pages import WorkersPage
from penstock.cli.live.rows import ORDERS, queue_rows, sort_rows
from penstock.model import WorkerInfo
from penstock.model.attention import KINDS, Attention
from penstock.model.overview import Overview, QueueOverview

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
    assert made.flows()["q"].incoming == 1.0
    assert len(made) == 61


def test_every_kind_has_its_sentence_and_the_worst_comes_first() -> None:
    found = [
        Attention(
            kind=kind,
            queue=None if kind.startswith("shard") else f"of {kind}",
            task="send",
            name="nightly",
            shard="2",
            count=3,
            since=NOW,
        )
        for kind in KINDS
    ]
    told = concerns(found)
    assert len({each.text for each in told}) == len(KINDS)
    assert told[0].text == "shard 2 does not answer: "
    queues = [QueueOverview(queue=each.queue) for each in found if each.queue] + [QueueOverview(queue="calm")]
    rows = sort_rows(queue_rows(queues, {}, told), "attention")
    assert rows[0].queue.queue in ("of no-worker", "of unserved-task", "of halted-keys")
    assert {row.queue.queue for row in rows if not row.cells()[7]} == {"calm", "of failing-duty"}
    assert {row.queue.queue: row.cells()[7] for row in rows}["of halted-keys"] == "3 halted"
    for order in ORDERS:
        assert len(sort_rows(rows, order)) == len(rows)
    assert concerns([]) == []


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


def test_a_server_is_no_worker() -> None:
    def title(*slots: int) -> str:
        page = WorkersPage()
        page.data = [
            WorkerInfo(id=n, name="w", host="h", pid=n, started_at=NOW, renewed_at=NOW, concurrency=each)
            for n, each in enumerate(slots)
        ]
        return page.view(Seen((), (), "")).title

    assert title(8, 8) == "workers: 2"
    assert title(8, 0, 8) == "workers: 2, and 1 acting for others, as a server does"

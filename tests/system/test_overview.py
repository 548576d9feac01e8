"""The look at the whole tells what the calls about its parts tell, on one database and on two."""

from __future__ import annotations

from tests.system.conftest import Execute, Working

from penstock import App


def test_the_overview_is_what_the_queues_are(app: App, working: Working, execute: Execute) -> None:
    orders = app.queue("orders", order="key", on_dead="halt", partitions=4)
    mail = app.queue("mail", limit=3, partitions=2)

    @orders.task(key="customer", max_attempts=1)
    def book(customer: str) -> None:
        raise ValueError(customer)

    @mail.task
    def send(to: str) -> None: ...

    @mail.task
    def nobody(to: str) -> None: ...

    keys = [f"c-{number}" for number in range(12)]
    book.enqueue_many([{"customer": key} for key in keys])
    send.enqueue_many([{"to": "ada"} for _ in range(5)])
    app.work(until_idle=True)
    book.enqueue_many([{"customer": key} for key in keys[:6]])
    send.options(delay=900).enqueue(to="bob")
    execute("select penstock.enqueue('mail', 'unknown', '{}')")
    app.pause("mail")

    seen = app.overview()
    assert [each.queue for each in seen.queues] == ["mail", "orders"]
    for each, stats in zip(seen.queues, app.queues(), strict=True):
        assert (each.queue, each.paused, each.limit) == (stats.queue, stats.paused, stats.limit)
        assert (each.waiting, each.running) == (stats.queue_length, stats.active_count)
        assert (each.scheduled, each.blocked, each.dead) == (stats.scheduled, stats.blocked, stats.dead)
        assert each.total_enqueued == stats.total_enqueued
        assert each.total_completed == stats.total_completed
        assert each.ended == stats.total_completed + stats.total_failed
        assert each.partitions == len(stats.partitions)
    assert seen.queues[1].halted_keys == 12
    assert {task.task for task in seen.queues[0].unserved} == {"unknown"}
    assert (seen.workers, seen.slots, seen.unavailable) == (0, 0, [])

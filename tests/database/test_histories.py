"""The minutes of all queues in one question: what each queue's own history tells."""

from __future__ import annotations

from penstock import App


def test_the_minutes_of_all_queues_are_those_of_each(database_url: str) -> None:
    with App(database_url) as app:
        mail, orders = app.queue("mail"), app.queue("orders", partitions=3, order="key")
        send = mail.task(name="send")(lambda: None)
        book = orders.task(name="book", key="customer")(lambda customer: None)
        app.migrate()
        with app.database.connect() as connection:
            connection.execute("select penstock.note_minute()")
            connection.execute("update penstock.minute set minute = minute - interval '1 minute'")
        send.enqueue_many([{}] * 3)
        book.enqueue_many([{"customer": f"c-{number}"} for number in range(5)])
        with app.database.connect() as connection:
            connection.execute("select penstock.note_minute()")
        found = {each.queue: each for each in app.histories()}
        assert found == {queue: app.history(queue, 30) for queue in ("mail", "orders")}
        assert [minute.waiting for minute in found["orders"].minutes] == [0, 5]
        assert [each.queue for each in app.histories(names=["mail"])] == ["mail"]

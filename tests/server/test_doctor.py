"""What the databases rest on, over HTTP: the same as `penstock doctor` finds."""

from __future__ import annotations

from tests.server.asking import Client, asking_as
from tests.server.conftest import Shop

from penstock.model.token import Role


def test_every_check_is_told_and_whether_all_is_well(shop: Shop, client: Client) -> None:
    found = client.get("doctor")
    checks = {check["name"]: check for check in found["checks"]}
    assert {"writes", "schema", "upkeep", "halted keys"} <= checks.keys()
    assert sorted(checks) == sorted({check.name for check in shop.app.doctor()})
    assert checks["halted keys"] == {
        "name": "halted keys",
        "ok": True,
        "found": "no key waits for a person",
        "advice": "",
        "shard": checks["writes"]["shard"],
    }
    shop.book.enqueue(customer="c-1")
    shop.app.work(until_idle=True)
    found = client.get("doctor")
    assert not found["ok"]
    (halted,) = [check for check in found["checks"] if not check["ok"]]
    assert halted["name"] == "halted keys"
    assert halted["found"].startswith("orders: 1 keys, the first for ")
    assert "penstock release" in halted["advice"]


def test_only_an_administrator_is_told_and_without_arguments_where_these_are_hidden(shop: Shop, client: Client) -> None:
    shop.app.migrate()
    with shop.app.database.connect() as connection:
        connection.execute("insert into penstock.trouble (duty, error, since) values ('promote', 'no SECRET', now())")
    with asking_as(shop.app, role=Role.READ) as reader:
        assert reader.refused("GET", "doctor")["code"] == "forbidden"
    (told,) = [check for check in client.get("doctor")["checks"] if check["name"] == "upkeep"]
    assert (told["ok"], "no SECRET" in told["found"]) == (False, True)
    with asking_as(shop.app, role=Role.ADMIN, hides_args=True) as hidden:
        (told,) = [check for check in hidden.get("doctor")["checks"] if check["name"] == "upkeep"]
    assert (told["ok"], told["found"]) == (False, "not told to a token that hides arguments")

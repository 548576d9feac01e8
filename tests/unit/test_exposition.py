"""The text that Prometheus scrapes is read back as it was meant, whatever stands in names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.system.scraped import parse

from penstock.metrics import OF_SYSTEM, OF_WORKER
from penstock.metrics.definitions import Metric
from penstock.metrics.exposition import Exposition, labelled

GAUGE = Metric("penstock_x", "gauge", ("queue",), "What \\ it\nmeans.")
HISTOGRAM = Metric("penstock_seconds", "histogram", ("queue",), "How long.")
# Any text that the database stores: it has no surrogates and no NUL.
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


@given(st.dictionaries(NAMES, st.floats(allow_nan=False) | st.integers(), min_size=1, max_size=5))
def test_names_and_values_come_back_as_they_were(values: dict[str, float]) -> None:
    text = Exposition()
    text.add(GAUGE, [(labelled(queue=name), value) for name, value in values.items()])
    found = parse(text.text())
    assert {dict(labels)["queue"]: value for labels, value in found.samples["penstock_x"].items()} == {
        name: float(value) for name, value in values.items()
    }
    assert found.helps == {"penstock_x": GAUGE.help}


def test_a_label_that_is_empty_is_left_out() -> None:
    assert labelled(queue="q", partition="") == '{queue="q"}'
    assert labelled(queue="") == ""


def test_a_metric_without_series_is_not_mentioned() -> None:
    text = Exposition()
    text.add(GAUGE, [])
    assert text.text() == b""


def test_the_buckets_of_a_histogram_count_all_that_is_below_their_bound() -> None:
    text = Exposition()
    text.add_histogram(HISTOGRAM, ("0.1", "1"), [({"queue": "q"}, [2, 3, 4], 10.5)])
    found = parse(text.text())
    assert {dict(labels)["le"]: value for labels, value in found.samples["penstock_seconds_bucket"].items()} == {
        "0.1": 2,
        "1": 5,
        "+Inf": 9,
    }
    assert found.value("penstock_seconds_sum", queue="q") == 10.5
    assert found.value("penstock_seconds_count", queue="q") == 9


def test_every_metric_is_there_once_and_its_labels_are_names_of_the_catalogue() -> None:
    every = [*OF_SYSTEM, *OF_WORKER]
    assert len({each.name for each in every}) == len(every)
    assert {label for each in every for label in each.labels} == {"queue", "partition", "task", "shard"}
    assert all(each.name.startswith("penstock_worker_") for each in OF_WORKER)
    for each in every:
        assert (each.kind == "counter") == each.name.endswith("_total"), each.name
        assert each.help.endswith(".")

"""The text format that Prometheus scrapes, version 0.0.4: for each metric what it means, its type, and a line a
series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.metrics.definitions import Metric

__all__ = ["CONTENT_TYPE", "Exposition", "labelled"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def labelled(**labels: str) -> str:
    """Labels as they stand behind a name; one that is empty is as good as missing, and is left out."""
    given = [f'{name}="{value.translate(_IN_LABEL)}"' for name, value in labels.items() if value]
    return f"{{{','.join(given)}}}" if given else ""


class Exposition:
    """A text in the making. Each metric is added once: all its series stand together."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, metric: Metric, series: Iterable[tuple[str, float]]) -> None:
        """A gauge or a counter, as labels and values; where there is no series the metric is not mentioned."""
        name = metric.name
        lines = [f"{name}{labels} {value}" for labels, value in series]
        if lines:
            self._head(metric)
            self._lines += lines

    def add_histogram(
        self, metric: Metric, bounds: Sequence[str], series: Iterable[tuple[dict[str, str], Sequence[int], float]]
    ) -> None:
        """A histogram, as labels, how many fell into each bucket and above the last, and the sum."""
        self._head(metric)
        name = metric.name
        for labels, counts, total in series:
            below = 0
            for bound, count in zip((*bounds, "+Inf"), counts, strict=True):
                below += count
                self._lines.append(f"{name}_bucket{labelled(**labels, le=bound)} {below}")
            plain = labelled(**labels)
            self._lines += [f"{name}_sum{plain} {total}", f"{name}_count{plain} {below}"]

    def text(self) -> bytes:
        """The whole of it."""
        return "\n".join([*self._lines, ""]).encode()

    def _head(self, metric: Metric) -> None:
        self._lines += [
            f"# HELP {metric.name} {metric.help.translate(_IN_HELP)}",
            f"# TYPE {metric.name} {metric.kind}",
        ]

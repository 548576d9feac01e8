"""What Prometheus would read: a strict parser of its text format, which takes nothing that promtool complains of."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass, field

__all__ = ["Scraped", "fetch", "parse"]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = frozenset[tuple[str, str]]


@dataclass
class Scraped:
    """The samples by name and labels; of each metric its type and help."""

    kinds: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)
    samples: dict[str, dict[Labels, float]] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        """The value of one series, which must be there."""
        return self.samples[name][frozenset(labels.items())]

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of all series that have these labels."""
        wanted = set(labels.items())
        return [value for given, value in self.samples.get(name, {}).items() if wanted <= given]

    def labels_of(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for labels in self.samples.get(name, {})]


def parse(text: bytes) -> Scraped:
    """Read a text; whatever is wrong with it is an AssertionError."""
    found = Scraped()
    assert text.endswith(b"\n") or not text
    current = ""
    for line in text.decode("utf-8").split("\n")[:-1]:
        if line.startswith("# HELP "):
            current, help_text = re.fullmatch(rf"# HELP ({_NAME}) (.+)", line).groups()  # type: ignore[union-attr]
            assert current not in found.helps, f"{current} is told twice"
            found.helps[current] = _unescape(help_text, quoted=False)
        elif line.startswith("# TYPE "):
            name, kind = re.fullmatch(rf"# TYPE ({_NAME}) (gauge|counter|histogram)", line).groups()  # type: ignore[union-attr]
            assert name == current, f"the type of {name} does not follow its help"
            assert name not in found.kinds
            assert (kind == "counter") == name.endswith("_total"), name
            found.kinds[name] = kind
        else:
            _take_sample(found, current, line)
    for name, kind in found.kinds.items():
        if kind == "histogram":
            _check_histogram(found, name)
    return found


def fetch(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    """What is answered on this machine's port: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _take_sample(found: Scraped, current: str, line: str) -> None:
    matched = _SAMPLE.fullmatch(line)
    assert matched is not None, line
    name, given, value = matched.groups()
    suffixes = ("_bucket", "_sum", "_count") if found.kinds[current] == "histogram" else ("",)
    assert name in {current + suffix for suffix in suffixes}, f"{name} stands among the series of {current}"
    labels: dict[str, str] = {}
    position = 0
    while given is not None and position < len(given):
        label = _LABEL.match(given, position)
        assert label is not None, line
        assert label[1] not in labels, line
        labels[label[1]] = _unescape(label[2], quoted=True)
        position = label.end()
    series = found.samples.setdefault(name, {})
    assert frozenset(labels.items()) not in series, f"{line} is told twice"
    series[frozenset(labels.items())] = float(value)


def _unescape(text: str, *, quoted: bool) -> str:
    return re.sub(r'\\[\\"n]' if quoted else r"\\[\\n]", lambda match: _ESCAPED[match[0]], text)


def _check_histogram(found: Scraped, name: str) -> None:
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    for labels, value in found.samples.get(f"{name}_bucket", {}).items():
        plain = frozenset((key, each) for key, each in labels if key != "le")
        buckets.setdefault(plain, []).append((float(dict(labels)["le"]), value))
    assert (
        buckets.keys() == found.samples.get(f"{name}_sum", {}).keys() == found.samples.get(f"{name}_count", {}).keys()
    )
    for plain, series in buckets.items():
        counts = [count for _, count in sorted(series)]
        assert counts == sorted(counts), f"{name} falls"
        assert max(series)[0] == float("inf")
        assert counts[-1] == found.samples[f"{name}_count"][plain]

"""Trace contexts as data: what Python and SQL take, what each keeps of it, and what both refuse."""

from __future__ import annotations

__all__ = ["GOOD", "MALFORMED", "MALFORMED_STATES", "SAMPLED", "TRACE_AND_SPAN"]

_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_SPAN = "00f067aa0ba902b7"
TRACE_AND_SPAN = f"{_TRACE}-{_SPAN}"
SAMPLED = f"00-{TRACE_AND_SPAN}-01"

# With what is kept: nothing where it is not sampled.
GOOD = [
    (SAMPLED, SAMPLED),
    (f"00-{TRACE_AND_SPAN}-00", None),
    (f"00-{TRACE_AND_SPAN}-02", None),
    (f"00-{TRACE_AND_SPAN}-03", f"00-{TRACE_AND_SPAN}-03"),
    # Flags that nobody knows are not passed on.
    (f"00-{TRACE_AND_SPAN}-ff", f"00-{TRACE_AND_SPAN}-03"),
    # A later version may have more at its end.
    (f"cc-{TRACE_AND_SPAN}-01", SAMPLED),
    (f"cc-{TRACE_AND_SPAN}-01-what-comes-then", SAMPLED),
    (f"00-{'0' * 31}1-{'0' * 15}1-01", f"00-{'0' * 31}1-{'0' * 15}1-01"),
]

MALFORMED = [
    "",
    " ",
    "x",
    SAMPLED.upper(),
    f" {SAMPLED}",
    f"{SAMPLED} ",
    f"{SAMPLED}\n",
    f"{SAMPLED}-more",
    f"{SAMPLED}-",
    f"ff-{TRACE_AND_SPAN}-01",
    f"0-{TRACE_AND_SPAN}-01",
    f"00-{TRACE_AND_SPAN}",
    f"00-{TRACE_AND_SPAN}-1",
    f"00-{TRACE_AND_SPAN}-001",
    f"00-{TRACE_AND_SPAN}-0g",
    f"00-{_TRACE[1:]}-{_SPAN}-01",
    f"00-{_TRACE}-{_SPAN}0-01",
    f"00-{'0' * 32}-{_SPAN}-01",
    f"00-{_TRACE}-{'0' * 16}-01",
    f"00-{TRACE_AND_SPAN}-\N{FULLWIDTH DIGIT ZERO}1",
    f"cc-{TRACE_AND_SPAN}-01more",
    f"cc-{TRACE_AND_SPAN}-01-\N{LATIN SMALL LETTER E WITH ACUTE}",
    "<script>alert(1)</script>",
    "00-" + "0" * 100_000,
]

MALFORMED_STATES = ["a=\n", "a=\N{LATIN SMALL LETTER E WITH ACUTE}", "a=\x7f", "a" * 513]

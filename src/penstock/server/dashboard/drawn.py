"""Templates, and how what they are given stands in a page.

Names, arguments and errors are somebody else's text: every text that a template is given is escaped, and what a browser
would obey or drop (control characters, signs that turn the direction of writing) is shown as a sign. Only what this
package drew itself, such as a chart, goes in as it is.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from penstock.drawing import formatting
from penstock.drawing.charts import bar
from penstock.drawing.html_parts import LOGO
from penstock.server.dashboard.static_files import static_name

__all__ = ["draw", "drawn"]

# So long a text may be where nothing else is said: a page shows a hundred of them.
LONGEST = 160
LONGEST_JSON = 100_000


def draw(template: str, **values: Any) -> str:
    """A template with its values."""
    return _templates().get_template(template).render(**values)


def drawn(html: str) -> Markup:
    """HTML of our own, which is not escaped again."""
    return Markup(html)  # noqa: S704


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("penstock.server.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    environment.filters |= _FILTERS
    environment.globals |= {"logo": drawn(LOGO), "static_name": static_name, "bar": lambda share: drawn(bar(share))}
    return environment


def _clean(value: Any) -> Any:
    if value is None:
        return ""
    return formatting.showable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _word(value: Any, longest: int = LONGEST) -> Markup:
    """Somebody else's words, cut, with a direction of writing of their own."""
    return drawn(formatting.word(value, longest))


def _count(value: float | None) -> str:
    return formatting.UNKNOWN if value is None else formatting.count(value)


def _ago(at: datetime | None, now: datetime) -> Markup:
    """How long ago something was, or in how long it will be; the instant is told under the pointer."""
    if at is None:
        return drawn(formatting.UNKNOWN)
    seconds = (now - at).total_seconds()
    said = f"{formatting.duration(seconds)} ago" if seconds >= 1 else "now"
    if seconds <= -1:
        said = f"in {formatting.duration(-seconds)}"
    return _time(at, said)


def _instant(at: datetime | None) -> Markup:
    return drawn(formatting.UNKNOWN) if at is None else _time(at, f"{formatting.instant(at)} UTC")


def _time(at: datetime, said: str) -> Markup:
    whole = f"{formatting.instant(at)} UTC"
    return drawn(f'<time datetime="{formatting.plain(at.isoformat())}" title="{whole}">{said}</time>')


def _json(value: Any) -> Markup:
    """A value as one would write it, indented."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = str(value)
    cut = text if len(text) <= LONGEST_JSON else f"{text[:LONGEST_JSON]}\n… and {len(text) - LONGEST_JSON:,} more"
    return drawn(formatting.lines(cut))


def _typed(value: str) -> Markup:
    """JSON to be changed in a text area, each character as it is: what could not be shown stands as its escape."""
    return drawn(html.escape(_HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", value)))


def _exact(value: str) -> Markup:
    """A text to be sent again as it is; ends of lines as references, by which neither a parser nor a stream takes them
    for its own.
    """
    return drawn(html.escape(value).replace("\r", "&#13;").replace("\n", "&#10;"))


# Lines and tabs stay; of the others none can stand in JSON but within a string, where its escape is the same.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_FILTERS: dict[str, Callable[..., Any]] = {
    "word": _word,
    "count": _count,
    "percent": formatting.percent,
    "rate": formatting.rate,
    "duration": formatting.duration,
    "ago": _ago,
    "instant": _instant,
    "pretty_json": _json,
    "typed": _typed,
    # What somebody typed, back in its field as it was.
    "exact": _exact,
    "lines": lambda value, longest=LONGEST_JSON: drawn(formatting.lines(value, longest)),
}

"""Dead letters by what they died of: how many there are, since when, how many attempts failed of it, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.drawing.charts import strip
from penstock.drawing.formatting import count
from penstock.errors import NotFound
from penstock.model.job_state import State
from penstock.server.dashboard.drawn import drawn
from penstock.server.dashboard.entry import Elsewhere, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["dead_letters"]

dead_letters = Pages()
MOST_CAUSES = 100
HOUR, FIVE_MINUTES = timedelta(hours=1), timedelta(minutes=5)


@dead_letters.show("/dead-letters")
def show_causes(view: View) -> Shown | Elsewhere:
    """A line for each cause, that of most dead letters first."""
    if view.caller.tenant is not None:
        # Causes tell of others, too; its own dead letters are jobs of its own.
        return Elsewhere(view.url("jobs", state=State.FAILED))
    queue = view.query.text("queue")
    values: dict[str, Any] = {
        "queue": queue,
        "causes": [],
        "unavailable": [],
        "problem": None,
        "is_all": True,
        "can_retry": view.may("POST", "jobs", "retry"),
    }
    try:
        found = view.api.get("dead-letters", "causes", queue=queue, limit=MOST_CAUSES)
    except NotFound as error:
        return Shown("dead_letters.html", "Dead letters", values | {"problem": error}, 404, is_live=False)
    values |= {
        "causes": [(each, _trend(each)) for each in found.causes],
        "dead": sum(each.dead for each in found.causes),
        "queues": sorted({each.queue for each in found.causes}),
        "unavailable": found.unavailable,
        "is_all": len(found.causes) < MOST_CAUSES,
        "can_discard": [each.queue for each in found.causes if view.may("POST", "queues", each.queue, "purge")],
    }
    return Shown("dead_letters.html", "Dead letters", values)


def _trend(cause: Any) -> Any:
    """The day, hour by hour, and the last hour closer."""
    return drawn(_strip(cause.last_day, HOUR) + _strip(cause.last_hour, FIVE_MINUTES))


def _strip(failed: Sequence[int], step: timedelta) -> str:
    unit = "h" if step >= HOUR else "min"
    size = step // timedelta(hours=1) or step // timedelta(minutes=1)
    ago = [size * left for left in range(len(failed), -1, -1)]
    tips = [
        f"{_attempts(each)} failed\n{ago[number]} to {ago[number + 1]} {unit} ago" for number, each in enumerate(failed)
    ]
    says = f"{_attempts(sum(failed))} failed in the last {'day' if step >= HOUR else 'hour'}"
    return f'<div class="trend" role="img" aria-label="{says}">{strip(failed, max(failed, default=0), tips)}</div>'


def _attempts(number: int) -> str:
    return "1 attempt" if number == 1 else f"{count(number)} attempts"

"""A dead letter is retried with other arguments: a form with those it has, and again with what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.errors import InvalidInput
from penstock.server.dashboard.arguments import read_arguments
from penstock.server.dashboard.entry import Done, Pages, Shown
from penstock.server.dashboard.view import View

__all__ = ["job_arguments"]

job_arguments = Pages()


@job_arguments.show("/jobs/{job_id}/arguments")
def show_arguments(view: View, job_id: str) -> Shown:
    """The arguments, to be changed."""
    view.api.check_may("POST", "jobs", job_id, "retry")
    found = view.api.get("jobs", job_id)
    # What Python cannot read is text already.
    text = found.args if isinstance(found.args, str) else json.dumps(found.args, indent=2, ensure_ascii=False)
    return _show(view, found, text, None)


@job_arguments.act("/jobs/{job_id}/arguments")
def retry_with_arguments(view: View, job_id: str) -> Done | Shown:
    """Retry it with these, or show what they lack."""
    typed = view.form.text("args") or ""
    try:
        args = _read(typed)
        view.api.send("POST", "jobs", job_id, "retry", body={"args": args})
    except InvalidInput as error:
        return _show(view, view.api.get("jobs", job_id), typed, error)
    return Done(view.url("jobs", job_id), f"Job {job_id} has other arguments, and was retried.")


def _show(view: View, found: Any, text: str, error: InvalidInput | None) -> Shown:
    values = {"job": found, "text": text, "error": error}
    return Shown("job_arguments.html", f"Arguments of job {found.id}", values, 422 if error else 200, is_live=False)


def _read(text: str) -> Mapping[str, Any]:
    try:
        args = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            "args", f"it is no JSON: {error.msg.lower()} in line {error.lineno}, column {error.colno}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput("args", f"it is no JSON that can be kept: {error}") from None
    if not isinstance(args, dict):
        raise InvalidInput("args", 'arguments have names; write an object such as {"to": "ada"}')
    return read_arguments(text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")

"""The doctor over HTTP: everything that the databases rest on, and what to do where it is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.model import Check
from penstock.server.call import Call
from penstock.server.operation import Operations

__all__ = ["doctor"]

doctor = Operations()
# What they found may quote the arguments of a job.
_QUOTING = ("jobs set aside", "upkeep")


@dataclass(frozen=True, slots=True)
class Checks:
    """What the doctor found: every check of every shard, in the order to mend them, then those of all together.

    `ok` is whether all of it is well.
    """

    ok: bool
    checks: list[Check]


@doctor.add("GET", "/doctor", may="admin")
def read_doctor(call: Call) -> Checks:
    """Check what Penstock rests on, on every shard, and say what to do, as `penstock doctor` does.

    It connects to each database anew: ask it now and then, and `GET /attention` for what is to be watched.
    """
    found = call.app.doctor()
    is_well = all(check.ok for check in found)
    if call.caller.hides_args:
        found = [_without_texts(check) for check in found]
    return Checks(is_well, found)


def _without_texts(check: Check) -> Check:
    if check.ok or check.name not in _QUOTING:
        return check
    return replace(check, found="not told to a token that hides arguments")

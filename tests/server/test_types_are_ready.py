"""What bodies and queries are read as is known to msgspec before any thread reads: see `make_ready`.

msgspec has learnt a struct when that refers to a `StructInfo`.
"""

from __future__ import annotations

import subprocess
import sys

ASK = """
import gc, msgspec
from penstock.server.application import OPERATIONS
from penstock.storage.inspect.key_reasons import HoldingRetry

def structs(kind):
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for each in msgspec.structs.fields(kind):
            yield from structs(each.type)
    for part in getattr(kind, "__args__", ()):
        yield from structs(part)

found = {HoldingRetry}
for operation in OPERATIONS:
    for kind in (operation.query, operation.body, *(each for form in operation.forms.values() for each in form)):
        found.update(structs(kind))
for kind in found:
    is_known = any(type(each).__name__ == "StructInfo" for each in gc.get_referents(kind))
    print(kind.__name__, "known" if is_known else "not known")
"""


def test_a_server_that_was_imported_has_learnt_all_that_it_reads() -> None:
    told = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True).stdout.split("\n")
    assert {"JobRequest known", "JobsRequest known", "JobsQuery known", "Poll known", "SucceededEnd known"} <= set(told)
    assert [line for line in told if line.endswith("not known")] == []

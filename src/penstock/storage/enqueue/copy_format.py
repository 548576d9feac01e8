"""Jobs as COPY's text format wants them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from penstock.storage.enqueue.job_group import NewRange

__all__ = ["copy_lines"]

_encode = msgspec.json.Encoder().encode
_NULL = b"\\N"


def copy_lines(ranges: Sequence[NewRange], ids: Sequence[int], now: datetime) -> bytes:
    """A line for each job that is written; `ids` are those of the whole call, for children's parents."""
    stamp = now.isoformat().encode()
    lines: list[bytes] = []
    for new in ranges:
        group, first_id = new.group, new.first_id
        to = group.destination
        head = b"\t%b\t%d\t%d\t" % (stamp, to.partition_id, to.priority)
        due_at = to.due_at(now)
        timed = {"run_at": due_at.astimezone(UTC).isoformat()} if due_at is not None and due_at > now else None
        if (group.keys, group.attributes, group.parents, group.tasks, timed) == (None,) * 5:
            head += b"%b\t\\N\t" % _escape(to.task.encode())
            args = group.args
            lines += [
                b"%d%b%b\t\\N\n" % (first_id + p, head, a if b"\\" not in (a := args[new.low + p]) else _escape(a))
                for p in new.positions
            ]
            continue
        tasks = {task: _escape(task.encode()) for task in group.tasks or (to.task,)}
        for position in new.positions:
            row = new.low + position
            key = group.keys[row] if group.keys else None
            attributes = group.attributes[row] if group.attributes else None
            if timed is not None:
                attributes = {**(attributes or {}), **timed}
            parents = group.parents.get(row) if group.parents else None
            if parents is not None:
                attributes = {**(attributes or {}), "parents": [str(parent) for parent in parents.ids(ids)]}
            lines.append(
                b"%d%b%b\t%b\t%b\t%b\n"
                % (
                    first_id + position,
                    head,
                    tasks[group.task_of(row)],
                    _NULL if key is None else b"\\\\x" + key.hex().encode(),
                    _escape(group.args[row]),
                    _NULL if attributes is None else _escape(_encode(attributes)),
                )
            )
    return b"".join(lines)


def _escape(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")

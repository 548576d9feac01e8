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
    """A line for each job that is written; `ids` are those of the whole call, for children's parents. When they were
    enqueued is left to the server, which is at that time, `now`, for the whole transaction: to read it from each line
    would cost about a tenth of the COPY.
    """
    lines: list[bytes] = []
    for new in ranges:
        group, first_id = new.group, new.first_id
        to = group.destination
        head = b"\t%d\t%d\t" % (to.partition_id, to.priority)
        due_at = to.due_at(now)
        timed = {"run_at": due_at.astimezone(UTC).isoformat()} if due_at is not None and due_at > now else None
        if (group.keys, group.attributes, group.parents, group.tasks, timed) == (None,) * 5:
            head += b"%b\t\\N\t" % _escape(to.task.encode())
            args = [group.args[new.low + position] for position in new.positions]
            # Nearly always there is nothing to escape, and it is looked for once.
            if b"".join(args).find(b"\\") >= 0:
                args = [_escape(each) for each in args]
            lines += [b"%d%b%b\t\\N\n" % (first_id + p, head, a) for p, a in zip(new.positions, args, strict=True)]
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

"""What needs attention, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.model import Attention
from penstock.server.call import Call
from penstock.server.narrowing import refuse_tenant
from penstock.server.operation import Operations

__all__ = ["attention"]

attention = Operations()
_TEXTS = ("error", "reason")


@dataclass(frozen=True, slots=True)
class AttentionList:
    """What needs attention, the most urgent first."""

    attention: list[Attention]
    unavailable: list[str]


@attention.add("GET", "/attention", may="read", is_narrowed=True)
def list_attention(call: Call) -> AttentionList:
    """What needs a person's attention now, in the whole system; of a token for some queues, what is about these."""
    refuse_tenant(call.caller)
    found = call.app.attention(call.caller.queues)
    if call.caller.hides_args:
        found = [_without_texts(each) for each in found]
    return AttentionList(found, call.unavailable())


def _without_texts(found: Attention) -> Attention:
    """Without what may quote a job."""
    return replace(found, detail={name: value for name, value in found.detail.items() if name not in _TEXTS})

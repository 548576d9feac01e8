"""Who calls, and what they may: an administrator, a token's bearer, or whoever sits at this machine.

A token's role decides which operations it may call. One that names queues may call what is about one of these, and what
narrows itself to them (`Operation.is_narrowed`); one that is a tenant's only what narrows itself to that tenant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.token import Role
from penstock.server.operation import Operation
from penstock.server.problem import ProblemError

__all__ = ["Caller", "check_may"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One request's. `bearer` is the name of its token; None: there was none, and none was needed. `user` is whom a
    trusted proxy signed in.
    """

    bearer: str | None
    user: str | None = None
    role: Role
    queues: frozenset[str] | None = None
    tenant: str | None = None
    hides_args: bool = False
    address: str | None = None

    @property
    def name(self) -> str:
        """As it stands in the audit."""
        if self.user is not None:
            return f"user {self.user}"
        return f"token {self.bearer}" if self.bearer is not None else "this machine"

    @property
    def is_narrow(self) -> bool:
        """Whether it may touch some jobs only."""
        return self.queues is not None or self.tenant is not None

    @property
    def sees_all(self) -> bool:
        """Whether nothing is kept from it, neither jobs nor what stands in them."""
        return not self.is_narrow and not self.hides_args

    def may_see(self, queue: str, tenant: str | None) -> bool:
        """Whether it may touch a job of that queue and tenant."""
        return (self.queues is None or queue in self.queues) and self.tenant in (None, tenant)


def check_may(caller: Caller, operation: Operation, named: Mapping[str, str]) -> None:
    """Refuse what the caller may not call."""
    if caller.role not in (Role.ADMIN, operation.may):
        raise ProblemError(
            "forbidden", f"a token with role {operation.may} may do this, and this one has role {caller.role}"
        )
    if operation.may is Role.WORK and caller.hides_args:
        raise ProblemError(
            "forbidden", "a token that hides arguments may not: whoever runs a job is given its arguments"
        )
    if caller.tenant is not None and not operation.is_narrowed:
        raise ProblemError("forbidden", "a tenant's token may not do this: it would tell of other tenants")
    if caller.queues is None:
        return
    queue = named.get("queue")
    if queue is None and not operation.is_narrowed:
        raise ProblemError("forbidden", "a token for some queues may not do this: it is about all of them")
    if queue is not None and queue not in caller.queues:
        # The same whether there is such a queue or not.
        raise ProblemError("forbidden", "this token is for other queues")

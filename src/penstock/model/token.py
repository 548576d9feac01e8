"""An access token: by what a program that is no part of this one may come in, and how far."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

__all__ = ["TENANT_ROLES", "Role", "Token"]


class Role(StrEnum):
    """What the bearer of a token may do. None includes another, but for `admin`, which includes all."""

    # Look at queues, jobs, loads, figures.
    READ = "read"
    # Enqueue and load.
    PRODUCE = "produce"
    # Be a worker.
    WORK = "work"
    # All of that, repair, and change what there is.
    ADMIN = "admin"


# A worker gets jobs of any tenant, and an administrator acts on whole queues: only these can be kept to one.
TENANT_ROLES = (Role.READ, Role.PRODUCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An access token as it is read back, without its secret, which nobody knows but its bearer.

    `queues` is None where it is good for all. One that has expired or is revoked lets nobody in.
    """

    name: str
    role: Role
    queues: tuple[str, ...] | None
    tenant: str | None
    hides_args: bool
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None

    def allows(self, role: Role) -> bool:
        """Whether its bearer may do what takes this role."""
        return self.role in (role, Role.ADMIN)

    def covers(self, queue: str) -> bool:
        """Whether it is good for a queue."""
        return self.queues is None or queue in self.queues

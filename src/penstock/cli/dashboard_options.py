"""What the dashboard is told where it is served: a proxy that signs people in, and the report of the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import InvalidInput
from penstock.model.token import Role

if TYPE_CHECKING:
    from penstock.server import ReportFile, TrustedProxy

__all__ = ["ProxyRole", "ProxyUserHeader", "Report", "TrustedProxyAddress", "report_file", "trusted_proxy"]

TrustedProxyAddress = Annotated[
    str | None,
    typer.Option(
        "--trusted-proxy", metavar="ADDRESS", help="The IP address of a proxy that signs people in to the dashboard."
    ),
]
ProxyRole = Annotated[
    str | None,
    typer.Option(
        "--proxy-role", metavar="ROLE", help="What whom the proxy signs in may do: read (the default), admin."
    ),
]
ProxyUserHeader = Annotated[
    str | None,
    typer.Option(
        "--proxy-user-header",
        metavar="NAME",
        help="The header in which the proxy names them; X-Forwarded-User if not given.",
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report", metavar="FILE", help="The page that penstock report writes, to be shown in the dashboard."
    ),
]


def trusted_proxy(address: str | None, role: str | None, header: str | None) -> TrustedProxy | None:
    """The proxy that was named."""
    from penstock.server import TrustedProxy

    if address is None:
        if role is not None or header is not None:
            raise typer.BadParameter("give the address of the proxy too: --trusted-proxy ADDRESS")
        return None
    try:
        known = Role(role or Role.READ)
    except ValueError:
        raise InvalidInput("proxy_role", f"{role!a:.80} is no role for people; give read or admin") from None
    return TrustedProxy(address, known) if header is None else TrustedProxy(address, known, header)


def report_file(path: str | None) -> ReportFile | None:
    """The report that was named."""
    from penstock.server import ReportFile

    return None if path is None else ReportFile(path)

"""The HTTP API and the dashboard inside an application of Starlette, below /jobs.

uvicorn mounted_starlette:web --timeout-graceful-shutdown 5

FastAPI is the same: `web = FastAPI(lifespan=api.lifespan)`, then `web.mount("/jobs", api)`.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from penstock import App
from penstock.server import asgi

jobs = App()  # $PENSTOCK_URL


@jobs.queue("mail").task
def send(to: str) -> None: ...


async def sign_up(request: Request) -> JSONResponse:
    """A request of the application's own, which enqueues."""
    job = await send.aenqueue(to=(await request.json())["email"])
    return JSONResponse({"job": str(job)}, status_code=202)


api = asgi(jobs)
# The lifespan lets the API end as a server that is told to stop. Where there is another already: enter both in one.
web = Starlette(routes=[Route("/sign-up", sign_up, methods=["POST"]), Mount("/jobs", api)], lifespan=api.lifespan)

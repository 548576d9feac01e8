"""The HTTP API and the dashboard inside a project of Django, below /jobs: what matters stands in its `asgi.py`.

uvicorn mounted_django:application --timeout-graceful-shutdown 5

Settings, a view and `asgi.py` are in one file here, to be run as it is.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from penstock import App
from penstock.server import asgi

# settings.py

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="your own")

# views.py and urls.py

jobs = App()  # $PENSTOCK_URL


@jobs.queue("mail").task
def send(to: str) -> None: ...


def sign_up(request: HttpRequest) -> JsonResponse:
    """A request of the project's own, which enqueues."""
    job = send.enqueue(to=json.loads(request.body)["email"])
    return JsonResponse({"job": str(job)}, status=202)


urlpatterns = [path("sign-up", sign_up)]

# asgi.py

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

django = get_asgi_application()
api = asgi(jobs)
MOUNTED_AT = "/jobs"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Give Penstock what is below its path, and the server's start and end, of which Django wants to hear nothing."""
    if scope["type"] == "lifespan":
        await api(scope, receive, send)
    elif scope["path"] == MOUNTED_AT or scope["path"].startswith(f"{MOUNTED_AT}/"):
        await api({**scope, "root_path": scope.get("root_path", "") + MOUNTED_AT}, receive, send)
    else:
        await django(scope, receive, send)

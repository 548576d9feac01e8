"""The dashboard as a browser of few words meets it: cookies, forms, and nothing that runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import Morsel, SimpleCookie
from typing import Any

import httpx

from penstock import App
from penstock.server import Application
from penstock.server.beside import serving_beside
from penstock.server.serving import bind

__all__ = ["browsing", "cookie", "csrf_in", "sign_in"]

CSRF = re.compile(r'(?:name="csrf" value|data-csrf)="([^"]*)"')


@contextmanager
def browsing(app: App, **options: Any) -> Iterator[httpx.Client]:
    """A browser of few words: it keeps cookies, follows no redirect, and says where its forms come from."""
    application = Application(app, **{"is_local": False, **options})
    with serving_beside(application, bind("127.0.0.1", 0)) as url:
        headers = {"Origin": url, "Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
        with httpx.Client(base_url=url, timeout=60, trust_env=False, headers=headers) as client:
            yield client


def csrf_in(page: httpx.Response) -> str:
    found = CSRF.search(page.text)
    assert found is not None
    return found[1]


def sign_in(client: httpx.Client, token: str, following: str = "/", **headers: str) -> httpx.Response:
    form = {"csrf": csrf_in(client.get("/sign-in")), "token": token, "next": following}
    return client.post("/sign-in", data=form, headers=headers)


def cookie(response: httpx.Response, name: str) -> Morsel[str]:
    (found,) = [header for header in response.headers.get_list("set-cookie") if header.startswith(f"{name}=")]
    return SimpleCookie(found)[name]

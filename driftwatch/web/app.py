"""The web as an ASGI application."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio.to_thread
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from driftwatch.notify.numbers import clean, cut
from driftwatch.web.answers import form_endpoint, json_endpoint, page_endpoint, refused
from driftwatch.web.context import Web
from driftwatch.web.drawing import style_sheet
from driftwatch.web.guard import Guard
from driftwatch.web.page import Link, NotFound
from driftwatch.web.registry import forms, pages
from driftwatch.web.sessions import sign_in, sign_out
from driftwatch.web.visitor import API, visitor_of

FIRST_PAGE = "/fleet"
# as many as the pool of a PostgreSQL has connections
_THREADS = 8


def application(web: Web) -> Starlette:
    """The pages, forms and documents of one web."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        with web.fleet.kept_fresh(web.database.reader):
            yield
        web.database.close()

    async def not_here(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 404:
            error = _no_page(request.url.path)
        return refused(web, visitor_of(request, web), error)

    async def failed(request: Request, error: Exception) -> Response:
        log = structlog.get_logger()
        path = clean(request.url.path)
        log.error("page failed", path=path, reason=repr(error)[:200], at=_place(error))
        return refused(web, visitor_of(request, web), error)

    return Starlette(
        routes=[*_routes(web)],
        middleware=[Middleware(Guard, hosts=web.hosts, root=web.root)],
        exception_handlers={HTTPException: not_here, Exception: failed},
        lifespan=lifespan,
    )


def _routes(web: Web) -> Iterator[Route]:
    async def first(_: Request) -> Response:
        return RedirectResponse(web.root + FIRST_PAGE, 302)

    async def style(_: Request) -> Response:
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(style_sheet()[1], media_type="text/css", headers=headers)

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok\n")  # of the process: the database may be down

    yield Route("/", first)
    yield Route("/-/healthy", healthy)
    yield Route(f"/static/{style_sheet()[0]}", style)
    yield from sign_in(web)
    yield from sign_out(web)
    for form in forms():
        yield Route(form.path, form_endpoint(web, form), methods=["POST"])
    for page in pages():
        yield Route(page.path, page_endpoint(web, page))
        if page.api is not None:
            yield Route(f"{API}{page.api}", json_endpoint(web, page))


def _place(error: Exception) -> str:
    """Where it was raised: no locals, which may hold secrets."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"


def _no_page(path: str) -> NotFound:
    whole = {page.path: page.title for page in pages() if "{" not in page.path}
    near = difflib.get_close_matches(path, whole, n=3, cutoff=0.5) or [FIRST_PAGE]
    links = tuple(Link(text=whole.get(one, one), path=one) for one in near)
    return NotFound(f"There is no page {cut(clean(path), 100)}.", links)

"""The web as an ASGI application: requests → pages or JSON; every error is a page, too."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftwatch.clock import Clock
from driftwatch.errors import DriftwatchError, NoVerdict, StoreError, UsageError
from driftwatch.notify.phrases.limits import LIMIT_WORDS
from driftwatch.numbers import clean, cut
from driftwatch.pipeline.plan import Plan
from driftwatch.settings.service import WebSettings, listen_address
from driftwatch.web import api, fleet, incident_forms, incidents, reports, runbook, target
from driftwatch.web.access import LONGEST_NAME, SIGNED_IN_FOR, People, own_path, person_name, posted
from driftwatch.web.database import WebDatabase
from driftwatch.web.page import (
    BAD,
    IN_WORDS,
    Form,
    Link,
    NotFound,
    Page,
    Query,
    Visit,
    html_of,
    parsed,
    style_sheet,
)

PAGES: tuple[Page, ...] = (
    *(fleet.PAGE, incidents.LIST, reports.LIST, runbook.PAGE, reports.PAGE),
    *(incidents.PAGE, fleet.POOL_PAGE, target.PAGE),
)
FORMS: tuple[Form, ...] = incident_forms.FORMS
FIRST_PAGE, SIGN_IN = "/fleet", "/sign-in"
# as many as the pool of a PostgreSQL has connections
_THREADS = 8
_AT_MOST = 300  # characters of an error
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
# no script at all, nothing from elsewhere, no frame around it; forms come back here
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_UNLESS_GIVEN = HEADERS | {"Cache-Control": "no-store"}
_TITLES = {
    **{400: "Not understood", 403: "Read-only", 404: "Not here", 409: "Not done"},
    503: "Not possible now",
}
_READ_ONLY = (
    "You may look, and not act: nobody who may act has signed in here. Sign in, or come through "
    "the configured proxy."
)
_NO_TOKEN = "Nobody signs in here: the configuration has no web.token_file."  # noqa: S105
_NO_NAME = f"Give your name: 1 to {LONGEST_NAME} printable characters."
_WRONG = "That is not the token of web.token_file."
# a falling line
ICON = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path d="M1 4h5l4 7h5" '
    b'fill="none" stroke="#0072b2" stroke-width="2.5"/></svg>'
)


@dataclass(frozen=True, slots=True)
class Web:
    """One web process."""

    settings: WebSettings
    plan: Plan
    database: WebDatabase
    people: People
    clock: Clock
    external_url: str | None = None
    where: str = ""  # options that name its configuration and database in a command

    def command(self, *words: str) -> str:
        """A command to copy."""
        return shlex.join(["driftwatch", *words]) + self.where

    @property
    def root(self) -> str:
        """Path below which it is served, without a slash at its end; empty: the host itself."""
        return "" if self.external_url is None else urlsplit(self.external_url).path.rstrip("/")

    @property
    def is_secure(self) -> bool:
        """Whether people reach it through TLS."""
        return (self.external_url or "").lower().startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that it answers to: of its address and of its URL.

        An address that stands for every interface is none.
        """
        host = listen_address(self.settings.listen)[0].lower()
        own = () if host in ("0.0.0.0", "::", "*") else (host, f"[{host}]")  # noqa: S104
        external = urlsplit(self.external_url or "").hostname or "localhost"
        return frozenset((*_LOOPBACK, *own, external.lower()))


def application(web: Web) -> Starlette:
    """The pages, forms and documents of one web."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield
        web.database.close()

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.detail == "Not Found":
            error = _no_page(request.url.path)
        elif isinstance(error, StoreError):
            web.database.failed()
        elif not isinstance(error, NotFound | DriftwatchError | HTTPException):
            log, path = structlog.get_logger(), clean(request.url.path)
            log.error("page failed", path=path, reason=repr(error)[:200], at=_place(error))
        is_form = request.method == "POST"
        parts = _refusal(error, is_form=is_form)
        if request.url.path.startswith(f"{api.ROOT}/"):
            return api.json_response(parts, parts["status"])
        path, typed = request.url.path, getattr(request.state, "typed", ())
        parts["typed"] = [text for name, text in typed if text and name in IN_WORDS]
        if parts["link"] is None and parts["status"] in (400, 409):
            back = Link("Back to the form", path.rpartition("/")[0])
            parts["link"] = back if is_form else Link("The page without parameters", path)
        return _html(web, request, "refused.html", parts, parts["status"])

    errors = (NotFound, DriftwatchError, HTTPException, Exception)
    return Starlette(
        routes=[*_routes(web)],
        middleware=[
            Middleware(Outermost, root=web.root),
            # no name that somebody else points here
            Middleware(TrustedHostMiddleware, allowed_hosts=[*web.hosts], www_redirect=False),
            Middleware(
                SessionMiddleware,
                secret_key=web.people.secret,
                session_cookie="driftwatch_session",
                max_age=int(SIGNED_IN_FOR.total_seconds()),
                path=web.root or "/",
                same_site="strict",
                https_only=web.is_secure,
            ),
        ],
        exception_handlers=dict.fromkeys(errors, refused),
        lifespan=lifespan,
    )


class Outermost:
    """Adds headers to every answer, and strips the path below which the web is served.

    A proxy may strip it, too.
    """

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app, self._root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in _UNLESS_GIVEN.items():
                    headers.setdefault(name, text)
            await send(message)

        path = scope.get("path", "")
        if self._root and (path == self._root or path.startswith(self._root + "/")):
            scope = {**scope, "path": path[len(self._root) :] or "/"}
        await self._app(scope, receive, with_headers)


def _routes(web: Web) -> Iterator[Route]:
    async def first(_: Request) -> Response:
        return RedirectResponse(web.root + FIRST_PAGE, 302)

    async def style(_: Request) -> Response:
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(style_sheet()[1], media_type="text/css", headers=headers)

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok\n")  # of the process: the database may be down

    async def icon(_: Request) -> Response:
        headers = {"Cache-Control": "public, max-age=86400"}
        return Response(ICON, media_type="image/svg+xml", headers=headers)

    yield Route("/", first)
    yield Route("/static/icon.svg", icon)
    yield Route("/-/healthy", healthy)
    yield Route(f"/static/{style_sheet()[0]}", style)
    yield from _sign_in(web)
    for form in FORMS:
        yield Route(form.path, _post(web, form), methods=["POST"])
    for page in PAGES:
        yield Route(page.path, _get(web, page))
    for resource in api.RESOURCES:
        yield Route(api.ROOT + resource.path, _get(web, resource))


def _get(web: Web, wanted: Page | api.Resource) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:  # Starlette runs it in a thread
        query = parsed(wanted.query, request.query_params.multi_items(), "parameter")
        parts = wanted.load(_visit(web, request, query, writes=False))
        if isinstance(wanted, Page):
            return _html(web, request, wanted.template, parts)
        return api.json_response(parts)

    return endpoint


def _post(web: Web, form: Form) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        person = web.people.person(request, web.clock.now())
        if person is None:
            raise HTTPException(403, _READ_ONLY)
        request.state.typed = await posted(request, web.hosts)
        fields = parsed(form.fields, request.state.typed, "field")
        path = request.url.path
        await run_in_threadpool(lambda: form.act(_visit(web, request, fields, writes=True)))
        log = structlog.get_logger()
        log.info("acted", path=clean(path), by=clean(person.name), through=person.by)
        return RedirectResponse(web.root + path.rpartition("/")[0], 303)

    return endpoint


def _visit(web: Web, request: Request, query: Query, *, writes: bool) -> Visit:
    path = {name: str(part) for name, part in request.path_params.items()}
    store = web.database.writer() if writes else web.database.reader()
    now = web.clock.now()
    return Visit(web, store, now, path, query, web.people.person(request, now))


def _html(
    web: Web, request: Request, template: str, parts: Mapping[str, Any], status: int = 200
) -> Response:
    now = web.clock.now()
    query = f"?{request.url.query}" if request.url.query else ""
    html = html_of(
        template,
        **parts,
        root=web.root,
        # of a request that was refused before its session was read there is nobody
        person=web.people.person(request, now) if "session" in request.scope else None,
        people=web.people,
        address=request.url.path + query,
        now=now,
        command=web.command,
        where=web.where,
        lines_of=incidents.line_of,
        page_lines=incidents.page_lines,
        limit_words=LIMIT_WORDS,
        navigation=[one for one in PAGES if one.is_placed],
    )
    return Response(html, status, media_type="text/html; charset=utf-8")


def _sign_in(web: Web) -> Iterator[Route]:
    """The form that takes token and name, and the end of a session."""

    async def sign_in(request: Request) -> Response:
        if not web.people.can_sign_in:
            raise HTTPException(404, _NO_TOKEN)
        is_form, wrong, log = request.method == "POST", None, structlog.get_logger()
        fields = dict(await posted(request, web.hosts) if is_form else request.query_params)
        name, back = person_name(fields.get("name", "")), own_path(fields.get("back", "/"))
        if is_form:
            if name and web.people.sign_in(request, name, fields.get("token", ""), web.clock.now()):
                log.info("signed in", name=clean(name))
                return RedirectResponse(web.root + back, 303)
            log.warning("sign-in refused", name=clean(fields.get("name", "")[:40]))
            wrong = _WRONG if name else _NO_NAME
        parts = {"title": "Sign in", "back": back, "wrong": wrong, "name": name}
        return _html(web, request, "sign_in.html", parts, 403 if is_form else 200)

    async def leave(request: Request) -> Response:
        await posted(request, web.hosts)
        request.session.clear()
        return RedirectResponse(web.root + "/", 303)

    yield Route(SIGN_IN, sign_in, methods=["GET", "POST"])
    yield Route("/sign-out", leave, methods=["POST"])


def _refusal(error: Exception, *, is_form: bool) -> dict[str, Any]:
    """The values of the page of an error: the problem and its remedy."""
    help_text = getattr(error, "help_text", None)
    message = getattr(error, "message", None) or str(error)
    status = 500
    if isinstance(error, HTTPException):
        status, message = error.status_code, str(error.detail)
    elif isinstance(error, StoreError):
        status = 503
    elif isinstance(error, NotFound | NoVerdict):
        status = 404
    elif isinstance(error, UsageError):
        status = 409 if is_form and help_text != BAD else 400
    elif not isinstance(error, DriftwatchError):
        message = f"not expected: {type(error).__name__}; the log of driftwatch web has more"
    return {
        "title": _TITLES.get(status, "Not answered"),
        "status": status,
        "message": cut(clean(message), _AT_MOST),
        "help": None if help_text is None else cut(clean(help_text), _AT_MOST),
        "link": getattr(error, "link", None),
    }


def _place(error: Exception) -> str:
    """File and line of an error, without locals: these may hold secrets."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"


def _no_page(path: str) -> NotFound:
    return NotFound(f"There is no page {cut(clean(path), 100)}.", Link("The fleet", FIRST_PAGE))

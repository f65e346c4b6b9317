"""The web as an ASGI application: requests → views → HTML or JSON; every error is a page, too."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio.to_thread
import structlog
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftwatch.clock import Clock
from driftwatch.errors import DriftwatchError, NoVerdict, StoreError, UsageError
from driftwatch.numbers import clean, cut
from driftwatch.pipeline.plan import Plan
from driftwatch.settings.web import WebSettings, listen_address
from driftwatch.web.access import (
    SESSION_COOKIE,
    SIGNED_IN_FOR,
    People,
    Person,
    host_of,
    own_path,
    person_name,
    posted,
)
from driftwatch.web.database import WebDatabase
from driftwatch.web.drawing import html_of, style_sheet
from driftwatch.web.fleet import FleetMinutes
from driftwatch.web.page import Form, Link, NotFound, Page, Query, View, Visit
from driftwatch.web.pages import fleet, incident_forms, incidents, pool, report, target

PAGES: tuple[Page, ...] = (
    *(fleet.PAGE, incidents.LIST, report.LIST, report.PAGE),
    *(incidents.PAGE, pool.PAGE, target.PAGE),
)
FORMS: tuple[Form, ...] = incident_forms.FORMS
API, FIRST_PAGE, SIGN_IN = "/api/v1", "/fleet", "/sign-in"
# as many as the pool of a PostgreSQL has connections
_THREADS = 8
_AT_MOST = 300  # characters of an error
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
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
_WRONG = "That is not the token of web.token_file, or the name is empty."
BAD = "docs/sre/web.md names the parameters"
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Web:
    """One web process."""

    settings: WebSettings
    plan: Plan
    database: WebDatabase
    people: People
    clock: Clock
    fleet: FleetMinutes
    external_url: str | None = None

    @property
    def root(self) -> str:
        """Path below which it is served, without a slash at its end; empty = everything."""
        return "" if self.external_url is None else urlsplit(self.external_url).path.rstrip("/")

    @property
    def hosts(self) -> frozenset[str]:
        """The names that it answers to: of its address and of its URL.

        An address that stands for every interface gives no name.
        """
        host = listen_address(self.settings.listen)[0].lower()
        own = () if host in ("0.0.0.0", "::", "*") else (host,)  # noqa: S104 - to leave them out
        external = urlsplit(self.external_url or "").hostname or "localhost"
        return frozenset((*_LOOPBACK, *own, external.lower()))


def application(web: Web) -> Starlette:
    """The pages, forms and documents of one web."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        with web.fleet.kept_fresh(web.database.reader):
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
        view = _refused(error, is_form=request.method == "POST")
        return _answer(web, request, "refused.html", view, status=getattr(view, "status", 500))

    errors = (NotFound, DriftwatchError, HTTPException, Exception)
    return Starlette(
        routes=[*_routes(web)],
        middleware=[Middleware(Guard, hosts=web.hosts, root=web.root)],
        exception_handlers=dict.fromkeys(errors, refused),
        lifespan=lifespan,
    )


class Guard:
    """Refuses requests for another host (a name that an attacker made point here), and gives every
    answer its headers.

    ``hosts``: names that it answers to; ``root``: path below which it is served, or empty.
    (Starlette's TrustedHostMiddleware does not read IPv6 addresses.)
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], root: str) -> None:
        self._app, self._hosts, self._root = app, hosts, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on with its path below the root."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in _UNLESS_GIVEN.items():
                    headers.setdefault(name, text)
            await send(message)

        named = [text.decode("latin-1") for name, text in scope["headers"] if name == b"host"]
        if len(named) != 1 or host_of(named[0]) not in self._hosts:
            text = "driftwatch does not answer to this host name. help: name it "
            refused = PlainTextResponse(f"{text}in external_url\n", 421)
            await refused(scope, receive, with_headers)
            return
        path = scope["path"]
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

    yield Route("/", first)
    yield Route("/-/healthy", healthy)
    yield Route(f"/static/{style_sheet()[0]}", style)
    yield from _sign_in(web)
    for form in FORMS:
        yield Route(form.path, _form_endpoint(web, form), methods=["POST"])
    for page in PAGES:
        yield Route(page.path, _page_endpoint(web, page))
        if page.api is not None:
            yield Route(f"{API}{page.api}", _page_endpoint(web, page))


def _page_endpoint(web: Web, page: Page) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:  # Starlette runs it in a thread
        query = parsed(page.query, request.query_params.multi_items(), "parameter")
        view = page.load(_visit(web, request, query, writes=False))
        return _answer(web, request, page.template, view, page)

    return endpoint


def _form_endpoint(web: Web, form: Form) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        person = web.people.person(request, web.clock.now())
        if person is None:
            raise HTTPException(403, _READ_ONLY)
        fields = parsed(form.fields, await posted(request, web.hosts), "field")
        location = await run_in_threadpool(_acted, web, form, request, fields, person)
        return RedirectResponse(web.root + location, 303)

    return endpoint


def _acted(web: Web, form: Form, request: Request, fields: Query, person: Person) -> str:
    location = form.act(_visit(web, request, fields, writes=True))
    by, path = clean(person.name), clean(request.url.path)
    structlog.get_logger().info("acted", path=path, by=by, through=person.by)
    return location


def _visit(web: Web, request: Request, query: Query, *, writes: bool) -> Visit:
    path = {name: str(part) for name, part in request.path_params.items()}
    store = web.database.writer() if writes else web.database.reader()
    now = web.clock.now()
    return Visit(web, store, now, path, query, web.people.person(request, now))


def _answer(
    web: Web,
    request: Request,
    template: str,
    view: View,
    page: Page | None = None,
    *,
    status: int = 200,
) -> Response:
    """The view as JSON below /api/v1, else drawn."""
    if request.url.path.startswith(f"{API}/"):
        return Response(view.model_dump_json(), status, media_type="application/json")
    now = web.clock.now()
    query = f"?{request.url.query}" if request.url.query else ""
    html = html_of(
        template,
        view=view,
        plots={} if page is None else page.plots(view),
        root=web.root,
        person=web.people.person(request, now),
        people=web.people,
        path=request.url.path + query,
        now=now,
        old_end=web.fleet.old_end(now),
        navigation=[one for one in PAGES if one.is_placed],
    )
    return Response(html, status, media_type="text/html; charset=utf-8")


def _sign_in(web: Web) -> Iterator[Route]:
    """The form that takes token and name, what answers it, and what ends a session."""

    def form(request: Request, back: str, wrong: str | None, status: int = 200) -> Response:
        if not web.people.can_sign_in:
            raise HTTPException(404, _NO_TOKEN)
        view = View.of("Sign in", back=own_path(back), wrong=wrong)
        return _answer(web, request, "sign_in.html", view, status=status)

    def ask(request: Request) -> Response:
        return form(request, request.query_params.get("back", "/"), None)

    async def take(request: Request) -> Response:
        fields = dict(await posted(request, web.hosts))
        name, back = person_name(fields.get("name", "")), own_path(fields.get("back", "/"))
        log = structlog.get_logger()
        if not await run_in_threadpool(web.people.is_token, fields.get("token", "")) or not name:
            log.warning("sign-in refused", name=clean(fields.get("name", "")[:40]))
            return form(request, back, _WRONG, 403)
        log.info("signed in", name=clean(name))
        response = RedirectResponse(web.root + back, 303)
        response.set_cookie(
            SESSION_COOKIE,
            web.people.session(name, web.clock.now()),
            max_age=int(SIGNED_IN_FOR.total_seconds()),
            path=web.root or "/",
            secure=(web.external_url or "").lower().startswith("https://"),
            httponly=True,
            samesite="strict",
        )
        return response

    async def leave(request: Request) -> Response:
        await posted(request, web.hosts)
        response = RedirectResponse(web.root + "/", 303)
        response.delete_cookie(SESSION_COOKIE, path=web.root or "/")
        return response

    yield Route(SIGN_IN, ask, methods=["GET"])
    yield Route(SIGN_IN, take, methods=["POST"])
    yield Route("/sign-out", leave, methods=["POST"])


def _refused(error: Exception, *, is_form: bool) -> View:
    """The page of an error: what is wrong, and what helps."""
    help_text, near = getattr(error, "help_text", None), getattr(error, "near", ())
    message = getattr(error, "message", None) or str(error)
    if isinstance(error, HTTPException):
        status, message = error.status_code, str(error.detail)
    elif isinstance(error, StoreError):
        status = 503
    elif isinstance(error, NotFound | NoVerdict):
        status = 404
    elif isinstance(error, UsageError):
        status = 409 if is_form and help_text != BAD else 400
    elif isinstance(error, DriftwatchError):
        status = 500
    else:
        status = 500
        message = f"not expected: {type(error).__name__}; the log of driftwatch web has more"
    return View.of(
        _TITLES.get(status, "Not answered"),
        status=status,
        message=cut(clean(message), _AT_MOST),
        help=None if help_text is None else cut(clean(help_text), _AT_MOST),
        near=near,
    )


def parsed(model: type[Model], pairs: Sequence[tuple[str, str]], noun: str) -> Model:
    """Parameters or fields as their model; an empty one counts as not given.

    Raises UsageError: with every one that is wrong.
    """
    values: dict[str, Any] = {}
    for name, text in pairs:
        if text != "" and name in values:
            raise UsageError(f"{noun} {clean(name)[:40]!r} stands there twice", help_text=BAD)
        if "\0" in text:  # PostgreSQL takes none in a text
            raise UsageError(f"{noun} {clean(name)[:40]!r} holds a NUL", help_text=BAD)
        if text != "":
            values[name] = text
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_problem(model, one, noun) for one in error.errors()[:5])
        raise UsageError(problems, help_text=BAD) from None


def _problem(model: type[BaseModel], error: Mapping[str, Any], noun: str) -> str:
    name = str(error["loc"][0]) if error["loc"] else noun
    label = cut(clean(name), 40)
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, model.model_fields, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"there is no {noun} {label}{hint}"
    return f"{noun} {label}: {cut(clean(str(error['msg'])), 120)}"


def _place(error: Exception) -> str:
    """Where it was raised: no locals, which may hold secrets."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"


def _no_page(path: str) -> NotFound:
    whole = {page.path: page.title for page in PAGES if "{" not in page.path}
    near = difflib.get_close_matches(path, whole, n=3, cutoff=0.5) or [FIRST_PAGE]
    links = tuple(Link(text=whole[one], path=one) for one in near)
    return NotFound(f"There is no page {cut(clean(path), 100)}.", links)

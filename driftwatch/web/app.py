"""The web as an ASGI application, which answers with pages or JSON, and its socket."""

from __future__ import annotations

import shlex
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio.to_thread
import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from driftwatch.clock import Clock
from driftwatch.errors import DriftwatchError, NoVerdict, StoreError, UsageError
from driftwatch.incidents.delivery import status_text
from driftwatch.incidents.silence import silences_incident
from driftwatch.notify.phrases.limits import LIMIT_WORDS
from driftwatch.numbers import clean, cut
from driftwatch.pipeline.plan import Plan
from driftwatch.settings.file import WebSettings, listen_address
from driftwatch.web import api, fleet, incident_forms, incidents, reports, runbook, target
from driftwatch.web.access import LONGEST_NAME, SIGNED_IN_FOR, People, own_path, person_name, posted
from driftwatch.web.database import WebDatabase
from driftwatch.web.page import (
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

if TYPE_CHECKING:
    from uvicorn import Server

PAGES: tuple[Page, ...] = (
    *(fleet.PAGE, incidents.LIST, reports.LIST, runbook.PAGE, reports.PAGE),
    *(incidents.PAGE, fleet.POOL_PAGE, target.PAGE),
)
FLEET = fleet.PAGE.path
# as many as the pool of a PostgreSQL has connections
_THREADS = 8
_SHUTDOWN_SECONDS, _IDLE_SECONDS = 5, 20
_MOST_CONNECTIONS, _MOST_HEADER_BYTES = 200, 16_384
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
# of an error, the first kind that fits
_STATUS = ((NotFound, 404), (NoVerdict, 404), (StoreError, 503), (UsageError, 400))
_TITLES = {400: "Not understood", 403: "Read-only", 404: "Not here", 503: "Not possible now"}
_READ_ONLY = "You may look only. To act, sign in, or come through the configured proxy."
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
        return urlsplit(self.external_url or "").path.rstrip("/")

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that it answers to: of this machine, of its address and of its URL.

        An address that stands for every interface is none.
        """
        host = listen_address(self.settings.listen)[0].lower()
        own = () if host in ("0.0.0.0", "::", "*") else (host, f"[{host}]")  # noqa: S104
        external = urlsplit(self.external_url or "").hostname or "localhost"
        return frozenset((*_LOOPBACK, *own, external.lower()))


_ERRORS = (DriftwatchError, HTTPException, Exception)


def application(web: Web) -> Starlette:
    """The pages, forms and documents of one web."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield
        web.database.close()

    return Starlette(
        routes=[*_routes(web)],
        middleware=[
            Middleware(Outermost, root=web.root),
            # refuses host names that somebody else points here
            Middleware(TrustedHostMiddleware, allowed_hosts=[*web.hosts], www_redirect=False),
            Middleware(
                SessionMiddleware,
                secret_key=web.people.secret,
                session_cookie="driftwatch_session",
                max_age=int(SIGNED_IN_FOR.total_seconds()),
                path=web.root or "/",
                same_site="strict",
                https_only=(web.external_url or "").lower().startswith("https://"),
            ),
        ],
        exception_handlers=dict.fromkeys(_ERRORS, partial(_refusal, web)),
        lifespan=lifespan,
    )


class Outermost(BaseHTTPMiddleware):
    """Adds headers to every answer. Strips the path below which the web is served.

    A proxy may strip it, too.
    """

    def __init__(self, app: ASGIApp, root: str) -> None:
        super().__init__(app)
        self._root = root

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Pass the request on."""
        path = request.scope["path"]
        if self._root and f"{path}/".startswith(f"{self._root}/"):
            request.scope["path"] = path[len(self._root) :] or "/"
        response = await call_next(request)
        for name, text in _UNLESS_GIVEN.items():
            response.headers.setdefault(name, text)
        return response


def _routes(web: Web) -> Iterator[Route]:
    def fixed(content: bytes, media_type: str, cached: str = "") -> Callable[[Request], Response]:
        headers = {"Cache-Control": cached} if cached else {}
        return lambda _: Response(content, media_type=media_type, headers=headers)

    css, forever = style_sheet(), "public, max-age=31536000, immutable"
    yield Route("/", lambda _: RedirectResponse(web.root + FLEET, 302))
    yield Route("/static/icon.svg", fixed(ICON, "image/svg+xml", "public, max-age=86400"))
    # answers while the database is down
    yield Route("/-/healthy", fixed(b"ok\n", "text/plain"))
    yield Route(f"/static/{css[0]}", fixed(css[1], "text/css", forever))
    yield Route("/sign-in", _sign_in(web), methods=["GET", "POST"])
    yield Route("/sign-out", _sign_out(web), methods=["POST"])
    for form in incident_forms.FORMS:
        yield Route(form.path, _post(web, form), methods=["POST"])
    for page in (*PAGES, *api.PAGES):
        yield Route(page.path, _get(web, page))


def _get(web: Web, page: Page) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:  # Starlette runs it in a thread
        query = parsed(page.query, request.query_params.multi_items(), "parameter")
        parts = page.load(_visit(web, request, query, writes=False))
        if page.template:
            return _html(web, request, page.template, parts)
        return api.json_response(parts)

    return endpoint


def _post(web: Web, form: Form) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        person = web.people.person(request, web.clock.now())
        if person is None:
            raise HTTPException(403, _READ_ONLY)
        typed = await posted(request, web.hosts)
        path, fields = request.url.path, None
        try:
            fields = parsed(form.fields, typed, "field")
            await run_in_threadpool(lambda: form.act(_visit(web, request, fields, writes=True)))
        except UsageError as error:
            status = 400 if fields is None else 409
            return await run_in_threadpool(_form_again, web, request, dict(typed), error, status)
        log = structlog.get_logger()
        log.info("acted", path=clean(path), by=clean(person.name), through=person.by)
        return RedirectResponse(web.root + path.rpartition("/")[0], 303)

    return endpoint


def _form_again(
    web: Web, request: Request, typed: Mapping[str, str], error: UsageError, status: int
) -> Response:
    """The incident's page with what was wrong in a form, and what was typed in it."""
    parts = incidents.load(_visit(web, request, Query(), writes=False))
    refused = clean("; ".join(filter(None, (error.message, error.help_text))))
    parts |= {"refused": cut(refused, _AT_MOST), "typed": typed}
    return _html(web, request, incidents.PAGE.template, parts, status)


def _visit(web: Web, request: Request, query: Query, *, writes: bool) -> Visit:
    path = {name: str(part) for name, part in request.path_params.items()}
    now, store = web.clock.now(), web.database.store(writes=writes)
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
        # a request may be refused before its session is read
        person=web.people.person(request, now) if "session" in request.scope else None,
        people=web.people,
        address=request.url.path + query,
        now=now,
        command=web.command,
        where=web.where,
        lines_of=incidents.line_of,
        counted=incidents.counted,
        active_silences=cache(lambda: web.database.store(writes=False).silences(now)),
        silences_incident=silences_incident,
        page_lines=incidents.page_lines,
        status_text=status_text,
        limit_words=LIMIT_WORDS,
        navigation=[one for one in PAGES if "{" not in one.path],
    )
    return Response(html, status, media_type="text/html; charset=utf-8")


def _sign_in(web: Web) -> Callable[[Request], Awaitable[Response]]:
    async def sign_in(request: Request) -> Response:
        """The form that takes token and name."""
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

    return sign_in


def _sign_out(web: Web) -> Callable[[Request], Awaitable[Response]]:
    async def sign_out(request: Request) -> Response:
        await posted(request, web.hosts)
        request.session.clear()
        return RedirectResponse(web.root + "/", 303)

    return sign_out


def _refusal(web: Web, request: Request, error: Exception) -> Response:
    """The page, or the JSON, of an error: the problem, its remedy and a way on."""
    path = request.url.path
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
    message, link = str(error), getattr(error, "link", None)
    help_text = getattr(error, "help_text", None)
    if isinstance(error, HTTPException):
        status, message = error.status_code, error.detail
        if message == "Not Found":
            message, link = f"There is no page {cut(clean(path), 100)}.", Link("The fleet", FLEET)
    elif isinstance(error, StoreError):
        web.database.close()  # somebody may have replaced or upgraded it
    elif not isinstance(error, DriftwatchError):
        message = f"not expected: {type(error).__name__}; the log of driftwatch web has more"
        frame = traceback.extract_tb(error.__traceback__)[-1]  # without locals, which hold secrets
        log, at = structlog.get_logger(), f"{frame.filename}:{frame.lineno}"
        log.error("page failed", path=clean(path), reason=repr(error)[:200], at=at)
    if link is None and status == 400:
        link = Link("The page without parameters", path)
    parts = {
        "title": _TITLES.get(status, "Not answered"),
        "status": status,
        "message": cut(clean(message), _AT_MOST),
        "help": None if help_text is None else cut(clean(help_text), _AT_MOST),
        "link": link,
    }
    if path.startswith(f"{api.ROOT}/"):
        return api.json_response(parts, status)
    return _html(web, request, "refused.html", parts, status)


@contextmanager
def listening(web: Web) -> Iterator[tuple[str, list[socket.socket]]]:
    """The address of its pages, as host:port, and the socket that waits there.

    Raises UsageError: it cannot be listened on.
    """
    host, port = listen_address(web.settings.listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        waiting = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {web.settings.listen}: {error.strerror or error}",
            help_text="choose another address: --listen 127.0.0.1:9097",
        ) from error
    with waiting:
        named = f"[{host}]" if ":" in host else host
        yield f"{named}:{waiting.getsockname()[1]}", [waiting]


def server_of(web: Web) -> Server:
    """The uvicorn server; its ``run(sockets)`` returns after SIGTERM or Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        application(web),
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # further connections get a 503
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)

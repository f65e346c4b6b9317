"""Signing in with the token and a name, and out."""

from __future__ import annotations

from collections.abc import Iterator

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from driftwatch.notify.numbers import clean
from driftwatch.web.context import Web
from driftwatch.web.drawing import page_response
from driftwatch.web.page import View
from driftwatch.web.people import LONGEST_NAME, SIGNED_IN_FOR
from driftwatch.web.visitor import SESSION_COOKIE, Visitor, posted, visitor_of

PATH = "/sign-in"
_WRONG = "That is not the token of web.token_file, or the name is empty."


class SignIn(View):
    """The form that takes the token."""

    back: str
    wrong: str | None = None


def sign_in(web: Web) -> Iterator[Route]:
    """The form that takes token and name, and what answers it."""

    def form(visitor: Visitor, back: str, wrong: str | None, status: int) -> Response:
        view = SignIn(title="Sign in", back=own_path(back), wrong=wrong)
        return page_response(web, visitor, "sign_in.html", view, {}, status)

    async def ask(request: Request) -> Response:
        _require_token(web)
        back = request.query_params.get("back", "/")
        return form(visitor_of(request, web), back, None, 200)

    async def take(request: Request) -> Response:
        _require_token(web)
        visitor = visitor_of(request, web)
        fields = dict((await posted(request, web, visitor, stranger=True)).fields)
        name, back = fields.get("name", "").strip(), own_path(fields.get("back", "/"))
        is_right = await run_in_threadpool(web.people.is_token, fields.get("token", ""))
        if not is_right or not name or len(name) > LONGEST_NAME or not name.isprintable():
            structlog.get_logger().warning("sign-in refused", name=clean(name[:40]))
            return form(visitor, back, _WRONG, 403)
        structlog.get_logger().info("signed in", name=clean(name))
        response = RedirectResponse(web.root + back, 303)
        response.set_cookie(
            SESSION_COOKIE,
            web.people.session(name, visitor.now),
            max_age=int(SIGNED_IN_FOR.total_seconds()),
            path=web.root or "/",
            secure=web.is_https,
            httponly=True,
            samesite="strict",
        )
        return response

    yield Route(PATH, ask, methods=["GET"])
    yield Route(PATH, take, methods=["POST"])


def sign_out(web: Web) -> Iterator[Route]:
    """What ends a session in this browser."""

    async def leave(request: Request) -> Response:
        await posted(request, web, visitor_of(request, web))
        response = RedirectResponse(web.root + "/", 303)
        response.delete_cookie(SESSION_COOKIE, path=web.root or "/")
        return response

    yield Route("/sign-out", leave, methods=["POST"])


def own_path(text: str) -> str:
    """The path where it is one of this web, else the first page: no way to another site.

    >>> own_path("/incidents/a?page=2"), own_path("//evil.example"), own_path("https://evil")
    ('/incidents/a?page=2', '/', '/')
    """
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_own and "\\" not in text else "/"


def _require_token(web: Web) -> None:
    if not web.people.can_sign_in:
        raise HTTPException(404, "Nobody signs in here: the configuration has no web.token_file.")

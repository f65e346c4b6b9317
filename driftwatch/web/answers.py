"""A request for a page → its view → HTML or JSON; whatever goes wrong is a page, too."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
import structlog
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from driftwatch.errors import DriftwatchError, NoVerdict, StoreError, UsageError
from driftwatch.notify.numbers import clean, cut
from driftwatch.web.context import Web
from driftwatch.web.drawing import page_response
from driftwatch.web.page import Deed, Done, Form, Link, NotFound, Page, Query, Refused, View, Visit
from driftwatch.web.visitor import Posted, Visitor, posted, visitor_of

Endpoint = Callable[[Request], Awaitable[Response]]
Model = TypeVar("Model", bound=BaseModel)
# of an answer that is an error
_TITLES = {400: "Not understood", 403: "Read-only", 404: "Not here", 409: "Not done"}
_AT_MOST = 300


def page_endpoint(web: Web, page: Page) -> Endpoint:
    """What answers GET for a page."""

    def html_of(visitor: Visitor, view: View) -> Response:
        return page_response(web, visitor, page.template, view, page.plots(view))

    return _get_endpoint(web, page, html_of)


def json_endpoint(web: Web, page: Page) -> Endpoint:
    """What answers GET for the same as JSON."""
    return _get_endpoint(web, page, lambda _, view: json_of(view))


def _get_endpoint(web: Web, page: Page, respond: Callable[[Visitor, View], Response]) -> Endpoint:

    async def endpoint(request: Request) -> Response:
        visitor = visitor_of(request, web)
        try:
            query = _parsed(page.query, request.query_params.multi_items(), "parameter")
            view = await run_in_threadpool(_loaded, web, page, request, query, visitor)
        except (NotFound, DriftwatchError) as error:
            return refused(web, visitor, error)
        return respond(visitor, view)

    return endpoint


def _loaded(web: Web, page: Page, request: Request, query: Query, visitor: Visitor) -> View:
    path = {name: str(part) for name, part in request.path_params.items()}
    try:
        store = web.database.reader()
        return page.load(Visit(web, store, visitor.now, path, query, visitor.person))
    except StoreError:
        web.database.failed()
        raise


def form_endpoint(web: Web, form: Form) -> Endpoint:
    """What answers POST for a form: a redirect to the page that shows it, or JSON."""

    async def endpoint(request: Request) -> Response:
        visitor = visitor_of(request, web)
        try:
            post = await posted(request, web, visitor)
            fields = _parsed(form.fields, post.fields, "field")
            done = await run_in_threadpool(_acted, web, form, request, post, fields)
        except (NotFound, DriftwatchError) as error:
            status = 409 if isinstance(error, UsageError) and error.help_text != BAD else None
            return refused(web, visitor, error, status)
        except HTTPException as error:
            return refused(web, visitor, error)
        if visitor.wants_json:
            return json_of(done)
        return RedirectResponse(web.root + done.location, 303)

    return endpoint


def _acted(web: Web, form: Form, request: Request, post: Posted, fields: Any) -> Done:
    path = {name: str(part) for name, part in request.path_params.items()}
    log = structlog.get_logger()
    try:
        store = web.database.writer()
        kind = form.path.rpartition("/")[2]
        sent = _request_id(kind, path, post)
        deed = Deed(store, path, post.person, sent, web.clock.now())
        done = form.act(deed, fields)
    except StoreError:
        web.database.failed()
        raise
    by, target = clean(post.person.name), clean(request.url.path)
    log.info("acted", path=target, by=by, through=post.person.by, done=done.done)
    return done


def _request_id(kind: str, path: Mapping[str, str], post: Posted) -> str:
    """The same for a form that is sent twice, and for no other thing or person."""
    parts = (kind, *path.values(), post.person.name, post.key)
    return f"web {kind} {hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]}"


def json_of(model: BaseModel, status: int = 200) -> Response:
    """A view as its JSON."""
    return Response(model.model_dump_json(), status, media_type="application/json")


def refused(web: Web, visitor: Visitor, error: Exception, status: int | None = None) -> Response:
    """The page of an error: what is wrong, and what helps."""
    view = _refused(error, status)
    if visitor.wants_json:
        return json_of(view, view.status)
    return page_response(web, visitor, "refused.html", view, {}, view.status)


BAD = "docs/sre/web.md names the parameters"


def _refused(error: Exception, status: int | None) -> Refused:
    help_text, near = getattr(error, "help_text", None), tuple[Link, ...]()
    message = getattr(error, "message", None) or str(error)
    if isinstance(error, NotFound):
        status, near = 404, error.near
    elif isinstance(error, StoreError):
        status = 503
    elif isinstance(error, NoVerdict):
        status = status or 404
    elif isinstance(error, UsageError):
        status = status or 400
    elif isinstance(error, HTTPException):
        status, message = error.status_code, str(error.detail)
    elif not isinstance(error, DriftwatchError):
        status = 500
        message = f"not expected: {type(error).__name__}; the log of driftwatch web has more"
    status = status or 500
    title = _TITLES.get(status, "Not possible now" if status == 503 else "Not answered")
    return Refused(
        title=title,
        status=status,
        message=cut(clean(message), _AT_MOST),
        help=None if help_text is None else cut(clean(help_text), _AT_MOST),
        near=near,
    )


def _parsed(model: type[Model], pairs: Sequence[tuple[str, str]], noun: str) -> Model:
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

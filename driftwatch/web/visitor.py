"""Who sent a request, in which form they want the answer, and the form that they sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from driftwatch.web.context import Web
from driftwatch.web.guard import host_of
from driftwatch.web.people import Person

API = "/api/v1"
SESSION_COOKIE = "driftwatch_session"
KEY_FIELD = "form"
_MOST_FIELDS, _MOST_BODY_BYTES = 50, 65_536
_FORM_TYPE = "application/x-www-form-urlencoded"
_READ_ONLY = (
    "You may look, and not act: nobody who may act has signed in here. "
    "Sign in, send the token as Authorization: Bearer, or come through the configured proxy."
)
_WRONG_TOKEN = "The token in Authorization: Bearer is not the one in web.token_file."  # noqa: S105


@dataclass(frozen=True, slots=True)
class Visitor:
    """One request's person and wishes."""

    person: Person | None  # None: may look, and not act
    wants_json: bool
    now: datetime
    path: str  # below the root, with its query


def visitor_of(request: Request, web: Web) -> Visitor:
    """Read the headers and cookies of a request."""
    now, accepted = web.clock.now(), request.headers.get("accept", "")
    query = f"?{request.url.query}" if request.url.query else ""
    return Visitor(
        person=_person(request, web, now),
        wants_json=request.url.path.startswith(f"{API}/")
        or ("application/json" in accepted and "text/html" not in accepted),
        now=now,
        path=request.url.path + query,
    )


def _person(request: Request, web: Web, now: datetime) -> Person | None:
    people, authorization = web.people, request.headers.get("authorization", "")
    has_token = people.can_sign_in and authorization.lower().startswith("bearer ")
    if has_token:
        person = people.by_header(authorization, _text(request, "x-driftwatch-person"))
        if person is not None:
            return person
    # a proxy that signs people in may pass on what they signed in with
    if people.proxy_header is not None and request.client is not None:
        person = people.by_proxy(request.client.host, _text(request, people.proxy_header))
        if person is not None:
            return person
    session = request.cookies.get(SESSION_COOKIE)
    return None if session is None or has_token else people.by_session(session, now)


def _text(request: Request, header: str) -> str | None:
    """A header's text; names are UTF-8, which servers read as Latin-1."""
    texts = request.headers.getlist(header)
    if len(texts) != 1:  # of two, one may be the client's own
        return None
    try:
        return texts[0].encode("latin-1").decode()
    except UnicodeError:
        return texts[0]


@dataclass(frozen=True, slots=True)
class Posted:
    """The fields of a form, and who sent it."""

    fields: tuple[tuple[str, str], ...]  # without the key
    person: Person
    key: str  # the same for a form that is sent twice


async def posted(request: Request, web: Web, visitor: Visitor, *, stranger: bool = False) -> Posted:
    """Read a form, of somebody who may act, or of a ``stranger`` who signs in.

    Raises HTTPException: 403 nobody, or another site sent it; 413 too long; 415, 400 no form.
    """
    person = visitor.person or (Person("", "session") if stranger else None)
    if person is None:
        sent = request.headers.get("authorization", "").lower().startswith("bearer ")
        raise HTTPException(403, _WRONG_TOKEN if sent and web.people.can_sign_in else _READ_ONLY)
    pairs = await _fields(request)
    if person.by != "token" and not _is_from_own_page(request, web):
        raise HTTPException(403, "Another site sent this form.")
    keys = [request.headers.get("idempotency-key"), *(t for n, t in pairs if n == KEY_FIELD)]
    fields = tuple((name, text) for name, text in pairs if name != KEY_FIELD)
    return Posted(fields, person, next(filter(None, keys), web.nonce()))


def _is_from_own_page(request: Request, web: Web) -> bool:
    """Every browser says which site sent a form; of what does not, a program has the token."""
    origin = request.headers.get("origin", "")
    same = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    return same and host_of(origin.partition("://")[2]) in web.hosts


async def _fields(request: Request) -> list[tuple[str, str]]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != _FORM_TYPE and (kind or request.headers.get("content-length", "0") != "0"):
        raise HTTPException(415, f"A form is sent as {_FORM_TYPE}.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise HTTPException(413, f"A form has at most {_MOST_BODY_BYTES} bytes.")
    try:
        return parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_MOST_FIELDS,
        )
    except (UnicodeDecodeError, ValueError):
        raise HTTPException(400, "The body is no form.") from None

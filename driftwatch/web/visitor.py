"""Who sent a request, and in which form they want the answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request

from driftwatch.web.context import Web
from driftwatch.web.people import Person

_VISITOR = "driftwatch.visitor"  # of the request's scope
API = "/api/v1"
SESSION_COOKIE, BROWSER_COOKIE = "driftwatch_session", "driftwatch_browser"


@dataclass(slots=True)
class Visitor:
    """One request's person, browser and wishes."""

    person: Person | None  # None: may look, and not act
    browser: str  # the nonce in this browser's cookie; a new one where it had none
    is_new: bool  # whether the browser has yet to be given it
    wants_json: bool
    now: datetime
    path: str  # below the root, with its query
    address: str = ""  # from which it comes, through the proxy
    is_throttled: bool = False  # too many wrong tokens came from there: none is looked at


def visitor_of(request: Request, web: Web) -> Visitor:
    """Read the headers and cookies of a request; once, so that one wrong token counts once."""
    before: Visitor | None = request.scope.get(_VISITOR)
    if before is not None:
        return before
    now, cookie = web.clock.now(), request.cookies.get(BROWSER_COOKIE, "")
    is_new = not (16 <= len(cookie) <= 64 and cookie.isascii())
    accepted = request.headers.get("accept", "")
    query = f"?{request.url.query}" if request.url.query else ""
    peer = "" if request.client is None else request.client.host
    address = web.people.address_of(peer, request.headers.getlist("x-forwarded-for"))
    is_throttled = web.attempts.is_throttled(address, now)
    request.scope[_VISITOR] = visitor = Visitor(
        person=_person(request, web, now, None if is_throttled else address),
        browser=web.nonce() if is_new else cookie,
        is_new=is_new,
        wants_json=request.url.path.startswith(f"{API}/")
        or ("application/json" in accepted and "text/html" not in accepted),
        now=now,
        path=request.url.path + query,
        address=address,
        is_throttled=is_throttled,
    )
    return visitor


def _person(request: Request, web: Web, now: datetime, address: str | None) -> Person | None:
    """``address``: which answers for a wrong token; None: no token is looked at."""
    people = web.people
    authorization = request.headers.get("authorization", "")
    has_token = people.can_sign_in and authorization.lower().startswith("bearer ")
    if has_token and address is not None:
        person = people.by_header(authorization, _text(request, "x-driftwatch-person"))
        if person is not None:
            return person
    # a proxy that signs people in may pass on what they signed in with
    if people.proxy_header is not None and request.client is not None:
        person = people.by_proxy(request.client.host, _text(request, people.proxy_header))
        if person is not None:
            return person
    if has_token:
        if address is not None:
            web.attempts.count_wrong(address, now)
        return None
    session = request.cookies.get(SESSION_COOKIE)
    return None if session is None else people.by_session(session, now)


def _text(request: Request, header: str) -> str | None:
    """A header's text; names are UTF-8, which servers read as Latin-1."""
    texts = request.headers.getlist(header)
    if len(texts) != 1:  # of two, one may be the client's own
        return None
    try:
        return texts[0].encode("latin-1").decode()
    except UnicodeError:
        return texts[0]

"""A form that was sent: read within bounds, and whose it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from driftwatch.web.context import Web
from driftwatch.web.guard import MOST_BODY_BYTES, host_of
from driftwatch.web.people import Person
from driftwatch.web.visitor import Visitor

TOKEN_FIELD = "form"  # noqa: S105 - the name of a field
_MOST_FIELDS, _BODY_SECONDS = 50, 8.0
_FORM_TYPE = "application/x-www-form-urlencoded"
_READ_ONLY = (
    "You may look, and not act: nobody who may act has signed in here. "
    "Sign in, send the token as Authorization: Bearer, or come through the configured proxy."
)
_WRONG_TOKEN = "The token in Authorization: Bearer is not the one in web.token_file."  # noqa: S105


@dataclass(frozen=True, slots=True)
class Posted:
    """The fields of a form, and who sent it."""

    fields: tuple[tuple[str, str], ...]  # without the one that says whose form it is
    person: Person
    salt: str  # the same for a form that is sent twice


async def posted(request: Request, web: Web, visitor: Visitor, *, stranger: bool = False) -> Posted:
    """Read a form and check that this person was given it.

    ``stranger``: from somebody who has not signed in, to do so.

    Raises HTTPException: 403 nobody, another site or a stale form, 413 too long, 415 no form, 408
    it takes too long to come, 429 too many wrong tokens.
    """
    person = visitor.person
    if person is None and visitor.is_throttled:
        raise HTTPException(429, "Too many wrong tokens came from this address: wait 60 seconds.")
    if person is None and not stranger:
        sent = request.headers.get("authorization", "").lower().startswith("bearer ")
        raise HTTPException(403, _WRONG_TOKEN if sent and web.people.can_sign_in else _READ_ONLY)
    body = await _body(request)
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_MOST_FIELDS,
        )
    except (UnicodeDecodeError, ValueError):
        raise HTTPException(400, "The body is no form.") from None
    fields = tuple((name, text) for name, text in pairs if name != TOKEN_FIELD)
    who = person or Person("", "session")
    if who.by == "token":
        salt = request.headers.get("idempotency-key") or web.nonce()
        return Posted(fields, who, salt)
    _require_own_site(request, web)
    token = next((text for name, text in pairs if name == TOKEN_FIELD), "")
    form = web.people.form_of(token, visitor.browser, person, visitor.now)
    if form is None or visitor.is_new:
        raise HTTPException(
            403, "This form is stale, or was not drawn for you: open its page again and repeat it."
        )
    return Posted(fields, who, form.salt)


def _require_own_site(request: Request, web: Web) -> None:
    """A browser says which site sent a form; where it says another, it is not obeyed."""
    origin = request.headers.get("origin")
    own = host_of(request.headers.get("host", ""))
    if origin is not None and host_of(origin.partition("://")[2]) != own:
        raise HTTPException(403, "Another site sent this form.")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "Another site sent this form.")


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if not kind and request.headers.get("content-length", "0") == "0":
        return b""
    if kind != _FORM_TYPE:
        raise HTTPException(415, f"A form is sent as {_FORM_TYPE}.")
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BODY_BYTES:
                    raise HTTPException(413, f"A form has at most {MOST_BODY_BYTES} bytes.")
                parts.append(part)
    except TimeoutError:
        raise HTTPException(408, "The form took too long to come.") from None
    return b"".join(parts)

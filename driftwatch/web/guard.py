"""The outermost layer: the names that the web answers to, and the headers of every answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


def hosts_of(listen: str, external_url: str | None, more: Iterable[str]) -> frozenset[str]:
    """The names that the web answers to: of its address, of its URL, and the configured ones.

    An address that stands for every interface gives no name.
    """
    host = listen.strip("[]").lower()
    names = {*_LOOPBACK, *(name.strip("[]").lower() for name in more)}
    if host not in ("0.0.0.0", "::", "*"):  # noqa: S104 - to leave them out
        names.add(host)
    if external_url is not None and (external := urlsplit(external_url).hostname):
        names.add(external.lower())
    return frozenset(names)


def host_of(header: str) -> str:
    """The name in a Host or Origin header, without its port.

    >>> host_of("Ops.example.com:443"), host_of("[::1]:9096")
    ('ops.example.com', '::1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


class Guard:
    """Refuses requests for another host: a name that an attacker made point here.

    ``hosts``: names that it answers to; ``root``: path below which it is served, or empty.
    (Starlette's TrustedHostMiddleware does not read IPv6 addresses.)
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], root: str) -> None:
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
            text = "driftwatch does not answer to this host name. help: name it in web.hosts, or "
            refused = PlainTextResponse(f"{text}in external_url\n", 421)
            await refused(scope, receive, with_headers)
            return
        path = scope["path"]
        if self._root and (path == self._root or path.startswith(self._root + "/")):
            scope = {**scope, "path": path[len(self._root) :] or "/"}
        await self._app(scope, receive, with_headers)

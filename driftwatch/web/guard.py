"""The outermost layer: which requests come in at all, and the headers of every answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_TARGET, MOST_HEADER_BYTES, MOST_HEADERS = 4096, 16_384, 100
MOST_BODY_BYTES = 65_536
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

# no script at all, nothing from elsewhere, no frame around it; forms come back here
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_USUAL = {"Cache-Control": "no-store"}


def hosts_of(listen: str, external_url: str | None, more: Iterable[str]) -> frozenset[str]:
    """The names that the web answers to: of its address, of its URL, and the configured ones.

    An address that stands for every interface gives no name.
    """
    host = listen.strip("[]").lower()
    names = {name.strip("[]").lower() for name in more}
    if host not in ("0.0.0.0", "::", "*"):  # noqa: S104 - to leave them out
        names.add(host)
    names.update(_LOOPBACK)
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
    """Refuses what cannot be meant for this web, before anything of it is read.

    ``hosts``: names that it answers to; ``root``: path below which it is served, or empty.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], root: str) -> None:
        self._app, self._hosts, self._root = app, frozenset(hosts), root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on with its path below the root."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _completed(message.get("headers", ()))}
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            status, text = refused
            await PlainTextResponse(text + "\n", status)(scope, receive, with_headers)
            return
        path = scope["path"]
        if self._root and (path == self._root or path.startswith(self._root + "/")):
            scope = {**scope, "path": path[len(self._root) :] or "/"}
        await self._app(scope, receive, with_headers)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers = scope["headers"]
        raw = scope.get("raw_path") or scope["path"].encode()
        if len(raw) + len(scope["query_string"]) > LONGEST_TARGET:
            return 414, f"The address is longer than {LONGEST_TARGET} bytes."
        size = sum(len(name) + len(text) for name, text in headers)
        if len(headers) > MOST_HEADERS or size > MOST_HEADER_BYTES:
            return 431, f"The headers are more than {MOST_HEADERS}, or {MOST_HEADER_BYTES} bytes."
        named = [text.decode("latin-1") for name, text in headers if name == b"host"]
        if len(named) != 1 or host_of(named[0]) not in self._hosts:
            return 421, (
                "driftwatch does not answer to this host name. "
                "help: name it in web.hosts, or in external_url"
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "This method does nothing here: GET reads, POST acts."
        lengths = [text for name, text in headers if name == b"content-length"]
        if any(not one.isdigit() or int(one[:12]) > MOST_BODY_BYTES for one in lengths):
            return 413, f"A form has at most {MOST_BODY_BYTES} bytes."
        return None


def _completed(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    there = [(name, text) for name, text in headers]
    names = {name.lower() for name, _ in there}
    usual = _USUAL | HEADERS
    return there + [
        (name.lower().encode(), text.encode())
        for name, text in usual.items()
        if name.lower().encode() not in names
    ]

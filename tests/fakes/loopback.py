"""A small HTTP server on 127.0.0.1 that can be told to refuse, to stall or to redirect."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; ``hang`` says nothing until the server is closed."""

    status: int
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False


class LoopbackServer:
    """Serves in a thread while it is entered; ``judge`` decides what a request deserves.

    Attributes:
        requests: everything that arrived whole, refused or not, in order.
        planned: answers given before any judging, first in first out.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.planned: deque[Answer] = deque()
        self._closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name http.server calls
                server._serve(self)

            do_GET = do_PUT = do_POST  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing on stderr."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))

    @property
    def address(self) -> str:
        """``http://127.0.0.1:PORT``, no path."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def judge(self, request: Request) -> Answer:
        """The answer to a request that no planned answer is for."""
        raise NotImplementedError

    def fail_next(self, status: int, body: str = "", **headers: str) -> None:
        """Answer the next request with this; underscores in header names become dashes."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        self.planned.append(Answer(status, body, named))

    def hang_next(self) -> None:
        """Take the next request and never answer it."""
        self.planned.append(Answer(0, hang=True))

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        try:
            body = handler.rfile.read(length)
        except ConnectionError:
            body = b""
        if len(body) < length:  # the client died in the middle
            handler.close_connection = True
            return
        request = Request(
            method=handler.command,
            path=handler.path,
            headers={name.lower(): text for name, text in handler.headers.items()},
            body=body,
        )
        self.requests.append(request)
        answer = self.planned.popleft() if self.planned else self.judge(request)
        if answer.hang:
            self._closing.wait()
            handler.close_connection = True
            return
        payload = answer.body.encode()
        # without the machine's own time: tests have theirs
        handler.send_response_only(answer.status)
        for name, text in answer.headers.items():
            handler.send_header(name, text)
        handler.send_header("Content-Length", str(len(payload)))
        with suppress(ConnectionError):  # the client may be gone
            handler.end_headers()
            handler.wfile.write(payload)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

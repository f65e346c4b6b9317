"""One exchange at a time over requests, with every bound; another thread can end it in any phase.

No redirects, no retries, nothing from the environment, no link-local or metadata address.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import IncompleteRead, RemoteDisconnected
from typing import Any, NamedTuple

import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidHeader, InvalidSchema, InvalidURL, MissingSchema
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NameResolutionError, ReadTimeoutError

from driftwatch.address_guard import REFUSED, AddressRefused, permitted_addresses

UNSENDABLE = "the address, the credentials or a header cannot be sent as they are"
_NOT_SENT = (InvalidHeader, InvalidSchema, InvalidURL, MissingSchema, UnicodeError)
_CHUNK_BYTES = 2**20
_ERROR_BYTES = 64 * 1024  # of an answer without status 200: enough for its message


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one exchange may take."""

    connect_seconds: float = 2.0  # until the connection stands (per address of the host)
    read_seconds: float = 10.0  # between two pieces of the answer
    total_seconds: float = 12.0  # for the whole exchange
    body_bytes: int = 10 * 2**20  # largest answer that is read, unpacked
    packed: bool = False  # a compressed answer is read too, though none was requested


class Answer(NamedTuple):
    """A whole answer; of one without status 200 the start."""

    status: int
    headers: Mapping[str, str]  # names in any case
    body: bytes


class NoAnswer(Exception):
    """No whole answer came. The text is the reason; it holds no part of the request."""


class TooLarge(NoAnswer):
    """The answer is larger than the bound."""


class _GuardedConnection(HTTPConnection):
    """Connects to an address that was checked, and resolves no name after that check."""

    def _new_conn(self) -> socket.socket:
        named = self._dns_host
        try:
            failure: HTTPError | None = None
            for address in permitted_addresses(named, self.port):
                self._dns_host = address
                try:
                    return super()._new_conn()
                except HTTPError as error:
                    failure = error
            raise failure or AddressRefused(1, REFUSED)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        finally:
            self._dns_host = named  # TLS and the header Host want the name


class _EndableAdapter(HTTPAdapter):
    """One connection at a time, whose socket is handed out as soon as it stands; no retries."""

    def __init__(
        self, hold: Callable[[socket.socket], None], context: ssl.SSLContext | None
    ) -> None:
        self._hold, self._context = hold, context
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Connections hand out a duplicate: TLS takes the first socket away in its handshake."""
        if self._context is not None:
            kwargs["ssl_context"] = self._context
        super().init_poolmanager(*args, **kwargs)
        hold = self._hold

        class Plain(_GuardedConnection):
            def _new_conn(self) -> socket.socket:
                connection = super()._new_conn()
                hold(connection.dup())
                return connection

        class Secure(Plain, HTTPSConnection):
            pass

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


class EndableSession(requests.Session):
    """One exchange at a time, which another thread can end in any phase.

    A read time-out alone does not end a server that drips a byte at a time. ``context``: trusted
    besides the authorities of ``verify``.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.trust_env = False
        self.headers["User-Agent"] = "driftwatch"
        self.headers["Accept-Encoding"] = "identity"
        self.aborted = False  # set it to False before an exchange
        self._socket: socket.socket | None = None
        self._adapter = _EndableAdapter(self._hold, context)

    def get_adapter(self, url: str) -> HTTPAdapter:
        """Always our own, whatever a client library mounts."""
        return self._adapter

    def exchange(self, method: str, url: str, bounds: Bounds, **asked: Any) -> Answer:
        """Ask once, and read the answer.

        Raises NoAnswer.
        """
        late = f"no complete answer within {bounds.total_seconds:g} s"
        times = (min(bounds.connect_seconds, bounds.total_seconds), bounds.read_seconds)
        self.aborted = False
        watch = threading.Timer(bounds.total_seconds, self.abort)
        watch.daemon = True
        watch.start()
        try:
            asked |= {"stream": True, "allow_redirects": False, "timeout": times}
            with super().request(method, url, **asked) as response:
                body = _body(response, bounds)
        except _NOT_SENT:  # their texts hold the header or the address, secrets and all
            raise NoAnswer(UNSENDABLE) from None
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            is_short = bounds.read_seconds < bounds.total_seconds
            no_answer = f"no answer for {bounds.read_seconds:g} s" if is_short else late
            why = late if self.aborted else why_failed(error, times[0], no_answer)
            raise NoAnswer(why) from error
        finally:
            watch.cancel()
            watch.join()  # one that fires late must not end the next exchange
            if self.headers.get("Connection") == "close":
                self._hold(None)
        if self.aborted:  # an answer without a length looks complete when it is ended
            raise NoAnswer(late)
        return Answer(response.status_code, response.headers, body)

    def abort(self) -> None:
        """End the exchange that is under way; called from another thread."""
        self.aborted = True
        sock = self._socket
        if sock is not None:
            with suppress(OSError):  # it ended by itself
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give back the connection."""
        super().close()
        self._adapter.close()
        self._hold(None)

    def _hold(self, sock: socket.socket | None) -> None:
        before, self._socket = self._socket, sock
        if before is not None:
            before.close()
        if sock is not None and self.aborted:
            self.abort()


def _body(response: requests.Response, bounds: Bounds) -> bytes:
    """The whole body where the status is 200, else its start."""
    is_whole, most = response.status_code == 200, bounds.body_bytes
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if is_whole and encoding != "identity" and not bounds.packed:
        raise NoAnswer(f"answers with Content-Encoding {encoding[:40]}, which was not asked for")
    length = response.headers.get("Content-Length", "")
    if is_whole and length.isdecimal() and len(length) < 20 and int(length) > most:
        raise TooLarge(f"answer refused: {length} bytes, more than {most}")
    pieces: list[bytes] = []
    size = 0
    for piece in response.iter_content(_CHUNK_BYTES):
        size += len(piece)
        pieces.append(piece)
        if is_whole and size > most:
            raise TooLarge(f"answer refused: larger than {most} bytes")
        if not is_whole and size >= _ERROR_BYTES:
            break
    return b"".join(pieces)


def why_failed(error: BaseException, connect_seconds: float, no_answer: str) -> str:
    """The failure of an exchange in words, without the library's wrapping."""
    chain = list(_chain(error))
    for e in chain:
        if isinstance(e, requests.ConnectTimeout):
            return f"no connection within {connect_seconds:g} s"
        if isinstance(e, requests.ReadTimeout | ReadTimeoutError | TimeoutError):
            return no_answer
        if isinstance(e, IncompleteRead):
            partial: object = e.partial
            size = partial if isinstance(partial, int) else len(e.partial)
            return f"answer cut off after {size} bytes"
        if isinstance(e, RemoteDisconnected):
            return "connection closed without an answer"
        if isinstance(e, ssl.SSLCertVerificationError):
            return f"its certificate was not accepted: {e.verify_message}"
        if isinstance(e, ssl.SSLError):
            return f"TLS: {e.reason or e}"
    for e in chain:
        if isinstance(e, OSError) and e.strerror:
            return e.strerror[0].lower() + e.strerror[1:]
    return f"{type(chain[-1]).__name__}: {' '.join(str(chain[-1]).split())[:160]}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and everything it wraps, outermost first."""
    todo, ids = [error], set()
    while todo:
        here = todo.pop(0)
        if id(here) in ids:
            continue
        ids.add(id(here))
        yield here
        inner = (*here.args, getattr(here, "reason", None), here.__cause__, here.__context__)
        todo += [e for e in inner if isinstance(e, BaseException)]

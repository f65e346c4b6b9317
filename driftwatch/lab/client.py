"""One connection to an OpenAI-compatible server: streamed completions, timed. Nothing is retried.

The wire format is that of POST /v1/completions with ``stream``: server-sent events, one JSON chunk
a line behind ``data: ``, ended by ``data: [DONE]``; ``ignore_eos`` is vLLM's own addition.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from driftwatch.collect.http import EndableSession, why_failed
from driftwatch.errors import UsageError
from driftwatch.settings.values import read_of

TIMED_OUT, CUT_OFF, STOPPED = "timed out", "stream cut off", "stopped"
_CONNECT_SECONDS = 10.0
_LONGEST_LINE = 2**20
_LONGEST_EXCERPT = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request went, on the monotonic clock; None = the server did not say."""

    start_seconds: float  # when it was sent; connecting counts
    first_token_seconds: float | None  # when the first chunk with a choice came
    end_seconds: float
    prompt_tokens: int | None  # by the server's count
    generation_tokens: int | None  # the same
    failure: str  # why it did not finish, "" where it did
    status: int | None  # of HTTP
    excerpt: str  # the beginning of an error's body
    retry_after_seconds: float | None  # what the server asked for


def base_url(url: str) -> str:
    """The address without its path's ``/v1``, e.g. ``http://host:8000``.

    Raises UsageError: no http(s) address, or one with a password in it.
    """
    help_text = "give http://HOST:PORT"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError("--url is no address", help_text=help_text) from None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError("--url is no http or https address", help_text=help_text)
    if parts.username or parts.password or parts.query:
        raise UsageError(
            "--url holds a user, a password or a query",
            help_text="give a key with --api-key-file or in VLLM_API_KEY",
        )
    path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/v1")
    return parts._replace(path=path, fragment="").geturl()


def is_loopback(base: str) -> bool:
    """The address names this machine in so many words; no name is looked up."""
    host = urlsplit(base).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_key(file: Path | None) -> str | None:
    """The server's key, from the file or from VLLM_API_KEY; None where neither has one.

    Raises ConfigError: the file cannot be read as one; UsageError: the variable cannot be a header.
    """
    if file is not None:
        return read_of(None, file)
    key = os.environ.get("VLLM_API_KEY", "").strip()
    if not key.isprintable() or not key.isascii():
        raise UsageError("VLLM_API_KEY holds a character that no header can")
    return key or None


class Connection:
    """One user of the server: one request at a time, which another thread can end.

    ``base``: address of :func:`base_url`; ``key``: bearer token, None = none; ``timeout_seconds``:
    for one request, and for each wait within it.
    """

    def __init__(self, base: str, key: str | None, timeout_seconds: float) -> None:
        self.base = base
        self._session = EndableSession()
        # vLLM's server closes idle connections after 5 s: one that is kept may be gone
        self._session.headers["Connection"] = "close"
        if key:
            self._session.headers["Authorization"] = f"Bearer {key}"
        self._timeout_seconds = timeout_seconds
        self._options: dict[str, Any] = {
            "timeout": (min(_CONNECT_SECONDS, timeout_seconds), timeout_seconds),
            "allow_redirects": False,
            "stream": True,
        }

    def models(self) -> Mapping[str, int | None]:
        """Models that the server lists, with the longest request each takes where it says so.

        Raises UsageError: there is no such list, with the reason.
        """
        where = f"{self.base}/v1/models"
        try:
            with self._session.get(where, **self._options) as response:
                body = response.raw.read(_LONGEST_LINE)
                if (status := response.status_code) != 200:
                    raise UsageError(f"{where} {_refused(status)}", help_text=help_on(status))
            listed = json.loads(body)["data"]
            return {str(model["id"]): model.get("max_model_len") for model in listed}
        except (requests.RequestException, HTTPError, OSError) as error:
            raise UsageError(
                f"{where}: {_reason(error)}", help_text="is the server up, and --url its address?"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UsageError(
                f"{where} is no list of models", help_text="give the served model's name: --model"
            ) from None
        finally:
            self._session.let_go()

    def complete(self, body: Mapping[str, Any]) -> Answer:
        """Send one streamed completion and read it to its end; a failure is told, not raised."""
        start = time.monotonic()
        first: float | None = None
        usage: Mapping[str, Any] = {}
        failure, excerpt, status, after = "", "", None, None
        try:
            with self._session.post(
                f"{self.base}/v1/completions", json=dict(body), **self._options
            ) as response:
                status = response.status_code
                if status != 200:
                    failure, after = _refused(status), _retry_after(response)
                    excerpt = response.raw.read(4 * _LONGEST_EXCERPT).decode(errors="replace")
                elif "event-stream" not in (kind := response.headers.get("Content-Type", "")):
                    failure = f"answers with {kind[:80] or 'no type'}, not with an event stream"
                else:
                    failure = CUT_OFF
                    for event in _events(response, start + self._timeout_seconds):
                        if event is None:
                            failure = ""
                            break
                        if event.get("choices") and first is None:
                            first = time.monotonic()
                        usage = event.get("usage") or usage
                        if "error" in event:
                            failure, excerpt = "error inside the stream", json.dumps(event["error"])
                            break
        except (requests.RequestException, HTTPError, OSError) as error:
            failure = _reason(error)
        except (ValueError, TypeError):
            failure = "the answer is no event stream"
        finally:
            self._session.let_go()
        return Answer(
            start,
            first,
            time.monotonic(),
            _whole(usage.get("prompt_tokens")),
            _whole(usage.get("completion_tokens")),
            STOPPED if self._session.aborted else failure,
            status,
            excerpt[:_LONGEST_EXCERPT],
            after,
        )

    def stop(self) -> None:
        """End the request under way and any later one; called from another thread."""
        self._session.abort()

    def close(self) -> None:
        """Give back what it holds."""
        self._session.close()


def _events(response: requests.Response, deadline: float) -> Iterator[Mapping[str, Any] | None]:
    """The JSON chunks of a stream as they arrive; None = [DONE]. Ends early where it is cut.

    Raises ReadTimeout: bytes still come after the deadline, on the monotonic clock.
    """
    rest = b""
    while piece := response.raw.read1(65536):
        if time.monotonic() > deadline:
            raise requests.ReadTimeout
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            data = line.strip()
            if not data.startswith(b"data:"):  # comments, event names, the line between events
                continue
            data = data[5:].strip()
            if data == b"[DONE]":
                yield None
                return
            event = json.loads(data)
            if not isinstance(event, dict):
                raise ValueError("not an object")
            yield event
        if len(rest) > _LONGEST_LINE:
            raise ValueError("a line without an end")


def help_on(status: int | None) -> str:
    """What to try where the server refuses everything with this status; None = no status."""
    if status in (401, 403):
        return "give its key with --api-key-file or in VLLM_API_KEY"
    if status == 404:
        return (
            "--url is the server's root, such as http://host:8000; GET /v1/models there lists the "
            "names that --model takes"
        )
    return "is an OpenAI-compatible server up at --url? --timeout-seconds gives it longer"


def _refused(status: int) -> str:
    if 300 <= status < 400:
        return f"answers {status}, a redirect, which is not followed"
    return f"answers {status} {responses.get(status, '')}".rstrip()


def _retry_after(response: requests.Response) -> float | None:
    """Seconds of a Retry-After header; a date in it is left aside."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() and len(text) < 6 else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _reason(error: BaseException) -> str:
    """A failure in a few words that are the same for every request it hits."""
    why = why_failed(error, _CONNECT_SECONDS, TIMED_OUT)
    cut = ("answer cut off", "connection closed", "connection reset", "ProtocolError")
    return CUT_OFF if why.startswith(cut) else why

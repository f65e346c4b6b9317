"""A closed loop of users against a live OpenAI-compatible server: streamed completions, timed.

POST /v1/completions with ``stream``: server-sent events, one JSON chunk a line behind ``data: ``,
ended by ``data: [DONE]``; ``ignore_eos`` is vLLM's own addition. Nothing is retried.
"""

from __future__ import annotations

import ipaddress
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import requests
from urllib3.exceptions import HTTPError

from driftwatch.collect.http_session import why_failed
from driftwatch.errors import UsageError
from driftwatch.lab.sweep import Sent
from driftwatch.settings.values import read_of
from driftwatch.simulate.requests import Requests

_CONNECT_SECONDS = 10.0
_PAUSE_AFTER_FAILURE_SECONDS = 1.0
_FAILURES_TO_STOP = 20
_LONGEST_EXCERPT = 200
_ERRORS = (requests.RequestException, HTTPError, OSError, ValueError, TypeError)
# one token each in common vocabularies, behind a space; the probe measures how many it really is
_TEXT = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book
"""
WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request went, on the monotonic clock; NaN = the server did not say."""

    start_seconds: float
    first_token_seconds: float  # when the first chunk with a choice came
    end_seconds: float
    prompt_tokens: float  # by the server's count
    generation_tokens: float  # the same
    failure: str  # why it did not finish, "" where it did
    excerpt: str = ""  # the beginning of the server's answer
    status: int | None = None  # of HTTP


def base_url(url: str) -> str:
    """The address without its path's ``/v1``, e.g. ``http://host:8000``.

    Raises UsageError: no http(s) address, or one with a password in it.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError("--url is no http or https address", help_text="give http://HOST:PORT")
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


def read_key(file: Path | None) -> str:
    """The server's key, from the file or from VLLM_API_KEY; "" where neither has one.

    Raises ConfigError: the file cannot be read as one; UsageError: the variable cannot be a header.
    """
    if file is not None:
        return read_of(None, file) or ""
    key = os.environ.get("VLLM_API_KEY", "").strip()
    if not key.isprintable() or not key.isascii():
        raise UsageError(
            "VLLM_API_KEY holds a character that no header can", help_text="unset VLLM_API_KEY"
        )
    return key


class Server:
    """A live server, and how it counts; ``timeout_seconds``: of a request; ``seed``: of prompts."""

    def __init__(self, base: str, key: str, timeout_seconds: float, seed: int) -> None:
        self.base = base
        self.model = ""
        self._headers = {
            **({"Authorization": f"Bearer {key}"} if key else {}),
            # vLLM's server closes idle connections after 5 s: one that is kept may be gone
            **{"Connection": "close", "User-Agent": "driftwatch", "Accept-Encoding": "identity"},
        }
        self._timeout_seconds = timeout_seconds
        self._optional = {"ignore_eos": True, "stream_options": {"include_usage": True}}
        self._tokens_per_word = 1.0
        self._rng = np.random.default_rng(seed)
        self._lock = threading.Lock()

    def learn(self, model: str | None, prompt_tokens: int, longest: int) -> list[str]:
        """Choose the model, send up to three short requests; notes on what the server lacks.

        Raises UsageError: no model, one for shorter requests, or none is answered.
        """
        self.model, notes = model or self._listed(longest), list[str]()
        while (answer := self.complete(prompt_tokens, 2)).failure:
            if answer.status not in (400, 422) or not self._optional:
                said = f": {' '.join(answer.excerpt.split())}" if answer.excerpt else ""
                raise UsageError(
                    f"{self.base}/v1/completions {answer.failure}{said}",
                    help_text=_help_on(answer.status),
                )
            dropped = next(iter(self._optional))
            del self._optional[dropped]
            notes.append(f"the server does not take {dropped}")
        if answer.prompt_tokens > 0:  # NaN is not
            self._tokens_per_word = answer.prompt_tokens / max(1, prompt_tokens)
        else:
            notes.append("the server's stream tells no usage: tokens are not counted")
        return notes

    def _listed(self, longest: int) -> str:
        """The first model of the server's list."""
        where = f"{self.base}/v1/models"
        try:
            with self._send("GET", where) as response:
                if (status := response.status_code) != 200:
                    raise UsageError(f"{where} {_refused(status)}", help_text=_help_on(status))
                listed = response.json()["data"]
            model, limit = str(listed[0]["id"]), listed[0].get("max_model_len")
        except (ValueError, TypeError, LookupError, AttributeError):
            raise UsageError(
                f"{where} is no list of models", help_text="give the served model's name: --model"
            ) from None
        except _ERRORS as error:
            raise UsageError(f"{where}: {_reason(error)}", help_text=_help_on(None)) from None
        if limit is not None and longest > limit:
            raise UsageError(
                f"the longest request has {longest:,} tokens, {model} takes {limit:,}",
                help_text="lower --prompt-tokens, --generation-tokens or --length-cv",
            )
        return model

    def _send(self, method: str, where: str, **more: Any) -> requests.Response:
        session = requests.Session()
        session.trust_env = False
        waits = (min(_CONNECT_SECONDS, self._timeout_seconds), self._timeout_seconds)
        how = {"headers": self._headers, "timeout": waits, "allow_redirects": False, **more}
        return session.request(method, where, stream=True, **how)

    def complete(self, prompt_tokens: int, generation_tokens: int) -> Answer:
        """Send one streamed completion and read it to its end; a failure is told, not raised."""
        words = max(1, round(prompt_tokens / self._tokens_per_word))
        with self._lock:  # at random, so that no two prompts begin alike and no cache answers
            prompt = " ".join(WORDS[i] for i in self._rng.integers(0, len(WORDS), words))
        body = {
            **{"model": self.model, "stream": True, "temperature": 0.0, **self._optional},
            **{"prompt": prompt, "max_tokens": generation_tokens},
        }
        start, first = time.monotonic(), np.nan
        usage: Mapping[str, Any] = {}
        failure, excerpt, status = "stream cut off", "", None
        try:
            with self._send("POST", f"{self.base}/v1/completions", json=body) as response:
                status, kind = response.status_code, response.headers.get("Content-Type", "")
                if status != 200:
                    failure = _refused(status)
                    excerpt = response.raw.read(4 * _LONGEST_EXCERPT).decode(errors="replace")
                elif "event-stream" not in kind:
                    failure = f"answers with {kind[:80] or 'no type'}, not with an event stream"
                else:
                    for event in _events(response, start + self._timeout_seconds):
                        if event is None:
                            failure = ""
                            break
                        if event.get("choices") and np.isnan(first):
                            first = time.monotonic()
                        usage = event.get("usage") or usage
                        if "error" in event:
                            failure, excerpt = "error inside the stream", json.dumps(event["error"])
                            break
        except _ERRORS as error:
            failure = _reason(error)
        sent, made = (usage.get(f"{one}_tokens", np.nan) for one in ("prompt", "completion"))
        told = excerpt[:_LONGEST_EXCERPT]
        return Answer(start, first, time.monotonic(), sent, made, failure, told, status)

    def run(self, mix: Requests, seconds: float, users: int, count: int) -> Sent:
        """One level: each user sends its next request when one is answered.

        Nothing is sent any more after ``seconds``, or once most requests failed.
        """
        todo, until = iter(range(count)), time.monotonic() + seconds
        answers: list[Answer] = []
        gave_up = threading.Event()

        def user() -> None:
            while time.monotonic() < until and not gave_up.is_set():
                with self._lock:
                    at = next(todo, None)
                if at is None:
                    return
                at %= len(mix)
                tokens = int(mix.prompt_tokens[at]), int(mix.generation_tokens[at])
                answers.append(answer := self.complete(*tokens))
                failed = sum(1 for one in answers if one.failure)
                if failed >= _FAILURES_TO_STOP and 2 * failed > len(answers):
                    gave_up.set()
                if answer.failure:
                    gave_up.wait(_PAUSE_AFTER_FAILURE_SECONDS)

        threads = [threading.Thread(target=user, daemon=True) for _ in range(users)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        start, first, end, sent, made, failures, *_ = zip(*map(astuple, answers), strict=True)
        columns = (np.array(one, dtype=np.float64) for one in (start, first, end, sent, made))
        return Sent(*columns, failures)  # type: ignore[arg-type,call-arg]


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
            if line.startswith(b"data:"):
                data = line[5:].strip()
                event = None if data == b"[DONE]" else json.loads(data)
                if not isinstance(event, dict | None):
                    raise ValueError("not an object")
                yield event


def _help_on(status: int | None) -> str:
    """What to try where the server refuses everything with this status; None = no status."""
    if status in (401, 403):
        return "give its key with --api-key-file or in VLLM_API_KEY"
    return "is an OpenAI-compatible server up at --url? --timeout-seconds gives it longer"


def _refused(status: int) -> str:
    if 300 <= status < 400:
        return f"answers {status}, a redirect, which is not followed"
    return f"answers {status} {responses.get(status, '')}".rstrip()


def _reason(error: BaseException) -> str:
    """A failure in a few words that are the same for every request it hits."""
    if isinstance(error, ValueError | TypeError) and not isinstance(error, OSError):
        return "the answer is no event stream"
    why = why_failed(error, _CONNECT_SECONDS, "timed out")
    cut = ("answer cut off", "connection closed", "connection reset", "ProtocolError")
    return "stream cut off" if why.startswith(cut) else why

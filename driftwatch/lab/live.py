"""A closed loop of real users against a live server: threads, each sending when it was answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from driftwatch.errors import UsageError
from driftwatch.lab.client import STOPPED, Answer, Connection, help_on
from driftwatch.lab.sweep import Integers, Level, Sent, measure

_PAUSE_AFTER_FAILURE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_FAILURES_TO_STOP = 20
_POLL_SECONDS = 0.02
_BUSY = 0.7  # of one core: Python threads share one

# one token each in common vocabularies, behind a space; the probe measures how many it really is
_TEXT = """\
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government
number night point home water room mother area money story fact month lot right study book
eye job word business issue side kind head house service friend father power hour game line
"""
WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server takes and how it counts, found by sending it one request."""

    model: str  # name that requests carry
    fields: Mapping[str, Any]  # of every request's body, besides prompt and lengths
    # of the server's tokenizer over :data:`WORDS`; None = it does not say
    tokens_per_word: float | None
    notes: tuple[str, ...]  # what it does not take, for the reader


def prompt_text(words: int, rng: np.random.Generator) -> str:
    """Words at random, so that no two prompts begin alike and no prefix cache answers."""
    return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), max(1, words)))


def choose_model(connection: Connection, name: str | None, longest: int) -> str:
    """The model asked for, or the only one (the first) that the server lists.

    Raises UsageError: it is not listed, or takes no request as long as the longest one.
    """
    if name is not None:
        return name
    models = connection.models()
    if not models:
        raise UsageError(f"{connection.base}/v1/models lists no model", help_text="give --model")
    model, limit = next(iter(models.items()))
    if limit is not None and longest > limit:
        raise UsageError(
            f"the longest request has {longest:,} tokens, {model} takes {limit:,}",
            help_text="lower --prompt-tokens, --generation-tokens or --length-cv",
        )
    return model


def learn(
    connection: Connection, model: str, prompt_tokens: int, rng: np.random.Generator
) -> Dialect:
    """Send up to three short requests and learn what the server takes.

    Raises UsageError: it answers none of them, with what it said.
    """
    optional: dict[str, Any] = {"ignore_eos": True, "stream_options": {"include_usage": True}}
    notes: list[str] = []
    while True:
        words = max(1, prompt_tokens)
        body = {"model": model, "stream": True, "max_tokens": 2, "temperature": 0.0, **optional}
        answer = connection.complete({**body, "prompt": prompt_text(words, rng)})
        if not answer.failure:
            break
        if answer.status not in (400, 422) or not optional:
            excerpt = f": {' '.join(answer.excerpt.split())}" if answer.excerpt else ""
            raise UsageError(
                f"{connection.base}/v1/completions {answer.failure}{excerpt}",
                help_text=help_on(answer.status),
            )
        dropped = next(iter(optional))
        del optional[dropped]
        notes.append(
            "the server does not take ignore_eos: generations may end early"
            if dropped == "ignore_eos"
            else "the server does not take stream_options: tokens are not counted"
        )
    ratio = None if answer.prompt_tokens is None else answer.prompt_tokens / words
    if ratio is None and "stream_options" in optional:
        notes.append("the server's stream tells no usage: tokens are not counted")
    fields = {"model": model, "stream": True, "temperature": 0.0, **optional}
    return Dialect(model, fields, ratio or None, tuple(notes))


class Loop:
    """One level of the closed loop.

    Args:
        connections: one for each user.
        dialect: of the server.
        prompt_tokens: of each request, in the order they are sent.
        generation_tokens: the same.
        seconds: no request is sent any more after so long.
        rng: draws the prompts' words.
    """

    def __init__(
        self,
        connections: Sequence[Connection],
        dialect: Dialect,
        prompt_tokens: Integers,
        generation_tokens: Integers,
        seconds: float,
        rng: np.random.Generator,
    ) -> None:
        self._connections = connections
        self._dialect = dialect
        self._prompt_tokens, self._generation_tokens = prompt_tokens, generation_tokens
        self._seconds = seconds
        self._rng = rng
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._next = 0
        self._answers: list[Answer] = []
        self.gave_up = False
        self.busy_ratio = 0.0

    def run(self, progress: Callable[[float, float], None]) -> Sent:
        """Send all of it; returns when the last answer is in.

        Raises KeyboardInterrupt: every request under way has been ended before it leaves.
        """
        began, used = time.monotonic(), time.process_time()
        self._until = began + self._seconds
        threads = [
            threading.Thread(target=self._user, args=(connection,), daemon=True)
            for connection in self._connections
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                progress(len(self._answers), len(self._prompt_tokens))
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._stop.set()
            for connection in self._connections:
                connection.stop()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            raise
        self.busy_ratio = (time.process_time() - used) / max(time.monotonic() - began, 1e-9)
        return _sent(self._answers)

    def _user(self, connection: Connection) -> None:
        while (body := self._draw()) is not None:
            answer = connection.complete(body)
            if answer.failure == STOPPED:
                return
            with self._lock:
                self._answers.append(answer)
                failed = sum(1 for one in self._answers if one.failure)
                if failed >= _FAILURES_TO_STOP and 2 * failed > len(self._answers):
                    self.gave_up = True
                    self._stop.set()
            if answer.failure:
                wait = answer.retry_after_seconds
                pause = _PAUSE_AFTER_FAILURE_SECONDS if wait is None else wait
                self._stop.wait(min(pause, _LONGEST_PAUSE_SECONDS))

    def _draw(self) -> Mapping[str, Any] | None:
        """The next request's body, None where nothing is left to send."""
        with self._lock:
            at = self._next
            late = time.monotonic() >= self._until
            if at >= len(self._prompt_tokens) or late or self._stop.is_set():
                return None
            self._next += 1
            words = round(self._prompt_tokens[at] / (self._dialect.tokens_per_word or 1.0))
            prompt = prompt_text(words, self._rng)
        generate = int(self._generation_tokens[at])
        return {**self._dialect.fields, "prompt": prompt, "max_tokens": generate}


def live_levels(
    connect: Callable[[], Connection],
    dialect: Dialect,
    levels: Sequence[tuple[int, tuple[Integers, Integers]]],
    warm_up_rounds: int,
    level_seconds: float,
    rng: np.random.Generator,
    notes: list[str],
    progress: Callable[[float, float], None],
) -> Iterator[Level]:
    """One level after the other; none after one at which most requests failed.

    Args:
        connect: makes a connection for one user.
        dialect: of the server.
        levels: users, and the prompt and generation tokens of the requests they send.
        warm_up_rounds: of each user, left out.
        level_seconds: no request is sent any more after so long.
        rng: draws the prompts' words.
        notes: takes what the reader must know besides.
        progress: told how many levels are done.
    """
    for at, (users, (prompts, answers)) in enumerate(levels):
        connections = [connect() for _ in range(users)]
        loop = Loop(connections, dialect, prompts, answers, level_seconds, rng)

        def report(done: float, total: float, at: int = at) -> None:
            progress(at + done / total, len(levels))

        try:
            sent = loop.run(report)
        finally:
            for connection in connections:
                connection.close()
        level = measure(users, sent, warm_up=warm_up_rounds * users)
        yield replace(level, client_busy_ratio=loop.busy_ratio)
        if loop.busy_ratio > _BUSY:
            notes.append(
                f"at concurrency {users} this client used {loop.busy_ratio:.0%} of a core: "
                "its own slowness is in the latencies"
            )
        if loop.gave_up:
            notes.append(f"stopped at concurrency {users}: most requests failed")
            return


def _sent(answers: Sequence[Answer]) -> Sent:
    def column(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

    return Sent(
        start_seconds=column([a.start_seconds for a in answers]),
        first_token_seconds=column([a.first_token_seconds for a in answers]),
        end_seconds=column([a.end_seconds for a in answers]),
        prompt_tokens=column([a.prompt_tokens for a in answers]),
        generation_tokens=column([a.generation_tokens for a in answers]),
        failures=tuple(a.failure for a in answers),
    )

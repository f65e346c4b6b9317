"""A run piece by piece: the same answer as at once, in memory that its length does not add to.

Besides the requests themselves only some of them are in the engine, and only some steps and scrapes
are held; whoever asks takes each piece and lets it go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from driftwatch.errors import ImpossibleConfiguration, NoVerdict, UsageError
from driftwatch.simulate import vllm_buckets
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Engine, block_modes, check_fit
from driftwatch.simulate.outcome import Outcome
from driftwatch.simulate.requests import Floats, Requests
from driftwatch.simulate.state import Options
from driftwatch.simulate.step_time import StepTime

PIECE_REQUESTS = 100_000
MOST_INSIDE = 2_000_000  # requests in the engine, waiting or not yet sent: about 1 KB each
MOST_SCRAPES = 100_000
_WANTED_STEPS = 500_000  # of a piece: rows of 72 bytes
_PIECE_SCRAPES = 2_000
_GROWTH = 16  # a piece may last so many times as long as one of steps without any work


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What happened in one stretch of time."""

    requests: pl.DataFrame  # ``Outcome.requests``: those that ended in it
    # rows, ended or not, whose first token came in it; None without scrapes
    first_tokens: pl.DataFrame | None
    steps: pl.DataFrame  # ``Outcome.steps`` of it
    scrapes: pl.DataFrame | None  # ``Outcome.scrapes`` of it; None without scrapes


@dataclass(frozen=True, slots=True)
class LongRun:
    """What is run, and how it is cut."""

    requests: Requests  # all of them
    configuration: SchedulerConfiguration  # of the scheduler
    step_time: StepTime  # the step-time model
    concurrency: int | None = None  # closed loop of so many clients; None = open
    timeout_seconds: float | None = None  # clients give up so long after arrival
    # look at multiples of it, from the first after the first arrival to the first after the end;
    # None = never
    scrape_interval_seconds: float | None = None
    piece_requests: int = PIECE_REQUESTS  # so many are offered to the engine at a time
    wanted_steps: int = _WANTED_STEPS  # about so many a piece

    def run(
        self, begin: Callable[[], None], take: Callable[[Piece], None]
    ) -> dict[str, float | int]:
        """Run it; returns ``Outcome.summary``.

        Args:
            begin: called before the first piece; called again where all has to begin anew (the
                first try knows no block by its identity, which only a preemption asks for).
            take: called with each piece, in the order of time.

        Raises:
            ImpossibleConfiguration: vLLM would refuse the settings, or requests never fit.
            NoVerdict: requests wait that can never be admitted, or more than ``MOST_INSIDE`` wait.
            UsageError: a closed loop of more requests than that; more than ``MOST_SCRAPES``.
        """
        requests, configuration = self.requests, self.configuration
        configuration.check()
        try:
            check_fit(requests, configuration)  # before anything runs, not when their piece comes
        except ImpossibleConfiguration as error:
            raise ImpossibleConfiguration(
                error.problems,
                help_text="raise the limit that is named, or leave these requests out",
            ) from error
        if self.concurrency is not None and len(requests) > MOST_INSIDE:
            raise UsageError(
                f"a closed loop of {len(requests):,} requests: more than {MOST_INSIDE:,} do not "
                "fit, as none of them has its time before another ends",
                help_text=f"--limit {MOST_INSIDE}",
            )
        if len(requests):
            self._check_scrapes(float(requests.arrival_seconds[-1]))
        for identify_blocks in block_modes(requests, configuration):
            try:
                summary = self._attempt(begin, take, identify_blocks=identify_blocks)
            except NoVerdict as error:
                if identify_blocks or isinstance(error, _Overloaded):
                    raise
            else:
                if summary is not None:
                    return summary
        raise AssertionError("only a run that does not identify blocks is given up")

    def _attempt(
        self, begin: Callable[[], None], take: Callable[[Piece], None], *, identify_blocks: bool
    ) -> dict[str, float | int] | None:
        """One run; None where blocks are not identified and would have to be."""
        begin()
        requests = self.requests
        engine = Engine(
            self.configuration,
            self.step_time,
            Options(
                timeout_seconds=self.timeout_seconds,
                concurrency=self.concurrency,
                itl_edges=vllm_buckets.INTER_TOKEN_LATENCY_SECONDS,
                iteration_tokens_edges=vllm_buckets.ITERATION_TOKENS,
                per_step=True,
            ),
            identify_blocks=identify_blocks,
        )
        count = len(requests)
        offered = ended = 0
        now = float(requests.arrival_seconds[0]) if count else 0.0
        scraped = self._first_scrape(now)
        span = self._shortest_span()
        before = -math.inf
        while True:
            bound = math.inf
            while offered < count:
                size = count if self.concurrency is not None else self.piece_requests
                engine.offer(requests.take(slice(offered, offered + size)))
                offered = min(count, offered + size)
                if offered < count:
                    bound = float(np.nextafter(requests.arrival_seconds[offered], -np.inf))
                if bound > now:
                    break
                _check_inside(offered - ended, now)
            _check_inside(offered - ended, now)
            while True:
                until = min(bound, now + span)
                times = self._scrapes_to(scraped, until)
                outcome = engine.advance(until, times)
                if not identify_blocks and engine.preemptions:
                    return None
                now, scraped = until, scraped + (0 if times is None else len(times))
                ended += outcome.requests.height
                span = self._next_span(span, outcome)
                over = ended == count
                take(self._piece(engine, outcome, before, over=over))
                before = until
                if over:
                    self._look_once_more(engine, outcome, scraped, take)
                    return outcome.summary
                self._check_scrapes(now)
                if until == bound:
                    break

    def _piece(self, engine: Engine, outcome: Outcome, before: float, *, over: bool) -> Piece:
        steps, scrapes, first = outcome.steps, outcome.scrapes, None
        if steps is None:
            raise AssertionError("run with per_step and without steps")
        if self.scrape_interval_seconds is None:
            return Piece(outcome.requests, None, steps, None)
        # its first token is seen when it comes, however much later the request ends
        first = pl.concat([outcome.requests, engine.unfinished()]).filter(
            pl.col("first_token_seconds") > before
        )
        if over and scrapes is not None:
            last = self._scrapes_after(float(outcome.summary["end_seconds"]))
            scrapes = scrapes.filter(pl.col("time_seconds") <= last)
        return Piece(outcome.requests, first, steps, scrapes)

    def _look_once_more(
        self, engine: Engine, last: Outcome, scraped: int, take: Callable[[Piece], None]
    ) -> None:
        """The scrape after the end, where the last piece ended before it."""
        interval = self.scrape_interval_seconds
        if interval is None:
            return
        time = self._scrapes_after(float(last.summary["end_seconds"]))
        if interval * (scraped + 1) > time:
            return
        times = np.array([time])
        outcome = engine.advance(time, times)
        if outcome.steps is None:
            raise AssertionError("run with per_step and without steps")
        take(Piece(outcome.requests, outcome.requests, outcome.steps, outcome.scrapes))

    def _first_scrape(self, start: float) -> int:
        """How many multiples of the interval are over at the start; none is looked at there."""
        interval = self.scrape_interval_seconds
        return 0 if interval is None else int(start // interval)

    def _scrapes_after(self, end: float) -> float:
        interval = self.scrape_interval_seconds or math.inf
        return interval * (int(end // interval) + 1)

    def _scrapes_to(self, scraped: int, until: float) -> Floats | None:
        interval = self.scrape_interval_seconds
        if interval is None:
            return None
        last = int(until // interval)
        times: Floats = interval * np.arange(scraped + 1, last + 2, dtype=np.float64)
        return times[times <= until]

    def _check_scrapes(self, end: float) -> None:
        interval = self.scrape_interval_seconds
        if interval is None:
            return
        seconds = end - float(self.requests.arrival_seconds[0])
        if seconds / interval > MOST_SCRAPES:
            raise UsageError(
                f"{seconds / interval:,.0f} scrapes over {seconds:,.0f} s: more than "
                f"{MOST_SCRAPES:,}",
                help_text=f"--scrape-interval {seconds / MOST_SCRAPES * 1.01:.3g} or longer",
            )

    def _shortest_span(self) -> float:
        """Seconds in which no more steps than wanted end, as far as the step-time model says."""
        step_time = self.step_time
        least = step_time.c0_seconds + min(
            0.0 if step_time.hinge_tokens else step_time.c1_seconds_per_prefill_token,
            step_time.c2_seconds_per_decode_seq,
        )
        return self._within_scrapes(max(least * self.wanted_steps, 1e-3))

    def _next_span(self, span: float, outcome: Outcome) -> float:
        """Longer where steps are few; not so long that a burst after a quiet night is too many."""
        rows = 0 if outcome.steps is None else outcome.steps.height
        if rows > self.wanted_steps:
            return span / 2
        if rows > self.wanted_steps // 4:
            return span
        longest = _GROWTH * self._shortest_span() if self.step_time.c0_seconds else math.inf
        return self._within_scrapes(min(span * 2, longest))

    def _within_scrapes(self, span: float) -> float:
        interval = self.scrape_interval_seconds
        return span if interval is None else min(span, interval * _PIECE_SCRAPES)


class _Overloaded(NoVerdict):
    """More requests wait than are kept."""


def _check_inside(inside: int, now: float) -> None:
    if inside > MOST_INSIDE:
        raise _Overloaded(
            f"at {now:,.0f} s more than {MOST_INSIDE:,} requests are sent and not served: the "
            "server falls ever further behind",
            help_text="--limit for fewer requests, or --arrival-scale above 1 for a lower rate",
        )

"""The engine: requests, settings and a step-time model in; what vLLM would have done out.

Semantics, beyond vLLM's scheduler itself (``kernel.schedule``):

- Arrivals are read before every schedule call. The queue limits are the API server's
  (``v1/engine/async_llm.py``): a request is turned away while ``max_num_queued_reqs`` are
  inside (waiting or running), or while the prompts without a first token sum to
  ``max_num_queued_tokens``.
- A client that gives up (cancel_seconds, timeout_seconds) is gone at that time, with its blocks;
  a step that runs then computes it still, but its token is not counted (vLLM handles aborts before
  the outputs of the step).
- Times are the sum of step times in the order of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.kernel import tables as k
from driftwatch.simulate.kernel.tables import FINISHED, Tables
from driftwatch.simulate.outcome import (
    Outcome,
    no_progress,
    request_frame,
    scrape_frame,
    step_frame,
    summary_of,
)
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.state import (
    Options,
    cache_mode,
    empty_tables,
    integers,
    with_requests,
    with_scrapes,
    without,
)
from driftwatch.simulate.step_time import StepTime

inf = float("inf")
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Observe:
    """What to scrape."""

    scrape_seconds: Floats  # sorted times of the scrapes
    itl_edges: tuple[float, ...] = ()  # finite bucket edges of inter_token_latency_seconds
    iteration_tokens_edges: tuple[float, ...] = ()  # finite bucket edges of iteration_tokens_total


class Engine:
    """One engine, run piece by piece.

    Args:
        configuration: its scheduler settings.
        step_time: its step-time model.
        options: disturbance, closed loop, timeout, what is observed.
        identify_blocks: with prefix caching, know the text of each block; False where each request
            brings its cached tokens, or none can hit another's (see ``block_modes``).

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings.
    """

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        step_time: StepTime,
        options: Options | None = None,
        *,
        identify_blocks: bool = True,
    ) -> None:
        configuration.check()
        self.configuration = configuration
        self._options = options or Options()
        self._identify_blocks = identify_blocks
        self._offered = 0
        self._until = -inf
        self._generation = integers(0)
        self._groups: dict[int, int] = {}
        self._tables = empty_tables(configuration, step_time, self._options)

    @property
    def preemptions(self) -> int:
        """Preemptions so far."""
        return int(self._tables.counters[0]["preemptions"])

    def offer(self, requests: Requests) -> None:
        """Requests that will arrive, all later than those offered before.

        Raises ImpossibleConfiguration: requests that this engine can never serve, the first of them
        named; ValueError: they arrive before the time up to which the engine has run.
        """
        check_fit(requests, self.configuration, first_index=self._offered)
        if len(requests) and requests.arrival_seconds[0] < self._until:
            raise ValueError("requests are offered for a time that is over")
        self._tables = with_requests(
            self._tables,
            requests,
            self.configuration,
            groups=self._groups,
            first_index=self._offered,
            concurrency=self._options.concurrency,
            identify_blocks=self._identify_blocks,
        )
        self._generation = np.concatenate([self._generation, requests.generation_tokens])
        self._offered += len(requests)

    def advance(self, until_seconds: float = inf, scrape_seconds: Floats | None = None) -> Outcome:
        """Run to a time; what ends at it included.

        ``until_seconds``: on the requests' clock; inf = until nothing is left; ``scrape_seconds``:
        sorted, each at most until_seconds and not scraped before. Raises NoVerdict: requests wait
        that can never be admitted.
        """
        t = with_scrapes(self._tables, np.zeros(0) if scrape_seconds is None else scrape_seconds)
        pieces: list[pl.DataFrame] = []
        while True:
            run_kernel(t, until_seconds)
            if self._options.per_step:
                pieces.append(step_frame(t))
                t.engine["rows"] = 0
            if not t.engine[0]["full"]:
                break
        self._until = max(self._until, until_seconds if until_seconds < inf else -inf)
        ended = t.requests["status"] >= FINISHED
        outcome = Outcome(
            requests=request_frame(t, ended, self._generation),
            steps=pl.concat(pieces) if pieces else None,
            scrapes=scrape_frame(t) if scrape_seconds is not None else None,
            summary=summary_of(t),
        )
        self._tables = without(t, ended)
        self._generation = self._generation[~ended]
        return outcome

    def unfinished(self) -> pl.DataFrame:
        """Rows of the requests that have not ended (status unfinished)."""
        everyone = np.ones(len(self._generation), dtype=bool)
        return request_frame(self._tables, everyone, self._generation)


def run_kernel(t: Tables, until_seconds: float) -> None:
    """Run an engine's tables to a time.

    Raises NoVerdict: the engine makes no progress.
    """
    from driftwatch.simulate.kernel.loop import advance  # imports Numba

    advance(t, float(until_seconds))
    if t.engine[0]["stuck"]:
        raise no_progress(t)


def compile_kernel() -> None:
    """Compile the kernel, or load it: some seconds, once a machine."""
    run_kernel(
        empty_tables(SchedulerConfiguration(1, 1), StepTime(1.0, 0.0, 0.0, 0.0), Options()), 0
    )


def check_fit(requests: Requests, c: SchedulerConfiguration, *, first_index: int = 0) -> None:
    """Refuse requests that can never be served.

    Raises ImpossibleConfiguration: the first of them named, all counted, for each reason.
    """
    prompt = requests.prompt_tokens
    limit = inf if c.max_model_len is None else c.max_model_len
    problems = []

    def refuse(which: Mask, why: str) -> None:
        count = int(np.count_nonzero(which))
        if count:
            first = int(np.argmax(which))
            problems.append(
                f"{count:,} of {len(prompt):,} requests {why}, the first is request "
                f"{first_index + first} with {int(prompt[first]):,} prompt and "
                f"{int(requests.generation_tokens[first]):,} generation tokens"
            )

    refuse(prompt >= limit, f"have prompts of max_model_len ({c.max_model_len}) tokens or more")
    if c.num_gpu_blocks is not None:
        usable = (c.num_gpu_blocks - 1) * c.block_size
        computed = np.minimum(prompt + requests.generation_tokens, limit) - 1
        refuse(
            (prompt < limit) & (computed > usable),
            f"never fit in the KV cache ({usable:,} tokens)",
        )
    if not c.enable_chunked_prefill:
        refuse(
            (prompt < limit) & (prompt > c.max_num_batched_tokens),
            f"have prompts over max_num_batched_tokens ({c.max_num_batched_tokens:,}) and chunked "
            f"prefill is off",
        )
    if problems:
        raise ImpossibleConfiguration(tuple(problems))


def block_modes(requests: Requests, c: SchedulerConfiguration) -> tuple[bool, ...]:
    """Values of ``identify_blocks`` to try in turn, the next where a request was preempted.

    Without common prefixes a request can hit only what it left itself when it was preempted: a run
    without preemption needs no block's identity, and is faster without.
    """
    grouped = bool((requests.prefix_group >= 0).any())
    identified = cache_mode(requests, c, True) == k.IDENTIFY_BLOCKS
    return (False, True) if identified and not grouped else (True,)


def simulate(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    *,
    concurrency: int | None = None,
    timeout_seconds: float | None = None,
    disturbance: Disturbance | None = None,
    seed: int = 0,
    observe: Observe | None = None,
    per_step: bool = False,
    until_seconds: float = inf,
) -> Outcome:
    """Run requests through one engine.

    Args as of ``Options``; ``observe`` adds scrapes, ``until_seconds`` stops early and gives what
    has not ended the status ``unfinished``.

    Raises ImpossibleConfiguration: vLLM would refuse the settings, or requests can never be served;
    NoVerdict: the engine makes no progress.
    """
    observe = observe or Observe(np.zeros(0))
    options = Options(
        disturbance,
        seed,
        timeout_seconds,
        concurrency,
        observe.itl_edges,
        observe.iteration_tokens_edges,
        per_step,
    )
    times = observe.scrape_seconds
    for identify_blocks in block_modes(requests, configuration):
        engine = Engine(configuration, step_time, options, identify_blocks=identify_blocks)
        engine.offer(requests)
        try:
            outcome = engine.advance(until_seconds, times)
        except NoVerdict:
            if identify_blocks:
                raise
        else:
            if not engine.preemptions:
                break
    rest = engine.unfinished()
    if rest.height:
        return replace(
            outcome,
            requests=pl.concat([outcome.requests, rest]).sort("index"),
            summary={**outcome.summary, "unfinished": rest.height},
        )
    return outcome

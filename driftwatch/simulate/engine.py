"""The engine: requests, a configuration and a step-time law in; what vLLM would have done out.

Semantics, beyond vLLM's scheduler itself (design/vllm.md §2, ``kernel_schedule``):

- Arrivals are read before every schedule call. The queue limits are the API server's
  (``v1/engine/async_llm.py``): a request is turned away while ``max_num_queued_reqs`` are
  inside (waiting or running), or while the prompts without a first token sum to
  ``max_num_queued_tokens``.
- A client that gives up (cancel_seconds, timeout_seconds) is gone at that time, with its blocks;
  a step that runs then computes it still, but its token is not counted (vLLM handles aborts before
  the outputs of the step).
- Times are the sum of step times in the order of the steps: equal to the byte, compiled or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.simulate import kernel_layout as layout
from driftwatch.simulate.compiled import (
    Advance,
    compiled_kernel,
    compiling_allowed,
    is_cached,
    plain_kernel,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine_tables import compact, offer_tables
from driftwatch.simulate.kernel_tables import Tables, integers, make_tables, pack, unpack
from driftwatch.simulate.outcome import (
    Outcome,
    no_progress,
    request_frame,
    scrape_frame,
    step_frame,
    summary_of,
)
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

inf = float("inf")
Floats = npt.NDArray[np.float64]
WORTH_COMPILING = 10_000  # requests of one call, or
WORTH_COMPILING_IN_ALL = 50_000  # of all calls of this process
run_plain = [0]  # requests run plain so far; changes how fast the next ones run and nothing else


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Finite upper edges of the two histograms that a step feeds, as in vLLM's ``le``."""

    itl_seconds: tuple[float, ...] = ()
    iteration_tokens: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Observe:
    """What to scrape.

    Attributes:
        scrape_seconds: sorted times of the scrapes.
        itl_edges: finite bucket edges of inter_token_latency_seconds.
        iteration_tokens_edges: finite bucket edges of iteration_tokens_total.
    """

    scrape_seconds: Floats
    itl_edges: tuple[float, ...] = ()
    iteration_tokens_edges: tuple[float, ...] = ()


class Engine:
    """One engine, run piece by piece.

    Args:
        configuration: its scheduler settings.
        step_time: its law.
        disturbance: what differs from the law; None = nothing.
        seed: of the jitter.
        concurrency: closed loop: so many requests arrive at their own times, every other one when
            one ends, as patient as its cancel_seconds were after its arrival_seconds. None = all
            arrive at their own times.
        timeout_seconds: the client gives up so long after its arrival.
        observe_edges: bucket edges of the scrapes.
        per_step: keep a row per step.
        compiled: run compiled (True), as plain Python (False), or as fits (None).

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings.
    """

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        step_time: StepTime,
        *,
        disturbance: Disturbance | None = None,
        seed: int = 0,
        concurrency: int | None = None,
        timeout_seconds: float | None = None,
        observe_edges: Edges | None = None,
        per_step: bool = False,
        compiled: bool | None = None,
        identify_blocks: bool = True,
    ) -> None:
        configuration.check()
        edges = observe_edges or Edges()
        self.configuration = configuration
        self._concurrency = concurrency
        self._identify_blocks = identify_blocks
        self._compiled = compiled
        self._offered = 0
        self._until = -inf
        self._asked = integers(0)
        self._groups: dict[int, int] = {}
        self._tables = make_tables(
            configuration,
            step_time,
            disturbance=disturbance,
            seed=seed,
            timeout_seconds=timeout_seconds,
            per_step=per_step,
            itl_edges=edges.itl_seconds,
            iteration_edges=edges.iteration_tokens,
        )

    @property
    def preemptions(self) -> int:
        """Preemptions so far."""
        return int(self._tables.head[layout.PREEMPTIONS])

    def offer(self, requests: Requests) -> None:
        """Requests that will arrive, all later than those offered before.

        Raises:
            ImpossibleConfiguration: requests that this engine can never serve, the first of them
                named.
            ValueError: they arrive before the time up to which the engine has run.
        """
        check_fit(requests, self.configuration, first_index=self._offered)
        if len(requests) and requests.arrival_seconds[0] < self._until:
            raise ValueError("requests are offered for a time that is over")
        self._tables = offer_tables(
            self._tables,
            requests,
            self.configuration,
            groups=self._groups,
            first_index=self._offered,
            concurrency=self._concurrency,
            identify_blocks=self._identify_blocks,
        )
        self._asked = np.concatenate([self._asked, requests.generation_tokens])
        self._offered += len(requests)

    def advance(self, until_seconds: float = inf, scrape_seconds: Floats | None = None) -> Outcome:
        """Run to a time; what ends at it included.

        Args:
            until_seconds: on the requests' clock; inf = until nothing is left.
            scrape_seconds: sorted, each at most until_seconds and not scraped before.

        Raises:
            NoVerdict: requests wait that can never be admitted.
        """
        times = np.zeros(0) if scrape_seconds is None else scrape_seconds
        t = with_scrapes(self._tables, times)
        pieces: list[pl.DataFrame] = []
        while True:
            t = self._run(t, float(until_seconds))
            if t.head[layout.PER_STEP]:
                pieces.append(step_frame(t))
                t.head[layout.ROWS] = 0
            if not t.head[layout.FULL]:
                break
        if t.head[layout.STUCK]:
            raise no_progress(t)
        self._until = max(self._until, until_seconds if until_seconds < inf else -inf)
        ended = t.integers[layout.STATUS] >= layout.FINISHED
        outcome = Outcome(
            requests=request_frame(t, ended, self._asked),
            steps=pl.concat(pieces) if pieces else None,
            scrapes=scrape_frame(t) if scrape_seconds is not None else None,
            summary=summary_of(t),
        )
        self._tables = compact(t, ended)
        self._asked = self._asked[~ended]
        return outcome

    def unfinished(self) -> pl.DataFrame:
        """Rows of the requests that have not ended (status unfinished)."""
        everyone = np.ones(len(self._asked), dtype=bool)
        return request_frame(self._tables, everyone, self._asked)

    def _run(self, t: Tables, until: float) -> Tables:
        m, f = pack(t)
        kernel_for(t.integers.shape[1], self._compiled)(m, f, until)
        return unpack(t, m, f)


def kernel_for(requests: int, compiled: bool | None = None) -> Advance:
    """The kernel that runs so many requests: compiled, plain, or as fits (None)."""
    if compiled is None:
        # Compiling takes some seconds, once a machine; a small workload is over before.
        worth_it = requests >= WORTH_COMPILING or run_plain[0] + requests >= WORTH_COMPILING_IN_ALL
        compiled = compiling_allowed() and (worth_it or is_cached())
        if not compiled:
            run_plain[0] += requests
    return (compiled_kernel() if compiled else None) or plain_kernel


def with_scrapes(t: Tables, times: Floats) -> Tables:
    """Tables with room for scrapes at these times."""
    count = len(times)
    width = layout.LAST_COUNTER + 1 - layout.FIRST_COUNTER + 4
    t.head[layout.SCRAPES] = 0
    return t._replace(
        scrape_times=np.ascontiguousarray(times, dtype=np.float64),
        scrape_numbers=integers(count, width),
        scrape_clocks=np.zeros((count, 2)),
        scrape_itl=integers(count, len(t.itl_counts)),
        scrape_iteration=integers(count, len(t.iteration_counts)),
    )


def check_fit(requests: Requests, c: SchedulerConfiguration, *, first_index: int = 0) -> None:
    """Refuse requests that can never be served.

    Raises:
        ImpossibleConfiguration: the first of them named, all counted, for each reason.
    """
    prompt = requests.prompt_tokens
    limit = layout.NEVER if c.max_model_len is None else c.max_model_len
    problems = []

    def refuse(which: Any, why: str) -> None:
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
    compiled: bool | None = None,
) -> Outcome:
    """Run requests through one engine.

    Args as of ``Engine``; ``observe`` adds scrapes, ``until_seconds`` stops early and gives what
    has not ended the status ``unfinished``.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or requests can never be served.
        NoVerdict: the engine makes no progress.
    """
    edges = Edges(observe.itl_edges, observe.iteration_tokens_edges) if observe else None

    def engine_that(identify_blocks: bool) -> Engine:
        made = Engine(
            configuration,
            step_time,
            disturbance=disturbance,
            seed=seed,
            concurrency=concurrency,
            timeout_seconds=timeout_seconds,
            observe_edges=edges,
            per_step=per_step,
            compiled=compiled,
            identify_blocks=identify_blocks,
        )
        made.offer(requests)
        return made

    times = observe.scrape_seconds if observe else None
    only_itself = only_itself_to_hit(requests, configuration)
    engine = engine_that(not only_itself)
    try:
        outcome = engine.advance(until_seconds, times)
        again = only_itself and engine.preemptions > 0
    except NoVerdict:
        again = only_itself
        if not again:
            raise
    if again:
        engine = engine_that(True)
        outcome = engine.advance(until_seconds, times)
    rest = engine.unfinished()
    if rest.height:
        outcome = Outcome(
            requests=pl.concat([outcome.requests, rest]).sort("index"),
            steps=outcome.steps,
            scrapes=outcome.scrapes,
            summary={**outcome.summary, "unfinished": rest.height},
        )
    return outcome


def only_itself_to_hit(requests: Requests, c: SchedulerConfiguration) -> bool:
    """Whether a request can hit only what it left itself when it was preempted.

    Without common prefixes it is so, and a run without preemption needs no block's identity.
    """
    grouped = bool((requests.prefix_group >= 0).any())
    return c.enable_prefix_caching and c.num_gpu_blocks is not None and not grouped

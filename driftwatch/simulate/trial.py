"""Run requests through an engine: ``Trial`` repeats a whole run, ``Engine`` runs piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from driftwatch.arrays import Flags, Floats
from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import (
    Observe,
    Options,
    add_requests,
    cache_mode,
    make_tables,
    run_kernel,
    set_step_time,
    with_scrapes,
    without,
)
from driftwatch.simulate.kernel.tables import FINISHED, IDENTIFY_BLOCKS, Tables
from driftwatch.simulate.outcome import Run
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

inf = float("inf")


def _run_to(t: Tables, until_seconds: float) -> Run:
    """Run an engine's tables to a time.

    Raises NoVerdict: waiting requests can never be admitted, or requests preempt each other for
    ever.
    """
    pieces = []
    while True:
        run_kernel(t, until_seconds)
        pieces.append(t.rows[: t.engine[0]["rows"]].copy())
        t.engine["rows"] = 0
        if not t.engine[0]["full"]:
            return Run.of(t, until_seconds, pieces)


def check_fit(requests: Requests, c: SchedulerConfiguration) -> None:
    """Refuse requests that can never be served.

    Raises ImpossibleConfiguration: for each reason their number, and the first of them.
    """
    prompt = requests.prompt_tokens
    limit = inf if c.max_model_len is None else c.max_model_len
    problems = []

    def refuse(which: Flags, why: str) -> None:
        if count := int(np.count_nonzero(which)):
            first = int(np.argmax(which))
            problems.append(
                f"{count:,} of {len(prompt):,} requests {why}, the first is request {first} with "
                f"{int(prompt[first]):,} prompt and "
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
    if c.enable_prefix_caching and c.num_gpu_blocks is None:
        shared = (requests.prefix_group >= 0) & (requests.cached_tokens < 0)
        refuse(shared, "share prefixes: hits depend on num_gpu_blocks, which is not given")
    if problems:
        raise ImpossibleConfiguration(tuple(problems))


class Trial:
    """Requests and settings, prepared once and run many times.

    Args:
        requests: sorted by arrival.
        configuration: settings.
        observe: scrapes.
        options: other fields of :class:`~driftwatch.simulate.engine.Options`.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
    """

    def __init__(
        self,
        requests: Requests,
        configuration: SchedulerConfiguration,
        *,
        observe: Observe | None = None,
        **options: Any,
    ) -> None:
        configuration.check()
        check_fit(requests, configuration)
        self._requests = requests
        self._configuration = configuration
        self._options = Options(observe or Observe(), **options)
        # Without common prefixes a request can hit only its own blocks from before a preemption. So
        # a run without preemption only counts blocks, which is faster.
        grouped = bool((requests.prefix_group >= 0).any())
        identified = cache_mode(requests, configuration, True) == IDENTIFY_BLOCKS
        self._may_count = identified and not grouped
        self._ready: dict[bool, Tables | None] = {}  # None: made once, and used

    def run(
        self,
        step_time: StepTime,
        *,
        pace: float = 1.0,
        until_seconds: float = inf,
        checks: Sequence[float] = (),
        enough: Callable[[Run], bool] | None = None,
    ) -> Run:
        """Serve the requests with an empty engine.

        Args:
            step_time: step-time model.
            pace: factor on the request rate: arrival times are divided by it.
            until_seconds: end of the run; inf = when no request is left.
            checks: rising times at which ``enough`` is called.
            enough: whether the run so far suffices; None = run to the end.

        Raises:
            NoVerdict: the engine makes no progress.
        """
        while True:
            t = set_step_time(self._fresh(not self._may_count), step_time)
            t.requests["arrival"] /= pace
            times = (*(checks if enough else ()), until_seconds)
            if (run := self._run_through(t, times, enough)) is not None:
                return run
            self._may_count = False  # a preemption happened: identify blocks from now on

    def _run_through(
        self, t: Tables, times: Sequence[float], enough: Callable[[Run], bool] | None
    ) -> Run | None:
        """The run; None where a request was preempted while blocks were only counted."""
        for until in times:
            try:
                run = _run_to(t, until)
            except NoVerdict:
                if self._may_count:
                    return None
                raise
            if self._may_count and t.counters[0]["preemptions"] > 0:
                return None
            if enough is not None and until < times[-1] and enough(run):
                break
        return run

    def _fresh(self, identify_blocks: bool) -> Tables:
        """Tables of an empty engine; from the second run on they are kept and copied.

        Most trials run once, and a copy takes longer than making the tables.
        """
        ready = self._ready.get(identify_blocks)
        if ready is not None:
            return Tables(*(part.copy() for part in ready))
        made = add_requests(
            make_tables(self._configuration, self._options),
            self._requests,
            self._configuration,
            concurrency=self._options.concurrency,
            identify_blocks=identify_blocks,
        )
        if identify_blocks not in self._ready:
            self._ready[identify_blocks] = None
            return made
        self._ready[identify_blocks] = made
        return self._fresh(identify_blocks)


def simulate(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    *,
    until_seconds: float = inf,
    **options: Any,
) -> Run:
    """Run requests through one engine; ``options`` as of :class:`Trial`.

    Raises ImpossibleConfiguration: vLLM would refuse the settings, or requests can never be served;
    NoVerdict: the engine makes no progress.
    """
    return Trial(requests, configuration, **options).run(step_time, until_seconds=until_seconds)


class Engine:
    """An engine that runs for long, piece by piece, and drops ended requests.

    Blocks are counted: requests bring their cached tokens, or have no hits.

    Raises ImpossibleConfiguration: vLLM would refuse the settings.
    """

    def __init__(
        self, configuration: SchedulerConfiguration, step_time: StepTime, options: Options
    ) -> None:
        configuration.check()
        self.configuration = configuration
        self._offered = 0
        self._tables = set_step_time(make_tables(configuration, options), step_time)

    def offer(self, requests: Requests) -> None:
        """Add requests that arrive after all earlier ones, and after the time run so far.

        Raises ImpossibleConfiguration: this engine can never serve some of them.
        """
        check_fit(requests, self.configuration)
        self._forget()
        self._tables = add_requests(
            self._tables,
            requests,
            self.configuration,
            first_index=self._offered,
            identify_blocks=False,
        )
        self._offered += len(requests)

    def advance(self, until_seconds: float, scrape_seconds: Floats) -> Run:
        """Run to a time, with the steps that end at it.

        ``until_seconds``: on the requests' clock; inf = until no request is left;
        ``scrape_seconds``: sorted, new, each at most until_seconds. Raises NoVerdict: waiting
        requests can never be admitted.
        """
        self._forget()
        self._tables = with_scrapes(self._tables, scrape_seconds)
        return _run_to(self._tables, until_seconds)

    def _forget(self) -> None:
        self._tables = without(self._tables, self._tables.requests["status"] >= FINISHED)

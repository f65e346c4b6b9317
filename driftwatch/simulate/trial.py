"""The same requests and settings again and again: another pace, speed or step-time model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.errors import NoVerdict
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe, block_modes, check_fit, run_kernel
from driftwatch.simulate.kernel.tables import ENDLESS, FINISHED, Tables
from driftwatch.simulate.requests import Floats, Integers, Requests
from driftwatch.simulate.state import (
    Options,
    empty_tables,
    set_step_time,
    timed,
    with_requests,
    with_scrapes,
)
from driftwatch.simulate.step_time import StepTime

inf = float("inf")
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The requests of a :class:`Trial`, in their order; inf = not yet, or never."""

    now_seconds: float  # up to when was run; inf = until nothing was left
    # arrival_seconds, first_scheduled_seconds, first_token_seconds: of each request
    arrival_seconds: Floats
    first_scheduled_seconds: Floats
    first_token_seconds: Floats
    end_seconds: Floats  # when each finished, or was turned away, cancelled or timed out
    generation_tokens: Integers  # as asked, less what max_model_len cuts off
    preemptions: Integers  # of each request
    finished: Mask  # which got their last token
    ended: Mask  # which are over, one way or another
    _tables: Tables

    @property
    def scrape_seconds(self) -> Floats:
        """Times of the scrapes."""
        return np.asarray(self._tables.scrape_times)

    @property
    def waiting(self) -> Integers:
        """num_requests_waiting at each scrape."""
        return np.asarray(self.scraped("waiting_capacity") + self.scraped("waiting_deferred"))

    @property
    def kv_cache_usage_ratio(self) -> Floats | None:
        """At each scrape; None where blocks never bind."""
        total = int(self._tables.engine[0]["total_blocks"])
        return None if total >= ENDLESS else 1.0 - self.scraped("free_blocks") / total

    @property
    def itl_cells(self) -> Integers:
        """At each scrape (rows), inter-token times up to each edge and above the last."""
        return np.asarray(self._tables.scraped_itl)

    def scraped(self, name: str) -> npt.NDArray[Any]:
        """A gauge or counter at each scrape: a field of ``kernel.tables.COUNTERS``."""
        return np.asarray(self._tables.scraped[name])


def _run_of(t: Tables, now_seconds: float) -> Run:
    rows = t.requests
    return Run(
        now_seconds,
        arrival_seconds=rows["arrival"].copy(),
        first_scheduled_seconds=rows["first_scheduled"].copy(),
        first_token_seconds=rows["first_token"].copy(),
        end_seconds=rows["end"].copy(),
        generation_tokens=rows["target"] - rows["prompt"],
        preemptions=rows["preemptions"].copy(),
        finished=rows["status"] == FINISHED,
        ended=rows["status"] >= FINISHED,
        _tables=t,
    )


class Trial:
    """Requests and settings, made ready once and run again and again.

    It says what ``simulate`` says, without frames: where a search or a fit runs the same requests a
    hundred times, most of the time would go into those.

    Args:
        requests: sorted by arrival.
        configuration: settings.
        observe: what to scrape.
        factor_seconds: sorted times from which a run may have another speed; None = none.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
    """

    def __init__(
        self,
        requests: Requests,
        configuration: SchedulerConfiguration,
        *,
        observe: Observe | None = None,
        factor_seconds: Floats | None = None,
    ) -> None:
        configuration.check()
        check_fit(requests, configuration)
        self._requests = requests
        self._configuration = configuration
        self._observe = observe or Observe(np.zeros(0))
        self._factor_seconds = np.zeros(0) if factor_seconds is None else factor_seconds
        self._modes = block_modes(requests, configuration)
        self._ready: dict[bool, Tables] = {}

    def run(
        self,
        step_time: StepTime,
        *,
        pace: float = 1.0,
        factors: Floats | None = None,
        until_seconds: float = inf,
        checks: Sequence[float] = (),
        enough: Callable[[Run], bool] | None = None,
    ) -> Run:
        """Serve them from an empty engine.

        Args:
            step_time: step-time model.
            pace: times as many requests a second: arrivals are divided by it.
            factors: on the step times from each of ``factor_seconds`` on; None = 1.
            until_seconds: where the run ends; inf = when nothing is left.
            checks: rising times at which ``enough`` is asked.
            enough: whether what has come is enough; None = run to the end.

        Raises:
            NoVerdict: the engine makes no progress.
        """
        while True:
            t = self._tables(self._modes[0])
            set_step_time(t.engine, step_time)
            t = t._replace(captures=np.array(step_time.capture_sizes, dtype=np.float64))
            t.requests["arrival"] /= pace
            if factors is not None:
                t.factors["value"] = factors
            run = self._run_to(t, (*(checks if enough else ()), until_seconds), enough)
            if run is not None:
                return run
            self._modes = (True,)  # it will be preempted again; both say the same without

    def _run_to(
        self, t: Tables, times: Sequence[float], enough: Callable[[Run], bool] | None
    ) -> Run | None:
        """None where a request was preempted and blocks are not identified that should be."""
        provisional = len(self._modes) > 1
        for until in times:
            try:
                run_kernel(t, until)
            except NoVerdict:
                if provisional:
                    return None
                raise
            if provisional and t.counters[0]["preemptions"] > 0:
                return None
            run = _run_of(t, float(until))
            if enough is not None and until < times[-1] and enough(run):
                break
        return run

    def _tables(self, identify_blocks: bool) -> Tables:
        """Fresh tables, copied from those made once."""
        if identify_blocks not in self._ready:
            observe = self._observe
            ones = np.ones(len(self._factor_seconds))
            options = Options(
                itl_edges=observe.itl_edges, iteration_tokens_edges=observe.iteration_tokens_edges
            )
            t = empty_tables(self._configuration, StepTime(0.0, 0.0, 0.0, 0.0), options)
            t = with_requests(
                t,
                self._requests,
                self._configuration,
                groups={},
                first_index=0,
                concurrency=None,
                identify_blocks=identify_blocks,
            )
            t = t._replace(factors=timed(self._factor_seconds, ones))
            self._ready[identify_blocks] = with_scrapes(t, observe.scrape_seconds)
        return Tables(*(part.copy() for part in self._ready[identify_blocks]))

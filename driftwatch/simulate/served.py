"""Requests and settings, packed once, served at one pace after another and as far as is asked.

What ``simulate`` says of the requests, without its frames: where a search replays the same requests
a hundred times, most of the time would go into those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.simulate import kernel_layout as layout
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import (
    Observe,
    check_fit,
    kernel_for,
    only_itself_to_hit,
    with_scrapes,
)
from driftwatch.simulate.engine_tables import cache_mode, offer_tables
from driftwatch.simulate.kernel_tables import ENDLESS, Tables, make_tables, pack, unpack
from driftwatch.simulate.outcome import no_progress
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

inf = float("inf")
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_GAUGES = layout.LAST_COUNTER + 1 - layout.FIRST_COUNTER  # columns of a scrape before its gauges


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """What has come of the requests, in their order; inf = not yet, or never.

    The arrays are the engine's own: they hold until the same :class:`Serving` runs again.

    Attributes:
        now_seconds: up to when was run; inf = until nothing was left.
        arrival_seconds: of each request.
        first_scheduled_seconds: first admission.
        first_token_seconds: of the first token.
        end_seconds: finished, or turned away, cancelled or timed out.
        generation_tokens: as asked, less what max_model_len cuts off.
        preemptions: of each request.
    """

    now_seconds: float
    arrival_seconds: Floats
    first_scheduled_seconds: Floats
    first_token_seconds: Floats
    end_seconds: Floats
    generation_tokens: Integers
    preemptions: Integers
    _status: Integers
    _tables: Tables

    @property
    def finished(self) -> Mask:
        """Which got their last token."""
        return np.asarray(self._status == layout.FINISHED)

    @property
    def ended(self) -> Mask:
        """Which are over, one way or another."""
        return np.asarray(self._status >= layout.FINISHED)

    @property
    def scrape_seconds(self) -> Floats:
        """Times of the scrapes."""
        return np.asarray(self._tables.scrape_times)

    @property
    def running(self) -> Integers:
        """num_requests_running at each scrape."""
        return np.asarray(self._tables.scrape_numbers[:, _GAUGES])

    @property
    def kv_cache_usage_ratio(self) -> Floats | None:
        """At each scrape; None where blocks never bind."""
        total = int(self._tables.head[layout.TOTAL_BLOCKS])
        if total >= ENDLESS:
            return None
        return np.asarray(1.0 - self._tables.scrape_numbers[:, _GAUGES + 3] / total)

    @property
    def itl_seconds_sum(self) -> Floats:
        """At each scrape, since the start."""
        return np.asarray(self._tables.scrape_clocks[:, 1])

    @property
    def itl_cells(self) -> Integers:
        """At each scrape (rows), inter-token times up to each edge and above the last."""
        return np.asarray(self._tables.scrape_itl)

    def counter(self, slot: int) -> Integers:
        """A counter of ``kernel_layout`` at each scrape."""
        return np.asarray(self._tables.scrape_numbers[:, slot - layout.FIRST_COUNTER])


class Serving:
    """Requests, settings and a law, ready to be run.

    Args:
        requests: sorted by arrival.
        configuration: settings.
        law: step time.
        observe: what to scrape.
        compiled: as of ``Engine``.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
    """

    def __init__(
        self,
        requests: Requests,
        configuration: SchedulerConfiguration,
        law: StepTime,
        *,
        observe: Observe | None = None,
        compiled: bool | None = None,
    ) -> None:
        configuration.check()
        check_fit(requests, configuration)
        self._requests = requests
        self._configuration = configuration
        self._law = law
        self._observe = observe
        self._compiled = compiled
        self._only_itself = only_itself_to_hit(requests, configuration) and (
            cache_mode(requests, configuration, True) == layout.IDENTIFY_BLOCKS
        )
        self._packed: dict[bool, tuple[Tables, Any, Any]] = {}

    def run(
        self,
        pace: float = 1.0,
        *,
        checks: Sequence[float] = (),
        enough: Callable[[Served], bool] | None = None,
    ) -> Served:
        """Serve them from an empty engine.

        Args:
            pace: times as many requests a second: arrivals are divided by it.
            checks: rising times at which ``enough`` is asked.
            enough: whether what has come is enough; None = run until nothing is left.

        Raises:
            NoVerdict: the engine makes no progress.
        """
        found = self._run(pace, checks, enough, not self._only_itself)
        if found is None:  # both ways say the same without preemptions
            self._only_itself = False
            found = self._run(pace, checks, enough, True)
        assert found is not None  # noqa: S101 - blocks were known by themselves
        return found

    def _run(
        self,
        pace: float,
        checks: Sequence[float],
        enough: Callable[[Served], bool] | None,
        identify_blocks: bool,
    ) -> Served | None:
        """None where blocks should have been known by themselves."""
        if identify_blocks not in self._packed:
            t = self._tables(identify_blocks)
            self._packed[identify_blocks] = (t, *pack(t))
        t, whole, real = self._packed[identify_blocks]
        m, f = whole.copy(), real.copy()
        if pace != 1.0:
            at = int(m[layout.ARRIVAL])
            f[at : at + len(self._requests)] /= pace
        t = unpack(t, m, f)
        advance = kernel_for(len(self._requests), self._compiled)
        for until in (*(checks if enough else ()), inf):
            advance(m, f, float(until))
            if not identify_blocks and self._only_itself and self._again(t):
                return None
            if t.head[layout.STUCK]:
                raise no_progress(t)
            found = _served(t, float(until))
            if enough is not None and until < inf and enough(found):
                break
        return found

    def _again(self, t: Tables) -> bool:
        return bool(t.head[layout.PREEMPTIONS] > 0 or t.head[layout.STUCK])

    def _tables(self, identify_blocks: bool) -> Tables:
        observe = self._observe
        t = make_tables(
            self._configuration,
            self._law,
            disturbance=None,
            seed=0,
            timeout_seconds=None,
            per_step=False,
            itl_edges=observe.itl_edges if observe else (),
            iteration_edges=observe.iteration_tokens_edges if observe else (),
        )
        t = offer_tables(
            t,
            self._requests,
            self._configuration,
            groups={},
            first_index=0,
            concurrency=None,
            identify_blocks=identify_blocks,
        )
        return with_scrapes(t, observe.scrape_seconds if observe else np.zeros(0))


def _served(t: Tables, now_seconds: float) -> Served:
    def times(field: int) -> Floats:
        return np.asarray(t.floats[field - layout.FIRST_FLOAT])

    return Served(
        now_seconds,
        times(layout.ARRIVAL),
        times(layout.FIRST_SCHEDULED),
        times(layout.FIRST_TOKEN),
        times(layout.END),
        t.integers[layout.TARGET] - t.integers[layout.PROMPT],
        t.integers[layout.PREEMPTED_TIMES],
        t.integers[layout.STATUS],
        t,
    )

"""The same requests and settings under one law after another, scraped at the same times.

What ``simulate`` would say, without building and reading its tables anew: of a fit, most of the
time would go there. The kernel's state is packed once; a replay copies it, writes the law's numbers
into the header and runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.simulate import kernel_layout as layout
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import check_fit, kernel_for, only_itself_to_hit, with_scrapes
from driftwatch.simulate.engine_tables import cache_mode, offer_tables
from driftwatch.simulate.kernel_tables import ENDLESS, Tables, make_tables, pack, unpack
from driftwatch.simulate.outcome import COUNTERS, no_progress
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]

_GAUGES = layout.LAST_COUNTER + 1 - layout.FIRST_COUNTER  # columns of a scrape before its gauges


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """One replay.

    Attributes:
        running: num_requests_running at each scrape.
        waiting: num_requests_waiting at each scrape.
        kv_cache_usage_ratio: at each scrape; NaN where blocks never bind.
        itl_seconds_sum: at each scrape.
        first_scheduled_seconds: of each request, inf where it never was.
        first_token_seconds: of each request, inf where none came.
        end_seconds: of each request, inf where it did not end.
        preemptions: in all.
    """

    running: Floats
    waiting: Floats
    kv_cache_usage_ratio: Floats
    itl_seconds_sum: Floats
    first_scheduled_seconds: Floats
    first_token_seconds: Floats
    end_seconds: Floats
    preemptions: int
    _numbers: Any

    def counter(self, name: str) -> Floats:
        """One of :data:`driftwatch.simulate.outcome.COUNTERS` at each scrape."""
        return np.asarray(self._numbers[:, COUNTERS[name] - layout.FIRST_COUNTER], dtype=float)


@dataclass(frozen=True, slots=True, eq=False)
class _Packed:
    tables: Tables
    m: Any
    f: Any
    scratch_m: Any
    scratch_f: Any


class Repeated:
    """Requests and settings, ready to be run under any law.

    Args:
        requests: sorted by arrival.
        configuration: settings.
        scrape_seconds: sorted.
        until_seconds: where every replay ends.
        factor_seconds: sorted times from which a replay may have another speed; None = none.
        compiled: as of ``Engine``.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
    """

    def __init__(
        self,
        requests: Requests,
        configuration: SchedulerConfiguration,
        *,
        scrape_seconds: Floats,
        until_seconds: float,
        factor_seconds: Floats | None = None,
        compiled: bool | None = None,
    ) -> None:
        configuration.check()
        check_fit(requests, configuration)
        self._requests = requests
        self._configuration = configuration
        self._times = scrape_seconds
        self._until = float(until_seconds)
        self._disturbance = (
            None
            if factor_seconds is None
            else Disturbance(factor_seconds=factor_seconds, factors=np.ones(len(factor_seconds)))
        )
        self._compiled = compiled
        self._only_itself = only_itself_to_hit(requests, configuration) and (
            cache_mode(requests, configuration, True) == layout.IDENTIFY_BLOCKS
        )
        self._packed: dict[tuple[bool, tuple[int, ...]], _Packed] = {}

    def run(self, law: StepTime, factors: Floats | None = None) -> Repetition:
        """One replay.

        Args:
            law: step time.
            factors: on the step times from each of ``factor_seconds`` on; None = 1.

        Raises:
            NoVerdict: the engine makes no progress.
        """
        t = self._run(law, factors, not self._only_itself)
        if self._only_itself and (t.head[layout.PREEMPTIONS] > 0 or t.head[layout.STUCK]):
            t = self._run(law, factors, True)
            self._only_itself = False  # it will be so again; both ways say the same without
        if t.head[layout.STUCK]:
            raise no_progress(t)
        numbers, total = t.scrape_numbers.copy(), int(t.head[layout.TOTAL_BLOCKS])
        free = numbers[:, _GAUGES + 3]
        usage = np.full(len(free), np.nan) if total >= ENDLESS else 1.0 - free / total
        return Repetition(
            running=numbers[:, _GAUGES].astype(float),
            waiting=(numbers[:, _GAUGES + 1] + numbers[:, _GAUGES + 2]).astype(float),
            kv_cache_usage_ratio=usage,
            itl_seconds_sum=t.scrape_clocks[:, 1].copy(),
            first_scheduled_seconds=t.floats[layout.FIRST_SCHEDULED - layout.FIRST_FLOAT].copy(),
            first_token_seconds=t.floats[layout.FIRST_TOKEN - layout.FIRST_FLOAT].copy(),
            end_seconds=t.floats[layout.END - layout.FIRST_FLOAT].copy(),
            preemptions=int(t.head[layout.PREEMPTIONS]),
            _numbers=numbers,
        )

    def _run(self, law: StepTime, factors: Floats | None, identify_blocks: bool) -> Tables:
        key = (identify_blocks, law.capture_sizes)
        if key not in self._packed:
            self._packed[key] = self._pack(law, identify_blocks)
        packed = self._packed[key]
        m, f = packed.scratch_m, packed.scratch_f
        np.copyto(m, packed.m)
        np.copyto(f, packed.f)
        m[layout.HINGE] = law.hinge_tokens
        f[layout.C0] = law.c0_seconds
        f[layout.C1] = law.c1_seconds_per_prefill_token
        f[layout.C2] = law.c2_seconds_per_decode_seq
        f[layout.C3] = law.c3_seconds_per_kv_token
        f[layout.C4] = law.c4_seconds_per_prefill_pair
        if factors is not None:
            f[m[layout.FACTORS] : m[layout.FACTORS] + len(factors)] = factors
        kernel_for(len(self._requests), self._compiled)(m, f, self._until)
        return unpack(packed.tables, m, f)

    def _pack(self, law: StepTime, identify_blocks: bool) -> _Packed:
        t = make_tables(
            self._configuration,
            law,
            disturbance=self._disturbance,
            seed=0,
            timeout_seconds=None,
            per_step=False,
            itl_edges=(),
            iteration_edges=(),
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
        t = with_scrapes(t, self._times)
        m, f = pack(t)
        return _Packed(t, m, f, np.empty_like(m), np.empty_like(f))

"""Servers with a known step-time model, for tests of the sweep and its verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from driftwatch.model import Reason, Recommendation, Serving, Setting, Slo
from driftwatch.recommend.advice import Advice, Question
from driftwatch.recommend.advise import answer_prepared
from driftwatch.recommend.ground import Ground
from driftwatch.recommend.horizon import WARM_SHARE
from driftwatch.recommend.prepare import Prepared
from driftwatch.recommend.scenarios import BlockCount, Scenario
from driftwatch.recommend.simulation import Judged
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed, Server
from driftwatch.signals.minutes import no_minutes
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.roofline import roofline, variants

AT = datetime(2026, 11, 18, 3, tzinfo=UTC)
SECONDS = 240.0
H100_8B = variants(
    roofline(gpu("H100-80GB"), model("llama-3.1-8b")), gpu("H100-80GB"), model("llama-3.1-8b")
)


def requests_of(
    rate: float, prompt: float, generation: float, *, seed: int = 1, seconds: float = SECONDS
) -> Requests:
    """Poisson arrivals, log-normal lengths."""
    rng = np.random.default_rng(seed)
    count = round(rate * seconds)
    return make_requests(
        np.sort(rng.uniform(0.0, seconds, count)),
        np.clip(rng.lognormal(np.log(prompt) - 0.18, 0.6, count), 1, 16000).astype(int),
        np.clip(rng.lognormal(np.log(generation) - 0.18, 0.6, count), 1, 8000).astype(int),
        cached_tokens=np.zeros(count, dtype=int),
    )


def server_with(configuration: SchedulerConfiguration, **more: Any) -> Server:
    """What is told of a server with these settings."""
    return Server(
        serving=Serving(
            max_num_seqs=Setting(configuration.max_num_seqs, "config"),
            max_num_batched_tokens=Setting(configuration.max_num_batched_tokens, "config"),
        ),
        **{"model": "llama-3.1-8b", "gpu": "H100-80GB", "tensor_parallel": 1, **more},
    )


def prepared_of(
    requests: Requests,
    configuration: SchedulerConfiguration,
    slo: Slo | None,
    *,
    server: Server | None = None,
    objective: Any = "throughput",
    saturated: bool = False,
) -> Prepared:
    """The ground of an answer, its step-time models given instead of fitted."""
    told = server or server_with(configuration)
    ground = Ground(
        [Scenario(configuration, step_time, name) for name, step_time in H100_8B.items()],
        requests,
        Judged(slo, WARM_SHARE * SECONDS, SECONDS),
        BlockCount.of(told),
        budget_known=True,
        objective=objective,
    )
    observed = Observed(
        AT,
        SECONDS,
        requests,
        "metrics",
        pl.DataFrame(schema=CHUNK_SCHEMA),
        busy_windows=10,
        saturated=saturated,
    )
    advice = Advice(
        AT, Recommendation("insufficient", reason=Reason("other", "not asked")), slo=slo
    )
    return Prepared(advice, observed, ground, requests)


def answer_of(
    requests: Requests,
    configuration: SchedulerConfiguration,
    slo: Slo | None,
    *,
    what_if: Mapping[str, float] | None = None,
    replicas: int | None = None,
    **more: Any,
) -> Advice:
    """Sweep and verdict."""
    prepared = prepared_of(requests, configuration, slo, **more)
    question = Question(
        AT,
        no_minutes(),
        server_with(configuration),
        slo,
        "configuration",
        objective=more.get("objective", "throughput"),
        what_if=what_if or {},
        replicas=replicas,
    )
    return answer_prepared(question, prepared, table=False)

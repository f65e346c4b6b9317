"""Advice by hand: a change that helps, and its refusal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from driftwatch.model import Advice, KnobMove, Reason, Slo
from driftwatch.recommend.advice import (
    Answer,
    Candidate,
    Compared,
    GainRange,
    Gate,
    ModelCheck,
    StepTimeFit,
)
from driftwatch.recommend.situation import NEAR

AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
BELOW = "max_num_batched_tokens (512) is below max_num_seqs (1024): vLLM refuses to start"
STEP_TIME = StepTimeFit(
    "0.006,3.2e-05,1e-05,4e-08", "roofline of Llama-3.1-8B on H100-SXM", True, 11, 0.03
)
GOOD = ModelCheck(
    {
        "itl_seconds": Compared(0.0211, 0.0205, 0.0215),
        "running_requests": Compared(102.0, 96.0, 100.0),
    }
)
NOT_RUNNING = (
    "the simulation does not reproduce today: running requests 76 to 94 simulated, 141 observed "
    "(-33 %, limit 10 %)"
)


def budget(value: float | None, share: float, ttft: float, itl: float, rate: float) -> Candidate:
    """A row."""
    return Candidate(
        {} if value is None else {"max_num_batched_tokens": value},
        in_target_ratio=share,
        in_target_low_ratio=max(0.0, share - 0.06),
        in_target_high_ratio=min(1.0, share + 0.004),
        capacity_requests_per_second=rate,
        ttft_p95_seconds=ttft,
        itl_p99_seconds=itl,
        tpot_p95_seconds=itl / 2,
        kv_cache_peak_ratio=0.28 if value is None else 0.33,
        kv_blocks=27_000 if value is None else 26_930,
        generation_tokens_per_second=2990.0,
    )


def story() -> Answer:
    """rag-8b: the token budget binds; 512 → 2048."""
    near = {"ttft_p95_seconds": NEAR}
    today = replace(budget(None, 0.013, 2.45, 0.024, 15.0), ttft_p95_seconds=None, reasons=near)
    advised = budget(2048, 0.994, 0.19, 0.054, 19.0)
    return Answer(
        at=AT,
        advice=Advice(
            action="change",
            reason=Reason(
                "forecast", "forecast: 99 % of requests in target at 16.5 req/s per server"
            ),
            moves=(KnobMove("max_num_batched_tokens", 512.0, 2048.0, "config"),),
            price=(
                "inter-token latency p99 24 → 54 ms (TPOT p95 becomes 27 ms, its target is 50 ms)",
                "restart",
            ),
            undo="--max-num-batched-tokens 512",
            wrong_if="more than 5 % of requests miss TTFT 1 s or TPOT 50 ms at up to 16.5 req/s "
            "per server",
            effect=(
                "forecast: 99 % of requests in target at 16.5 req/s per server",
                "capacity 15.0 → 19.0 req/s per server (+27 %)",
            ),
            value_reason="not 4096: +0 points, capacity +0 %, inter-token latency p99 54 → 93 ms",
            basis="simulation",
        ),
        gates=(Gate("fit_itl", True, "ITL 0 %"), Gate("fit_running", True, "running -2 %")),
        slo=Slo(1.0, 0.05, 0.95),
        slo_source="configuration",
        step_time=STEP_TIME,
        check=GOOD,
        today=today,
        candidates=(
            today,
            budget(1024, 0.991, 0.29, 0.034, 18.3),
            advised,
            budget(4096, 0.994, 0.17, 0.093, 19.0),
            Candidate({"max_num_seqs": 128}, capacity_requests_per_second=15.0),
            Candidate({"max_num_seqs": 512}, capacity_requests_per_second=15.1),
            Candidate({"max_num_seqs": 1024}, refused=BELOW),
        ),
        what_ifs=(Candidate({"prefix_hit_ratio": 0.5}, capacity_requests_per_second=27.0),),
        advised=advised,
        gain=GainRange(0.98, 0.86, 0.99, 0.0),
        traffic_of="rag-8b-1, the busiest of 8 servers",
        offered_requests_per_second=16.5,
        settings={"max_num_seqs": 256.0, "max_num_batched_tokens": 512.0},
        window_seconds=660.0,
        source="request log",
        requests=10_900,
    )


def refused() -> Answer:
    """The same without the log: the simulation of today misses what was observed."""
    return Answer(
        at=AT,
        advice=Advice(action="insufficient", reason=Reason("fit_running", NOT_RUNNING)),
        gates=(Gate("fit_running", False, NOT_RUNNING), Gate("fit_itl", True, "ITL 0 %")),
        slo=Slo(1.0, None, 0.95),
        slo_source="command line",
        step_time=replace(
            STEP_TIME, source="no datasheet: GPU unknown: give --gpu", is_known=False
        ),
        check=ModelCheck({**GOOD.compared, "running_requests": Compared(141.0, 76.0, 94.0)}),
        offered_requests_per_second=16.5,
        window_seconds=660.0,
        requests=10_900,
        notes=("max_num_batched_tokens is not given: 512 to 16,384 are tried",),
    )


STORIES = {"change": story, "no_verdict": refused}

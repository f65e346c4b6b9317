"""Advice by hand: a change that helps, its refusal, and a server no knob helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from driftwatch.model import Reason, Recommendation, Slo
from driftwatch.recommend.advice import Advice, Candidate, Gate
from driftwatch.recommend.calibration.fits import Calibration, Fit
from driftwatch.recommend.candidates import NEAR
from driftwatch.simulate.step_time import StepTime

AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
BELOW = "max_num_batched_tokens (512) is below max_num_seqs (1024): vLLM refuses to start"
_RESIDUALS = {"generation_tokens_per_second": -0.02, "itl_seconds": 0.001, "ttft_seconds": 0.01}


def calibration(residuals: Mapping[str, float], *, saturated: bool = False) -> Calibration:
    step_time = StepTime(0.006, 3.2e-5, 1e-5, 4e-8)
    return Calibration(
        AT,
        660.0,
        (Fit("linear", step_time, residuals, 0.4),),
        "roofline of llama-3.1-8b on h100-sxm",
        True,
        saturated,
        True,
    )


def budget(value: float | None, share: float, ttft: float, itl: float, rate: float) -> Candidate:
    """A row; the band is 2 % of it to both sides."""
    return Candidate(
        {} if value is None else {"max_num_batched_tokens": value},
        in_target_ratio=share,
        capacity_requests_per_second=rate,
        capacity_low_requests_per_second=0.98 * rate,
        capacity_high_requests_per_second=1.02 * rate,
        ttft_p95_seconds=ttft,
        itl_p99_seconds=itl,
        tpot_p95_seconds=itl / 2,
        kv_cache_peak_ratio=0.28 if value is None else 0.33,
        kv_blocks=27_000 if value is None else 26_930,
        generation_tokens_per_second=2990.0,
    )


def story() -> Advice:
    """rag-8b: the token budget binds; 512 → 2048."""
    near = {"ttft_p95_seconds": NEAR}
    today = replace(budget(None, 0.013, 2.45, 0.024, 15.0), ttft_p95_seconds=None, reasons=near)
    advised = budget(2048, 0.994, 0.19, 0.054, 19.0)
    advised = replace(
        advised, capacity_low_requests_per_second=17.9, capacity_high_requests_per_second=19.6
    )
    return Advice(
        AT,
        Recommendation(
            "change",
            Reason("other", "every step is full at 512 tokens while 28 requests wait"),
            knob="max_num_batched_tokens",
            from_value=512.0,
            from_provenance="config",
            to_value=2048.0,
            price=(
                "inter-token latency p99 24 → 54 ms (TPOT p95 becomes 27 ms, its target is 50 ms)",
                "restart",
            ),
            undo="--max-num-batched-tokens 512",
            wrong_if="more than 5 % of requests miss TTFT 1 s or TPOT 50 ms at up to 16.5 req/s "
            "per replica",
            effect=(
                "forecast: requests in target 1 % → 99 %",
                "capacity 15.0 → 19.0 req/s per replica (+22 to +28 %)",
            ),
            not_cured=(
                "a replica served 29.5 req/s at the baseline's lengths; to serve as much at these "
                "takes 13 replicas instead of 8",
            ),
            basis="simulation",
        ),
        gates=(Gate("fit_itl", True, "ITL 0 %"), Gate("fit_ttft", True, "TTFT +1 %")),
        slo=Slo(1.0, 0.05, 0.95),
        slo_source="configuration",
        calibration=calibration(_RESIDUALS),
        today=today,
        candidates=(
            today,
            budget(1024, 0.991, 0.29, 0.034, 18.3),
            advised,
            budget(4096, 0.994, 0.17, 0.093, 19.0),
            Candidate({"max_num_seqs": 128}, capacity_requests_per_second=15.0),
            Candidate({"max_num_seqs": 512}, capacity_requests_per_second=15.1),
        ),
        what_ifs=(Candidate({"prefix_hit_ratio": 0.5}, capacity_requests_per_second=27.0),),
        advised=advised,
        capacity_reference_requests_per_second=29.5,
        offered_requests_per_second=16.5,
        settings={"max_num_seqs": 256.0, "max_num_batched_tokens": 512.0},
        window_seconds=660.0,
        source="request log",
        requests=10_900,
    )


def refused() -> Advice:
    """The same without the log: TTFT cannot be simulated."""
    reason = "the model of this server is off by 69 % on TTFT (limit 15 %)"
    return Advice(
        AT,
        Recommendation("insufficient", Reason("other", reason)),
        gates=(Gate("fit_ttft", False, reason), Gate("fit_itl", True, "off by 0 % on ITL")),
        slo=Slo(1.0, None, 0.95),
        slo_source="command line",
        calibration=calibration({**_RESIDUALS, "ttft_seconds": 0.69}),
        offered_requests_per_second=16.5,
        window_seconds=660.0,
        requests=10_900,
        notes=(
            "max_num_batched_tokens is not given, so advice must hold for every value from "
            "512 to 16,384",
        ),
    )


def no_knob() -> Advice:
    """KV binds: no knob, two more replicas; TTFT not to be told near capacity."""
    near = {"ttft_p95_seconds": NEAR}
    today = replace(budget(None, 0.4, 1, 0.03, 10.0), ttft_p95_seconds=None, reasons=near)
    today = replace(today, kv_cache_peak_ratio=1.0)
    wider = replace(today, knobs={"max_num_seqs": 512.0})
    return replace(
        story(),
        recommendation=Recommendation(
            "none",
            Reason("no_knob_helps", "the KV cache is full, and no batch setting makes room"),
            instead=(
                "add 2 replicas (3 in all): forecast 99 % of requests in target",
                "with an fp8 KV cache: capacity 10.0 → 17.2 req/s per replica",
            ),
            basis="simulation",
        ),
        calibration=calibration(
            {"generation_tokens_per_second": 0.01, "itl_seconds": -0.03, "running_requests": 0.02},
            saturated=True,
        ),
        today=today,
        candidates=(
            today,
            wider,
            Candidate({"max_num_seqs": 1024.0}, refused=BELOW),
        ),
        what_ifs=(
            Candidate({"kv_cache_dtype_fp8": 1.0}, 0.98, capacity_requests_per_second=17.2),
            Candidate({"replicas": 3.0}, 0.99, capacity_requests_per_second=10.0),
        ),
        advised=None,
        capacity_reference_requests_per_second=None,
        slo_source="derived from the pin",
        source="metrics",
    )


STORIES = {"change": story, "no_verdict": refused, "no_knob": no_knob}

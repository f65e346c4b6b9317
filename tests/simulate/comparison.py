"""Random small workloads in random configurations, and what must agree on them."""

from __future__ import annotations

import numpy as np
import pytest
from reference import FINISHED, NoProgress, Reference, Result

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.requests import NEVER, Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Run, check_fit, simulate

LAW = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)
ITL_EDGES = (0.0101, 0.0115, 0.02, 0.05)
TOKENS_EDGES = (1.0, 4.0, 16.0, 64.0)


def draw_configuration(rng: np.random.Generator) -> SchedulerConfiguration:
    """Small numbers, so that every limit binds now and then."""

    def chance(probability: float) -> bool:
        return bool(rng.random() < probability)

    block_size = int(rng.choice([1, 2, 4, 16]))
    seqs = int(rng.integers(1, 12))
    tokens = seqs + int(rng.choice([0, 1, 3, 10, 60, 300]))
    length = int(rng.integers(20, 90)) if chance(0.5) else None
    chunked = not chance(0.15)
    if not chunked and length is not None:
        tokens = max(tokens, length)
    blocks = None
    if chance(0.85):
        blocks = -(-(length or 70) // block_size) + 1 + int(rng.integers(0, 40 // block_size + 2))
    threshold = int(rng.integers(1, 20)) if chance(0.3) else 0
    return SchedulerConfiguration(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        num_gpu_blocks=blocks,
        block_size=block_size,
        max_model_len=length,
        max_num_active_seqs=int(rng.integers(1, seqs + 1)) if chance(0.2) else None,
        long_prefill_token_threshold=min(threshold, length or threshold),
        long_prefill_token_threshold_adaptive=chance(0.3),
        enable_chunked_prefill=chunked,
        watermark=float(rng.choice([0.05, 0.2])) if chance(0.3) else 0.0,
        scheduler_reserve_full_isl=not chance(0.3),
        scheduling_policy="priority" if chance(0.35) else "fcfs",
        enable_prefix_caching=chance(0.6),
        async_scheduling=chance(0.5),
        max_num_queued_reqs=int(rng.integers(0, 20)) if chance(0.15) else None,
        max_num_queued_tokens=int(rng.integers(0, 400)) if chance(0.15) else None,
        max_loras=int(rng.integers(1, 4)) if chance(0.15) else None,
    )


def draw_requests(rng: np.random.Generator, count: int) -> Requests:
    """Bursts and gaps, some with common prefixes, priorities, adapters and impatient clients."""
    gaps = rng.exponential(rng.choice([0.002, 0.02, 0.1]), count)
    gaps[rng.random(count) < 0.2] = 0.0
    gaps[rng.random(count) < 0.05] += 1.0
    arrival = np.cumsum(gaps) - gaps[0]
    prompt = rng.integers(1, rng.choice([8, 40, 60]), count)
    grouped = rng.random(count) < rng.choice([0.0, 0.6])
    impatient = rng.random(count) < rng.choice([0.0, 0.3])
    adapters = rng.random(count) < rng.choice([0.0, 0.7])
    return make_requests(
        arrival,
        prompt,
        rng.integers(1, rng.choice([3, 15, 40]), count),
        priority=rng.integers(0, 3, count),
        prefix_group=np.where(grouped, rng.integers(0, 3, count), -1),
        shared_prefix_tokens=np.where(grouped, np.minimum(prompt, rng.integers(1, 50, count)), 0),
        cancel_seconds=np.where(impatient, arrival + rng.exponential(0.2, count), NEVER),
        adapter=np.where(adapters, rng.integers(0, 5, count), -1),
    )


def draw_case(seed: int, count: int = 40) -> dict[str, object] | None:
    """One case; None where the configuration can never serve the requests."""
    rng = np.random.default_rng(seed)
    configuration = draw_configuration(rng)
    requests = draw_requests(rng, count)
    if configuration.num_gpu_blocks is None:  # what would hit depends on them
        requests.prefix_group[:] = -1
        requests.shared_prefix_tokens[:] = 0
    options: dict[str, object] = {
        "concurrency": int(rng.integers(1, 10)) if rng.random() < 0.2 else None,
        "timeout_seconds": float(rng.exponential(0.5)) if rng.random() < 0.2 else None,
    }
    if configuration.problems():
        return None
    try:
        check_fit(requests, configuration)
    except ImpossibleConfiguration:
        return None
    return {"requests": requests, "configuration": configuration, **options}


def numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def expected_scrape(result: Result, time: float) -> dict[str, object]:
    """What /metrics says at a time, from the reference's own record of every token."""
    done = [
        (row, outputs)
        for row, outputs in zip(result.steps, result.outputs, strict=True)
        if row["end_seconds"] <= time
    ]
    tokens = [token for _, outputs in done for token in outputs]
    shown = [(running, waiting) for at, running, waiting in result.gauges if at <= time]
    running, waiting = shown[-1] if shown else (0, 0)
    by_index = {r.index: r for r in result.requests}
    first = [by_index[i] for i, is_first, _ in tokens if is_first]
    itl = [gap for _, is_first, gap in tokens if not is_first]
    iterations = [
        len(outputs)
        + sum(by_index[i].prompt - (by_index[i].cached or 0) for i, f, _ in outputs if f)
        for _, outputs in done
        if outputs
    ]
    return {
        "steps_all": len(done),
        "steps_observed": len(iterations),
        "iteration_tokens_sum": sum(iterations),
        "iteration_tokens_buckets": [sum(v <= e for v in iterations) for e in TOKENS_EDGES]
        + [len(iterations)],
        "itl_seconds_count": len(itl),
        "itl_seconds_buckets": [sum(v <= e for v in itl) for e in ITL_EDGES] + [len(itl)],
        "itl_seconds_sum": sum(itl),
        "prompt_tokens": sum(r.prompt for r in first),
        "prompt_tokens_computed": sum(r.prompt - (r.cached or 0) for r in first),
        "generation_tokens": len(tokens),
        "running": running,
        "waiting": waiting,
        **{
            f"rejected_{limit}": sum(
                r.rejected_for == limit and r.arrival <= time for r in result.requests
            )
            for limit in ("reqs", "tokens")
        },
    }


def compare(case: dict[str, object]) -> None:
    """Run a case through the reference and the engine; raises AssertionError on a difference."""
    requests: Requests = case["requests"]  # type: ignore[assignment]
    configuration: SchedulerConfiguration = case["configuration"]  # type: ignore[assignment]
    reference = Reference(
        requests,
        configuration,
        LAW,
        concurrency=case["concurrency"],  # type: ignore[arg-type]
        timeout=case["timeout_seconds"],  # type: ignore[arg-type]
    )

    def run() -> Run:
        return simulate(
            requests,
            configuration,
            LAW,
            concurrency=case["concurrency"],  # type: ignore[arg-type]
            timeout_seconds=case["timeout_seconds"],  # type: ignore[arg-type]
            observe=Observe(scrapes, ITL_EDGES, TOKENS_EDGES),
            per_step=True,
        )

    scrapes = np.zeros(0)
    try:
        expected = reference.run()
    except NoProgress:
        with pytest.raises(NoVerdict):
            run()
        return
    last = expected.steps[-1]["end_seconds"] if expected.steps else 1.0
    scrapes = np.linspace(0.0, last * 1.01, 7)
    outcome = run()
    steps = outcome.steps
    for i, (mine, theirs) in enumerate(
        zip(steps.iter_rows(named=True), expected.steps, strict=False)
    ):
        if configuration.num_gpu_blocks is None:
            mine["free_blocks"] = theirs["free_blocks"]
        assert mine == {k: theirs[k] for k in mine}, f"step {i}"
    assert steps.height == len(expected.steps)
    rows = outcome.requests
    wanted = expected.requests
    assert rows["status"].to_list() == [r.status for r in wanted]
    for name, values in (
        ("arrival_seconds", [r.arrival for r in wanted]),
        ("first_scheduled_seconds", [r.first_scheduled for r in wanted]),
        ("first_token_seconds", [r.first_token for r in wanted]),
        ("end_seconds", [r.end for r in wanted]),
        ("generated_tokens", [r.output for r in wanted]),
        ("cached_tokens", [r.cached for r in wanted]),
        ("preemptions", [r.preemptions for r in wanted]),
    ):
        np.testing.assert_array_equal(
            rows[name].to_numpy().astype(float), numbers(values), err_msg=name
        )
    assert outcome.summary["empty_schedules"] == expected.empty_schedules
    grouped = requests.prefix_group.max() >= 0
    caching = configuration.enable_prefix_caching and configuration.num_gpu_blocks is not None
    if caching and (grouped or outcome.preemptions.any()):  # blocks are identified
        assert outcome.summary["evicted_cached_blocks"] == expected.evicted
    for row in outcome.scrapes.iter_rows(named=True):
        said = expected_scrape(expected, row["time_seconds"])
        row["waiting"] = row["waiting_capacity"] + row["waiting_deferred"]
        for name, value in said.items():
            if name == "itl_seconds_sum":
                np.testing.assert_allclose(row[name], value, rtol=1e-9, atol=1e-9)
            else:
                assert row[name] == value, (name, row["time_seconds"])
    assert all(r.end is not None for r in wanted if r.status == FINISHED)

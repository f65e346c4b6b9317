"""Recorded GPU runs: fitted on the first half by engine time, judged on the second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from recorded_runs import AT, GPU_RUNS, GpuRun, first_half, gpu_run

from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.fits import Calibration, Fit
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.kv_cache import num_gpu_blocks


def blocks_of(run: GpuRun) -> tuple[int | None, str]:
    """KV blocks as recorded; where they are not, whether VRAM shows that they never bind."""
    if "kv_cache" in run.meta:
        blocks = int(run.meta["kv_cache"]["num_gpu_blocks"])
        return blocks, f"{blocks} blocks, as recorded"
    said, row = run.meta["engine_kwargs"], run.server
    least = num_gpu_blocks(
        gpu(str(row.gpu)),
        model(str(row.model)),
        max_num_seqs=said["max_num_seqs"],
        max_num_batched_tokens=said["max_num_batched_tokens"],
        gpu_memory_utilization=0.9,
    )
    longest = int((run.requests.prompt_tokens + run.requests.generation_tokens).max())
    most = said["max_num_seqs"] * longest
    held = (least - 1) * 16
    words = f"VRAM holds {held:,} tokens, {said['max_num_seqs']} of the longest need {most:,}"
    if held >= most:
        return None, f"{words}: never binds"
    # not all that run are as long as the longest: the sum of the longest that can run together
    together = np.sort(run.requests.prompt_tokens + run.requests.generation_tokens)
    most = int(together[-said["max_num_seqs"] :].sum())
    words = f"VRAM holds {held:,} tokens, the {said['max_num_seqs']} longest need {most:,}"
    return (None, f"{words}: never binds") if held >= most else (least, f"{words}: may bind")


def fitted(run: GpuRun, configuration: SchedulerConfiguration) -> Calibration:
    """From the first half."""
    observed = first_half(run)
    prior = prior_of(run.server, observed, configuration)
    return calibrate(observed, configuration, prior, at=AT)


def second_half_error(run: GpuRun, configuration: SchedulerConfiguration, fit: Fit) -> float:
    """Median absolute relative end-to-end error of the completions of the second half."""
    replayed = (
        simulate(run.requests, configuration, fit.step_time).requests["e2e_seconds"].to_numpy()
    )
    seen = (run.rows["last_token_ts"] - run.rows["queued_ts"]).to_numpy()
    later = run.rows["last_token_ts"].to_numpy() > run.half
    off = np.abs(replayed + fit.ttft_overhead_seconds - seen) / seen
    return float(np.median(off[later]))


def report(shared_data: Path) -> bool:
    """Print the figures; whether they reach the goals."""
    good = True
    for name in GPU_RUNS:
        run = gpu_run(shared_data, name)
        blocks, words = blocks_of(run)
        configuration = run.configuration(blocks)
        found = fitted(run, configuration)
        errors = [second_half_error(run, configuration, fit) for fit in found.fits]
        good &= errors[0] <= 0.03 and found.identifiable
        print(f"{name}: {words}")
        for fit, error in zip(found.fits, errors, strict=True):
            print(f"  {fit.variant:16s} loss {fit.loss:5.2f}  second half {100 * error:.2f} %")
        if blocks is None:
            continue
        halved = fitted(run, run.configuration(blocks // 2))
        good &= not halved.identifiable
        print(f"  half the blocks: {'accepted' if halved.identifiable else halved.why_not}")
    print("  goal: at most 3 % for the best variant; half the blocks refused")
    return good

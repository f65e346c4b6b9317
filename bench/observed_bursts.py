"""Forecasts of bursty traffic: requests rebuilt from pages against the true ones, other settings.

    python bench/observed_bursts.py --seed 9100 --cases 8 [--half b] [--kinds code,gamma] [--list]

Each case is a server of a hidden engine (bench/advice_truth/cases.py) that is sent the Azure code
trace, ServeGen, Gamma gaps whose CV changes between 1 and 4 (BurstGPT's form), Poisson arrivals, or
half as many more of these ("hot"), without a drift. Half ``a`` of a trace (ServeGen: its first
week) is what was looked at while choosing; ``b`` is what is reported. Laws are fitted to the pages
alone; every setting is run with the true requests under the hidden engine, and forecast with the
rebuilt ones under the fitted step-time models.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from advice_truth import cases as advice_cases
from advice_truth.shown import question_of
from truth_judge.whatif import Runs

from driftwatch.errors import NoVerdict
from driftwatch.fleet.hidden_engine import configuration_of, disturbance_of, step_time_of
from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.prepare import as_it_came
from driftwatch.recommend.scenarios import Scenario, configurations_of
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

ROOT = Path(__file__).resolve().parents[1]

KINDS = ("code", "servegen", "gamma", "poisson", "hot")
LASTING = 3890.0
WARM_SECONDS = 1200.0
TRACES = Path(tempfile.gettempdir()) / "driftwatch-observed-bursts"
Figures = tuple[float, float]  # share in target, p95 of TTFT


@cache
def trace(kind: str, half: str) -> Path:
    """A request log of one kind: half of an Azure trace, or its lengths at drawn times."""
    name = "code" if kind == "code" else "conv"
    path = ROOT.parent / "shared" / "data" / "traces" / f"azure_2023_{name}.csv.gz"
    rows = pl.read_csv(path)
    at = rows["TIMESTAMP"].str.to_datetime("%Y-%m-%d %H:%M:%S%.f").dt.epoch("us").to_numpy() / 1e6
    middle = len(rows) // 2
    part = slice(0, middle) if half == "a" else slice(middle, None)
    times, many = at[part], len(at[part])
    rng = np.random.default_rng(5 if half == "a" else 6)
    evenly = np.cumsum(rng.exponential(1.0, many))
    cvs = np.exp(rng.uniform(0.0, np.log(4.0), many // 250 + 1)).repeat(250)[:many]
    if kind in ("poisson", "hot"):
        times = evenly
    if kind == "gamma":
        times = np.cumsum(rng.gamma(1.0 / cvs**2, cvs**2))
    TRACES.mkdir(exist_ok=True)
    made = TRACES / f"{kind}-{half}.parquet"
    pl.DataFrame(
        {
            "arrival_seconds": times - times[0],
            "prompt_tokens": rows["ContextTokens"].to_numpy().clip(1)[part],
            "generation_tokens": rows["GeneratedTokens"].to_numpy().clip(1)[part],
        }
    ).write_parquet(made)
    return made


def case_of(seed: int, kind: str, half: str, number: int) -> advice_cases.Case:
    """One server; independent of every other."""
    rng = np.random.default_rng([seed, KINDS.index(kind) + 1, ord(half), number])
    while (case := _drawn(rng, kind, half)) is None:
        pass
    return case


def _drawn(rng: np.random.Generator, kind: str, half: str) -> advice_cases.Case | None:
    model, gpu, gpus = advice_cases.POOLS[rng.integers(len(advice_cases.POOLS))]
    seqs = int(rng.choice(advice_cases.SEQS))
    tokens = int(rng.choice([t for t in advice_cases.TOKENS if t >= seqs]))
    traffic: dict[str, Any] = {"requests_per_second": 2.0, "prefix_hit_ratio": 0.0}
    said: dict[str, Any] = {
        "name": "bursts",
        "title": "a server of bursty traffic",
        "duration": f"{LASTING + 10:.0f}s",
        "pool": {
            "replicas": 1,
            "model": model,
            "gpu": gpu,
            "gpus_per_replica": gpus,
            "dcgm": False,
            "serving": {
                "max_num_seqs": seqs,
                "max_num_batched_tokens": tokens,
                "max_model_len": 32768,
            },
        },
        "traffic": traffic,
        "engine": {
            "times_roofline": float(rng.uniform(1.0, 1.5)),
            "quadratic_ratio": float(rng.uniform(0.5, 1.5)),
            "jitter_sigma": float(rng.uniform(0.03, 0.1)),
            "wander_sd_ratio": float(rng.uniform(0.01, 0.04)),
            "stalls_per_day": 0.0,
        },
        "truth": {"baseline": {"at": "2m", "until": "1700s"}, "effects": []},
    }
    if kind == "servegen":
        week = 0 if half == "a" else 7
        traffic |= {"source": "servegen", "offset": f"{week * 86400 + rng.integers(168) * 3600}s"}
    else:
        traffic["path"] = str(trace(kind, half))
    said["pool"]["serving"]["max_model_len"] = advice_cases._longest(said)
    before = advice_cases._before(said, rng)
    if before is None:
        return None
    traffic["requests_per_second"] = before[0] * (1.5 if kind == "hot" else 1.0)
    said["pool"]["slo"] = before[1]
    asked = 60.0 * float(rng.integers(40, 62))
    seed = int(rng.integers(2**31))
    return advice_cases.Case(said, seed, asked, (1.0, 1.0, 1.0), True)


def settings(today: SchedulerConfiguration) -> Iterator[tuple[str, SchedulerConfiguration]]:
    """Today's, and one knob at a time."""
    yield "today", today
    seqs, budget = today.max_num_seqs, today.max_num_batched_tokens
    for times in (0.25, 0.5, 2.0, 4.0):
        if 8 <= (other := int(seqs * times)) <= budget:
            yield f"max_num_seqs x{times:g}", replace(today, max_num_seqs=other)
    for times in (0.25, 4.0):
        if (other := int(budget * times)) >= max(seqs, 256):
            yield (
                f"max_num_batched_tokens x{times:g}",
                replace(today, max_num_batched_tokens=other),
            )


def figures(
    case: advice_cases.Case,
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    window: tuple[float, float],
    disturbance: Disturbance | None = None,
) -> Figures:
    """Of the requests that arrive in the window."""
    slo = case.scenario.pool.slo
    assert slo is not None
    run = simulate(
        requests, configuration, step_time, disturbance=disturbance, until_seconds=window[1] + 600.0
    )
    rows = run.requests.filter(pl.col("arrival_seconds").is_between(*window))
    ttft = rows["ttft_seconds"].fill_null(np.inf).to_numpy()
    later = rows["e2e_seconds"].fill_null(np.inf).to_numpy() - np.where(np.isinf(ttft), 0.0, ttft)
    tpot = later / np.maximum(rows["generated_tokens"].to_numpy() - 1, 1)
    good = (ttft <= (slo.ttft_seconds or np.inf)) & (tpot <= (slo.tpot_seconds or np.inf))
    return float(good.mean()), float(np.quantile(ttft, 0.95, method="lower"))


def compared(case: advice_cases.Case) -> list[dict[str, float]]:
    """Forecast less truth for every setting; empty where nothing can be forecast."""
    question, scenario = question_of(case), case.scenario
    try:
        observed = observed_from_minutes(question.minutes, question.server)
        known = configurations_of(question.server, observed).configurations[0]
        prior = prior_of(question.server, observed, known)
        made = calibrate(observed, known, prior, at=question.at)
    except NoVerdict:
        return []
    best = Scenario(known, made.best.step_time, made.best.variant, made.best)
    rebuilt = as_it_came(observed, made, best, 0).requests
    runs = Runs(scenario, case.seed, (1800.0, LASTING), (0,))
    life, sent = runs._lives(0)[0], runs.sent(0)
    began = (observed.start - scenario.start).total_seconds()
    low = min(WARM_SECONDS, began)
    at = sent.arrival_seconds - (began - low)
    true = replace(sent, arrival_seconds=at).take((at >= 0) & (at < low + observed.seconds))
    disturbance = disturbance_of(scenario, case.seed, 0)
    disturbance = replace(disturbance, factor_seconds=disturbance.factor_seconds - (began - low))
    step_time = step_time_of(scenario.engine, scenario.pool, life.factor)
    found = []
    for _, setting in settings(configuration_of(scenario, life.serving)):
        was = figures(case, true, setting, step_time, (low, low + observed.seconds), disturbance)
        window = (float(np.nextafter(0.0, 1.0)), observed.seconds)
        said = np.mean(
            [figures(case, rebuilt, setting, f.step_time, window) for f in made.fits], axis=0
        )
        off = float(np.log(said[1] / was[1])) if np.isfinite([said[1], was[1]]).all() else np.nan
        found.append({"in_target": float(said[0] - was[0]), "ttft_p95_log": off})
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=9100)
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--half", choices=("a", "b"), default="b")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    for kind in asked.kinds.split(","):
        rows = []
        for number in range(asked.cases):
            found = compared(case_of(asked.seed, kind, asked.half, number))
            rows += found
            if asked.list:
                print(kind, number, [f"{one['in_target']:+.3f}" for one in found], flush=True)
        frame = pl.DataFrame(rows).fill_nan(None)
        off, ttft = frame["in_target"], frame["ttft_p95_log"].drop_nulls()
        said = {
            "forecasts": len(frame),
            "in_target_mean": off.mean(),
            "in_target_mean_absolute": off.abs().mean(),
            "in_target_p90_absolute": off.abs().quantile(0.9),
            "ttft_p95_log_median": ttft.median(),
            "ttft_p95_log_p90_absolute": ttft.abs().quantile(0.9),
        }
        print(kind, json.dumps({name: round(float(v), 3) for name, v in said.items()}), flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()

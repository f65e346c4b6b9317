"""How like the true traffic the rebuilt one is: both replayed under the same hidden engine.

    python bench/observed.py --seed 5 --cases 24 [--list]

Each case is a drifting server of bench/recommend.py. The requests that it was really sent and those
that observed_from_minutes() makes of its pages, are run through its own hidden engine with its own
settings; nothing is fitted. What differs is what /metrics does not tell.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from advice_truth.cases import DRIFT_AT, LASTING, Case, case_of
from advice_truth.shown import question_of
from truth_judge.whatif import Runs

from driftwatch.errors import NoVerdict
from driftwatch.fleet.hidden_engine import configuration_of, step_time_of
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.requests import Requests

ROOT = Path(__file__).resolve().parents[1]

BEFORE_SECONDS = 1200.0  # the true requests run in from here


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one set of requests inside the window."""

    requests: int
    prompt_tokens: float
    generation_tokens: float
    generation_tokens_per_second: float
    running_requests: float
    ttft_seconds: float
    in_target_ratio: float


def seen(requests: Requests, case: Case, low: float, high: float) -> Seen:
    """Replay under the hidden engine; figures of the arrivals of [low, high)."""
    pool = case.scenario.pool
    life = Runs(case.scenario, case.seed, (DRIFT_AT, DRIFT_AT + LASTING), (0,))._lives(0)[0]
    rows = simulate(
        requests,
        configuration_of(case.scenario, life.serving),
        step_time_of(case.scenario.engine, pool, life.factor),
        seed=0,
    ).requests
    at, ttft, e2e, tokens = (
        rows[name].to_numpy()
        for name in ("arrival_seconds", "ttft_seconds", "e2e_seconds", "generated_tokens")
    )
    first, last = at + ttft, np.where(np.isfinite(e2e), at + e2e, np.inf)
    inside = (at >= low) & (at < high)
    lived = np.clip(np.minimum(last, high) - np.maximum(first, low), 0, None)
    whole = np.maximum(last - first, 1e-9)
    tpot = (e2e - ttft) / np.maximum(tokens - 1, 1)
    slo = pool.slo
    assert slo is not None
    good = (ttft <= (slo.ttft_seconds or np.inf)) & (tpot <= (slo.tpot_seconds or np.inf))
    kept = requests.take((requests.arrival_seconds >= low) & (requests.arrival_seconds < high))
    return Seen(
        int(inside.sum()),
        float(kept.prompt_tokens.mean()),
        float(kept.generation_tokens.mean()),
        float(np.nansum(np.minimum(lived / whole, 1.0) * tokens) / (high - low)),
        float(np.nansum(lived) / (high - low)),
        float(np.nanmean(ttft[inside])),
        float(good[inside].mean()),
    )


def compared(seed: int, number: int) -> tuple[Seen, Seen, str] | None:
    """True and rebuilt; None where nothing can be rebuilt."""
    case = case_of(seed, number)
    question = question_of(case)
    try:
        found = observed_from_minutes(question.minutes, question.server)
    except NoVerdict:
        return None
    sent = Runs(case.scenario, case.seed, (DRIFT_AT, DRIFT_AT + LASTING), (0,)).sent(0)
    began = (found.start - case.scenario.start).total_seconds()
    low = min(BEFORE_SECONDS, began)
    at = sent.arrival_seconds - (began - low)
    true = replace(sent, arrival_seconds=at).take((at >= 0) & (at < low + found.seconds))
    # those that were there before arrive at 0; the others later
    rebuilt = seen(found.requests, case, np.nextafter(0.0, 1.0), found.seconds)
    about = f"{case.scenario.traffic.source} x{case.drift} saturated {found.saturated}"
    return seen(true, case, low, low + found.seconds), rebuilt, about


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    rows = []
    for number in range(asked.cases):
        one = compared(asked.seed, number)
        if one is None:
            continue
        true, rebuilt, about = one
        off = {
            name: getattr(rebuilt, name) / max(getattr(true, name), 1e-9) - 1
            for name in Seen.__slots__
        }
        off["in_target_ratio"] = rebuilt.in_target_ratio - true.in_target_ratio
        rows.append(off)
        if asked.list:
            said = " ".join(f"{name} {value:+.3f}" for name, value in off.items())
            print(f"{number:3} {about} | {said}", flush=True)
    frame = pl.DataFrame(rows)
    figures = {
        name: {
            "median": round(float(frame[name].median() or 0.0), 4),  # type: ignore[arg-type]
            "median_absolute": round(float(frame[name].abs().median() or 0.0), 4),  # type: ignore[arg-type]
            "p90_absolute": round(float(frame[name].abs().quantile(0.9) or 0.0), 4),
        }
        for name in frame.columns
    }
    print(json.dumps({"cases": len(rows), **figures}, indent=1))


if __name__ == "__main__":
    main()

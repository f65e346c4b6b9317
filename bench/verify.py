"""Verdicts on changes whose truth is known: false verdicts where nothing changed, and coverage.

    python bench/verify.py --seed 5 --servers 12 [--hours 24] [--json FILE]

Servers of the replayable fleet (hidden law, step jitter, a wander of 3.5 % that forgets in 1.5 h,
stalls, real arrivals and lengths over a day's season). Each is run twice with the same requests and
disturbances: as it is, and with a change. Verifications are opened at times of the day where

* nothing changed (A/A): every PASS of an improvement and every FAIL is false; the looks are those
  of the service, so the rate is over all looks of a verification;
* the server went over to the changed run: the truth is the unchanged run in the same minutes.

Printed: false verdicts with their 95 % interval (Wilson), verdicts of true changes, and how often
the 95 % intervals of each figure cover the truth.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

from driftwatch.diagnose.evidence_table import evidence_table, minute_windows  # noqa: E402
from driftwatch.model import Slo  # noqa: E402
from driftwatch.service.configured import plan_of_rules  # noqa: E402
from driftwatch.signals.minutes import minutes  # noqa: E402
from driftwatch.testing.fleet.generate import generate  # noqa: E402
from driftwatch.testing.fleet.naming import targets_of  # noqa: E402
from driftwatch.testing.fleet.scenario import Scenario  # noqa: E402
from driftwatch.verify.compare import compare  # noqa: E402
from driftwatch.verify.figures import parts  # noqa: E402
from driftwatch.verify.verification import Change, Verification  # noqa: E402
from driftwatch.verify.verified import (  # noqa: E402
    LOOKS,
    look,
    looks_done,
    minutes_of_change,
)

SLO = Slo(1.0, 0.05)
# name, changes of the scenario, what its verdict should be
CHANGES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("engine 15 % slower", {"engine": {"times_roofline": 1.265}}, "FAIL"),
    ("engine 30 % faster", {"engine": {"times_roofline": 1.0, "quadratic_ratio": 0.5}}, ""),
    ("max_num_seqs to a quarter", {"serving": {"max_num_seqs": 0.25}}, "FAIL"),
)
SOURCES = ("azure_conv", "azure_code", "servegen")


@dataclass(slots=True)
class Tally:
    """What came of it."""

    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    covered: dict[str, list[int]] = field(default_factory=dict)
    width: dict[str, list[float]] = field(default_factory=dict)

    def verdict(self, kind: str, said: str) -> None:
        self.verdicts.setdefault(kind, Counter())[said] += 1

    def cover(self, kind: str, name: str, hit: bool) -> None:
        found = self.covered.setdefault(f"{kind}: {name}", [0, 0])
        found[0] += int(hit)
        found[1] += 1


def scenario_of(seed: int, number: int, hours: float) -> Scenario:
    """One server with a load of its own."""
    rng = np.random.default_rng([seed, number])
    seqs = int(rng.choice([16, 32, 64, 128]))
    return Scenario.model_validate(
        {
            "name": f"verify-{number}",
            "title": "a day with nothing wrong",
            "duration": f"{hours:g}h",
            "start": "2026-11-17T00:00:00Z",
            "scrape": {"interval": "15s"},
            "pool": {
                "name": "chat-8b",
                "replicas": 1,
                "dcgm": False,
                "serving": {"max_num_seqs": seqs, "max_num_batched_tokens": 2048},
            },
            "traffic": {
                "source": str(rng.choice(SOURCES)),
                "requests_per_second": float(rng.uniform(0.05, 0.12) * seqs),
                "season": {"peak_to_trough": float(rng.uniform(1.5, 4.0))},
            },
            "truth": {},
        }
    )


def changed_scenario(made: Scenario, change: dict[str, Any]) -> Scenario:
    """The same server and requests with another engine or setting."""
    engine = made.engine.model_copy(update=change.get("engine", {}))
    told = {
        name: max(1, round(getattr(made.pool.serving, name) * factor))
        for name, factor in change.get("serving", {}).items()
    }
    serving = made.pool.serving.model_copy(update=told)
    pool = made.pool.model_copy(update={"serving": serving})
    return made.model_copy(update={"engine": engine, "pool": pool})


def minutes_of(made: Scenario, seed: int) -> pl.DataFrame:
    """What driftwatch keeps of the server's pages."""
    scrapes = pl.concat([chunk.scrapes for chunk in generate(made, seed)])
    plan = plan_of_rules(())
    frames = plan.frames(targets_of(made))
    end = made.start + timedelta(seconds=made.duration)
    rows = evidence_table(
        scrapes,
        minute_windows(frames.serving.select("instance", "engine", "pool"), made.start, end),
        kind="chained",
        cut=False,
        serving=frames.serving,
        inputs=plan.inputs,
    ).rows
    return minutes(rows)


def openings(made: Scenario, rng: np.random.Generator, times: int) -> Iterator[Any]:
    """Ends of minutes at which something may have changed."""
    whole = made.duration / 60
    for _ in range(times):
        yield made.start + timedelta(minutes=int(rng.uniform(whole * 0.25, whole * 0.75)))


def verdict_of(
    before: pl.DataFrame, after: pl.DataFrame, at: Any, until: Any, forecast: Any = None
) -> str:
    """As the service comes to it: look by look."""
    one = Verification("x", "h", "0", "p", Change("knobs", at, {"max_num_seqs": ("1", "2")}), at)
    one = Verification(**{**{f: getattr(one, f) for f in one.__slots__}, "forecast": forecast})
    ends = after["end"].to_list()
    for done, needed in enumerate(LOOKS, start=1):
        if needed > len(ends):
            break
        now = ends[needed - 1]
        part = after.filter(pl.col("end") <= now)
        assert looks_done(len(part)) == done
        found = look(one, before, part, now, slo=SLO)
        if found.closed_at is not None:
            return found.verdict
    return "open"


def aa(tally: Tally, told: pl.DataFrame, at: Any, until: Any) -> None:
    """Nothing changed."""
    before, after = minutes_of_change(told, at, until)
    if not len(before) or not len(after):
        return
    tally.verdict("A/A, nobody advised", verdict_of(before, after, at, until))
    promise = {"in_target_ratio": 0.999, "today": {"in_target_ratio": 0.6}}
    tally.verdict("A/A, 60 → 99.9 % promised", verdict_of(before, after, at, until, promise))
    for hours in (0.5, 2.0):
        part = after.filter(pl.col("end") <= at + timedelta(hours=hours))
        found = compare(before, part, slo=SLO)
        for effect in found.effects if found.load == "same" else ():
            hit = effect.low <= 0 <= effect.high
            tally.cover(f"A/A {hours:g} h", effect.name, hit)


def changed(
    tally: Tally, kind: str, was: pl.DataFrame, then: pl.DataFrame, at: Any, until: Any
) -> None:
    """Went over to the changed run; the truth is what would have been in the same minutes."""
    both = pl.concat([was.filter(pl.col("end") <= at), then.filter(pl.col("end") > at)])
    before, after = minutes_of_change(both, at, until)
    if not len(before) or not len(after):
        return
    same = after.select("end").join(was, on="end", how="left")
    gained = in_target(after) - in_target(same)
    truth = "better" if gained >= 0.02 else "worse" if gained <= -0.02 else "as good"
    tally.verdict(f"{kind}, truly {truth}", verdict_of(before, after, at, until))
    found = compare(before, after, slo=SLO)
    if found.load != "same" or not found.enough:
        return
    share = found.matched.weights[found.matched.after_cell]
    share = share / np.bincount(found.matched.after_cell)[found.matched.after_cell]
    same = found.matched.after.select("end").join(was, on="end", how="left")
    real, unchanged = parts(found.matched.after, SLO), parts(same, SLO)
    for effect in found.effects:
        if effect.name not in real or effect.name not in unchanged:
            continue
        one, other = (
            float((share * p.numerator).sum() / (share * p.denominator).sum())
            for p in (unchanged[effect.name], real[effect.name])
        )
        tally.cover(kind, effect.name, effect.low - 1e-12 <= other - one <= effect.high + 1e-12)


def in_target(told: pl.DataFrame) -> float:
    """Share of requests in target: of the target that fewest meet."""
    known = parts(told, SLO)
    shares = [known[f"{name}_in_target_ratio"] for name in ("ttft", "tpot")]
    return min(float(p.numerator.sum() / p.denominator.sum()) for p in shares)


def wilson(hits: int, of: int) -> str:
    """A share with its 95 % interval."""
    if not of:
        return "none"
    z, p = 1.96, hits / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = ((middle + s * half) / (1 + z * z / of) for s in (-1, 1))
    return f"{100 * p:.1f} % [{100 * max(0, low):.1f}, {100 * high:.1f}] of {of}"


def main() -> None:
    """Run it."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seed", type=int, default=5)
    asked.add_argument("--servers", type=int, default=12)
    asked.add_argument("--hours", type=float, default=24.0)
    asked.add_argument("--times", type=int, default=6, help="openings of a server")
    asked.add_argument("--json", type=Path)
    said = asked.parse_args()
    tally = Tally()
    for number in range(said.servers):
        made = scenario_of(said.seed, number, said.hours)
        rng = np.random.default_rng([said.seed, number, 1])
        was = minutes_of(made, said.seed + number)
        until = made.start + timedelta(seconds=made.duration)
        times = list(openings(made, rng, said.times))
        for at in times:
            aa(tally, was, at, min(until, at + timedelta(hours=6)))
        name, change, _ = CHANGES[number % len(CHANGES)]
        then = minutes_of(changed_scenario(made, change), said.seed + number)
        for at in times:
            changed(tally, name, was, then, at, min(until, at + timedelta(hours=6)))
        print(f"{number + 1}/{said.servers} {made.pool.serving.max_num_seqs}", file=sys.stderr)
        if said.json:
            said.json.write_text(json.dumps(document(tally), sort_keys=True, indent=1))
    report(tally)


def document(tally: Tally) -> dict[str, Any]:
    """The counts as JSON values."""
    return {"verdicts": tally.verdicts, "covered": tally.covered}


def report(tally: Tally) -> None:
    """The counts as text."""
    told = tally.verdicts
    print("verdicts")
    for kind, counts in told.items():
        print(f"  {kind:32s} {dict(counts)}")
    nobody, promised = told["A/A, nobody advised"], told["A/A, 60 → 99.9 % promised"]
    print(f"false PASS, nobody advised   {wilson(nobody['PASS'], nobody.total())}")
    print(f"false FAIL, nobody advised   {wilson(nobody['FAIL'], nobody.total())}")
    print(f"false PASS of a promise      {wilson(promised['PASS'], promised.total())}")
    print("intervals that cover the truth (95 % wanted)")
    for name, (hits, of) in sorted(tally.covered.items()):
        print(f"  {name:58s} {wilson(hits, of)}")


if __name__ == "__main__":
    main()

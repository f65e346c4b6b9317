"""Verdicts on changes whose truth is known: false verdicts, power by hours, and coverage.

    python bench/verify.py --seed 303 --servers 12 [--changed 4] [--json FILE]

Servers of the replayable fleet (1.8 to 2.4 times as slow as the roofline, step jitter, a wander
of 2 to 6 % that forgets in half an hour to four hours, stalls, real arrivals and lengths over two
days' season). Each is run with the same requests and disturbances as it is, and with steps 0.6 to
1.4 times as long. Verifications are opened at times of the day where

* nothing changed (A/A): every PASS of an improvement and every FAIL is false; the looks are those
  of the service, so the rate is over all looks of a verification;
* the server went over to the changed run.

Each is judged without targets (a request's time decides) and with TTFT 1 s and TPOT 50 ms. The
truth of a verdict is what the unchanged run had in the same minutes; that of an interval is both
runs in all minutes of two days that lie in the same cells, weighed as the comparison weighs them.

Printed: verdicts by hours of traffic after the change, false verdicts with their 95 % interval
(Wilson), and how often the 95 % intervals of each figure hold the truth.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from driftwatch.diagnose.evidence_table import evidence_table, minute_windows
from driftwatch.fleet.generate import generate
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import targets_of
from driftwatch.model import Slo
from driftwatch.service.configuration import plan_of_rules
from driftwatch.signals.minutes import minutes
from driftwatch.verify.compare import Comparison, compare
from driftwatch.verify.figures import Parts, parts
from driftwatch.verify.matching import BINS, bins_of, comparable, with_traffic
from driftwatch.verify.verdict import (
    LOOKS,
    look,
    minutes_of_change,
)
from driftwatch.verify.verification import Change, Verification

ROOT = Path(__file__).resolve().parents[1]

SLO = Slo(1.0, 0.05)
FACTORS = (0.6, 0.8, 0.9, 1.1, 1.2, 1.4)  # of every step's time
SOURCES = ("azure_conv", "azure_code", "servegen")
HOURS = (1, 3, 6, 24)
# a gain that never came
PROMISED = "A/A, 60 → 99.9 % in target promised"
NEVER_CAME = {"in_target_ratio": 0.999, "today": {"in_target_ratio": 0.6}}
COVERED_AT = (40, 160, 320, 1440)  # minutes after the change
_DAY = timedelta(hours=24)


@dataclass(slots=True)
class Tally:
    """What came of it.

    Attributes:
        verdicts: kind → verdict → minutes after which it fell, each.
        of: kind → verifications.
        covered: kind and figure → intervals that held the truth, and all.
    """

    verdicts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    of: Counter[str] = field(default_factory=Counter)
    covered: dict[str, list[int]] = field(default_factory=dict)

    def verdict(self, kind: str, said: str, after: int) -> None:
        self.of[kind] += 1
        self.verdicts.setdefault(kind, {}).setdefault(said, []).append(after)

    def cover(self, kind: str, name: str, hit: bool) -> None:
        found = self.covered.setdefault(f"{kind}: {name}", [0, 0])
        found[0] += int(hit)
        found[1] += 1


def scenario_of(seed: int, number: int, hours: float) -> Scenario:
    """One server with an engine and a load of its own."""
    rng = np.random.default_rng([seed, number, 7])
    seqs = int(rng.choice([16, 32, 64, 128]))
    slow = float(rng.uniform(1.8, 2.4))
    source = str(rng.choice(SOURCES))
    rate = float(rng.uniform(0.03, 0.08) * seqs)
    season = float(rng.uniform(1.5, 4.0))
    return Scenario.model_validate(
        {
            "name": f"verify-{number}",
            "title": "two days with nothing wrong",
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
                "source": source,
                "requests_per_second": rate,
                "season": {"peak_to_trough": season},
            },
            "engine": {
                "times_roofline": slow,
                "wander_sd_ratio": float(rng.uniform(0.02, 0.06)),
                "wander_correlation": f"{rng.uniform(30, 240):.0f}m",
            },
            "truth": {},
        }
    )


def with_steps(made: Scenario, factor: float) -> Scenario:
    """The same server and requests with steps that take so many times as long."""
    slow = made.engine.times_roofline * factor
    engine = made.engine.model_copy(update={"times_roofline": slow})
    return made.model_copy(update={"engine": engine})


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


def openings(made: Scenario, seed: int, number: int) -> tuple[list[datetime], list[datetime]]:
    """When something may have changed: six times of A/A, three of changes."""
    rng = np.random.default_rng([seed, number, 99])
    start = made.start
    same = [start + timedelta(minutes=int(rng.uniform(600, 2400))) for _ in range(6)]
    return same, [start + timedelta(minutes=int(rng.uniform(840, 1440))) for _ in range(3)]


def verdict_of(
    before: pl.DataFrame,
    after: pl.DataFrame,
    at: datetime,
    slo: Slo | None,
    forecast: dict[str, Any] | None = None,
) -> tuple[str, int]:
    """As the service comes to it, look by look; and after how many comparable minutes."""
    change = Change("knobs", at, {"max_num_seqs": ("1", "2")})
    one = Verification("x", "h", "0", "p", change, at, forecast=forecast)
    ends = after["end"].to_list()
    for needed in LOOKS:
        if needed > len(ends):
            break
        found = look(one, before, after[:needed], ends[needed - 1], slo=slo)
        if found.closed_at is not None:
            return found.verdict, needed
    return "open", len(ends)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """One server as it is, and as it would be with another engine."""

    was: pl.DataFrame
    then: pl.DataFrame

    def judged(self, tally: Tally, kind: str, at: datetime) -> None:
        """Went over at this time."""
        both = pl.concat(
            [self.was.filter(pl.col("end") <= at), self.then.filter(pl.col("end") > at)]
        )
        before, after = minutes_of_change(both, at, at + _DAY)
        if not len(before) or not len(after):
            return
        same = after.select("end").join(self.was, on="end", how="left")
        for slo in (None, SLO):
            truth = "" if kind == "A/A" else f" truly {_truth(same, after, slo)}"
            said = "no targets" if slo is None else "targets"
            tally.verdict(f"{kind}, {said}{truth}", *verdict_of(before, after, at, slo))
        if kind == "A/A":
            tally.verdict(PROMISED, *verdict_of(before, after, at, SLO, NEVER_CAME))
        for needed in COVERED_AT:
            if needed <= len(after):
                self._cover(tally, kind, needed, before, after[:needed])

    def _cover(
        self, tally: Tally, kind: str, needed: int, before: pl.DataFrame, after: pl.DataFrame
    ) -> None:
        found = compare(before, after, confidence=0.95)
        if found.load != "same" or not found.enough:
            return
        truth = self._effects(found, after)
        for effect in found.effects:
            if effect.name in truth:
                real = truth[effect.name]
                hit = effect.low - 1e-12 <= real <= effect.high + 1e-12
                tally.cover(f"{kind} {needed} min", effect.name, hit)

    def _effects(self, found: Comparison, after: pl.DataFrame) -> dict[str, float]:
        """Figure → true effect over all minutes of both runs in the cells that were compared."""
        whole = comparable(with_traffic(self.was))
        cells, own = (bins_of(frame, after, tuple(BINS)) for frame in (whole, found.matched.after))
        known = {
            tuple(one): int(cell) for one, cell in zip(own, found.matched.after_cell, strict=True)
        }
        cell = np.array([known.get(tuple(one), -1) for one in cells])
        was = whole.filter(pl.Series(cell >= 0))
        then = was.select("end").join(with_traffic(self.then), on="end", how="left")
        cell = cell[cell >= 0]
        share = (
            found.matched.weights / np.bincount(cell, minlength=len(found.matched.weights)).clip(1)
        )[cell]
        one, other = parts(was, None), parts(then, None)
        return {
            name: _mean(other[name], share) - _mean(one[name], share)
            for name in one
            if name in other
        }


def _mean(figure: Parts, share: Any) -> float:
    return float((share * figure.numerator).sum() / max((share * figure.denominator).sum(), 1e-12))


def _truth(same: pl.DataFrame, after: pl.DataFrame, slo: Slo | None) -> str:
    """What the change did in the very minutes after it, beyond what counts as a difference."""
    if slo is not None:
        gained = in_target(after) - in_target(same)
        return "better" if gained >= 0.02 else "worse" if gained <= -0.02 else "as good"
    one, other = (parts(told, None)["e2e_seconds_mean"] for told in (same, after))
    ratio = _mean(other, 1.0) / _mean(one, 1.0)
    return "worse" if ratio > 1.05 else "better" if ratio < 1 / 1.05 else "as good"


def in_target(told: pl.DataFrame) -> float:
    """Share of requests in target: of the target that fewest meet."""
    known = parts(told, SLO)
    return min(_mean(known[f"{name}_in_target_ratio"], 1.0) for name in ("ttft", "tpot"))


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
    asked.add_argument("--seed", type=int, default=303)
    asked.add_argument("--servers", type=int, default=12)
    asked.add_argument("--changed", type=int, default=4, help="servers with changes, of the first")
    asked.add_argument("--hours", type=float, default=48.0)
    asked.add_argument("--unchanged-times", type=int, default=5, help="openings of a server")
    asked.add_argument("--changed-times", type=int, default=2, help="the same, of each change")
    asked.add_argument("--json", type=Path)
    said = asked.parse_args()
    tally = Tally()
    for number in range(said.servers):
        made = scenario_of(said.seed, number, said.hours)
        drawn = said.seed * 1000 + number
        same, changes = openings(made, said.seed, number)
        was = minutes_of(made, drawn)
        for at in same[: said.unchanged_times]:
            Runs(was, was).judged(tally, "A/A", at)
        for factor in FACTORS if number < said.changed else ():
            runs = Runs(was, minutes_of(with_steps(made, factor), drawn))
            for at in changes[: said.changed_times]:
                runs.judged(tally, f"steps x {factor:g}", at)
        print(f"{number + 1}/{said.servers}", file=sys.stderr)
        if said.json:
            said.json.write_text(json.dumps(document(tally), sort_keys=True, indent=1))
    report(tally)


def document(tally: Tally) -> dict[str, Any]:
    """The counts as JSON values."""
    return {"verdicts": tally.verdicts, "of": tally.of, "covered": tally.covered}


def report(tally: Tally) -> None:
    """The counts as text."""
    print("verdicts: PASS/FAIL within so many hours of comparable traffic")
    for kind, of in sorted(tally.of.items()):
        told = tally.verdicts[kind]
        counts = "  ".join(
            f"{hours} h {_within(told, 'PASS', hours)}/{_within(told, 'FAIL', hours)}"
            for hours in HOURS
        )
        print(f"  {kind:42s} of {of:3d}  {counts}")
    for said in ("no targets", "targets"):
        kind = f"A/A, {said}"
        for verdict in ("PASS", "FAIL"):
            false = _within(tally.verdicts.get(kind, {}), verdict, HOURS[-1])
            print(f"false {verdict}, {said:10s}  {wilson(false, tally.of[kind])}")
    kept = _within(tally.verdicts.get(PROMISED, {}), "PASS", HOURS[-1])
    print(f"false PASS of a promise {wilson(kept, tally.of[PROMISED])}")
    print("intervals that hold the truth (95 % wanted)")
    for name, (hits, of) in sorted(tally.covered.items()):
        print(f"  {name:58s} {wilson(hits, of)}")


def _within(told: dict[str, list[int]], verdict: str, hours: float) -> int:
    return sum(after <= 60 * hours for after in told.get(verdict, ()))


if __name__ == "__main__":
    main()

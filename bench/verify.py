"""Verification on random servers: coverage of its intervals, and its verdicts beside the truth.

    python bench/verify.py SEED CASES

Each case is a server of the replayable fleet (hidden engine, demand that wanders) that restarts in
the middle: with another max_num_seqs or max_num_batched_tokens, or with what it had. Truth is the
same requests on the same engine with the restart alone, in the minutes that were matched.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from advice_truth.cases import SEQS, TOKENS, case_of  # noqa: E402
from advice_truth.counted import share  # noqa: E402

from driftwatch.diagnose.evidence_table import evidence_table, rows_of_scrapes  # noqa: E402
from driftwatch.fleet.generate import generate  # noqa: E402
from driftwatch.fleet.scenario.model import Scenario  # noqa: E402
from driftwatch.fleet.servers import targets_of  # noqa: E402
from driftwatch.minutes.rows import minute_grid  # noqa: E402
from driftwatch.model import Slo  # noqa: E402
from driftwatch.service.configuration import plan_of_rules  # noqa: E402
from driftwatch.signals.minutes import minutes  # noqa: E402
from driftwatch.verify.before_after import around_change  # noqa: E402
from driftwatch.verify.figures import FIGURES, IN_TARGET, parts  # noqa: E402
from driftwatch.verify.matching import matched  # noqa: E402
from driftwatch.verify.verdict import FEWEST_MINUTES, HARM_RATIO, HARM_SHARE, verified  # noqa: E402
from driftwatch.verify.verification import Change, Effect, Verification  # noqa: E402

# minutes before and after the change: a quick look, an afternoon, a day and a night
STRETCHES = ((60, 20), (120, 60), (240, 120), (720, 240), (1440, 240))
UNCHANGED = 0.35  # share of the cases in which nothing but a restart happened
DRIFTED = 0.3  # share whose lengths or demand are those after the case's drift


@dataclass(frozen=True)
class Sample:
    """One change: minutes as they came, and as they would have come without it."""

    at: datetime
    setting: Mapping[str, int]  # empty: nothing changed
    slo: Slo
    minutes: pl.DataFrame
    otherwise: pl.DataFrame
    stretch: tuple[int, int]  # minutes before and after


def sample_of(seed: int, number: int) -> Sample:
    """The case of a seed and a number; independent of every other."""
    case, rng = case_of(seed, number), np.random.default_rng([seed, number, 7])
    stretch = STRETCHES[rng.integers(len(STRETCHES))]
    said = json.loads(json.dumps(case.said))
    change = None if rng.random() < UNCHANGED else _change(said["pool"]["serving"], rng)
    said |= {"duration": f"{sum(stretch)}m", "truth": {"effects": []}}
    drift = said["traffic"].pop("changes")[0]
    if rng.random() < DRIFTED:
        said["traffic"]["changes"] = [{**drift, "at": "0s"}]
    said["traffic"]["wander_ratio"] = float(rng.uniform(0.05, 0.2))
    said["traffic"]["season"] = {"peak_to_trough": float(rng.uniform(1.0, 2.0))}
    restart = {"kind": "restart", "at": f"{stretch[0]}m"}
    settings = [{"serving": change}, {}] if change else [{}]
    both = [Scenario.model_validate({**said, "faults": [restart | one]}) for one in settings]
    frames = [_minutes(scenario, case.seed) for scenario in both]
    at = both[0].start + timedelta(minutes=stretch[0] + 1)
    slo = Slo(*(said["pool"]["slo"][f"{name}_seconds"] for name in ("ttft", "tpot")))
    return Sample(at, change or {}, slo, frames[0], frames[-1], stretch)


def _change(serving: Mapping[str, int], rng: np.random.Generator) -> dict[str, int]:
    """Another value of a knob, a factor of four at least away."""
    seqs, tokens = serving["max_num_seqs"], serving["max_num_batched_tokens"]
    some = [("max_num_seqs", s, seqs) for s in SEQS if s <= tokens]
    some += [("max_num_batched_tokens", t, tokens) for t in TOKENS if t >= seqs]
    far = [{name: new} for name, new, old in some if max(new, old) >= 4 * min(new, old)]
    return far[rng.integers(len(far))]


def _minutes(scenario: Scenario, seed: int) -> pl.DataFrame:
    scrapes = pl.concat([chunk.scrapes for chunk in generate(scenario, seed)])
    plan, end = plan_of_rules(()), scenario.start + timedelta(seconds=scenario.duration)
    frames = plan.frames(targets_of(scenario))
    rows = rows_of_scrapes(scrapes, frames.serving, scenario.start, end, plan.inputs)
    grid = minute_grid(frames.serving, scenario.start, end)
    return minutes(evidence_table(rows, grid, serving=frames.serving))


def asked(sample: Sample, minutes_after: int) -> Verification:
    """What is said of a change that nobody had advised, so many minutes after it."""
    at = sample.at + timedelta(minutes=minutes_after)
    before, after = around_change(sample.minutes, sample.at, at)
    change = Change("knobs", sample.at, dict.fromkeys(sample.setting, ("?", "?")))
    opened = Verification(
        id="v", instance="h:8000", engine="0", pool="p", change=change, opened_at=sample.at
    )
    return verified(opened, before, after, at, slo=sample.slo)


def true_values(sample: Sample, ends: pl.Series, name: str) -> list[float] | None:
    """A figure in some minutes after the change: as it would have been, and as it was."""
    both = (
        f.filter(pl.col("end").is_in(ends.implode())) for f in (sample.otherwise, sample.minutes)
    )
    found = [one[name].sum(axis=1) for f in both if name in (one := parts(f, sample.slo))]
    values = [float(top / bottom) for top, bottom in found]
    return values if len(values) == 2 and (name == IN_TARGET or min(values) > 0) else None


def standing(name: str, before: float, after: float) -> str:
    """What a perfect judge would say of a figure: better, worse or equal."""
    gain = after - before if FIGURES[name].better == "higher" else before - after
    least = HARM_SHARE if name == IN_TARGET else HARM_RATIO * before
    return "better" if gain >= least else "worse" if gain <= -least else "equal"


def is_held(effect: Effect, before: float, after: float) -> bool:
    """Whether the interval holds the truth; of times and rates as a share of what they were."""
    moved = after - before if effect.name == IN_TARGET else effect.before * (after / before - 1)
    return effect.low - 1e-6 <= moved <= effect.high + 1e-6


def judged(sample: Sample) -> list[tuple[str, str, bool]]:
    """(what, case, whether): intervals that hold the truth, verdicts, minutes that were named."""
    before, after = around_change(sample.minutes, sample.at, sample.minutes["end"][-1])
    pairs = matched(before.filter(~pl.col("backlogged")), after)
    said = asked(sample, sample.stretch[1])
    if min(pairs.minutes) < FEWEST_MINUTES:
        return [("too little matched", "", True)]
    found = [("too little matched", "", False)]
    truths = {}
    for effect in said.effects:
        if (truth := true_values(sample, pairs.after["end"], effect.name)) is not None:
            truths[effect.name] = truth
            found.append(("holds the truth", effect.name, is_held(effect, *truth)))
    primary = said.effects[0].name
    case = standing(primary, *truths[primary]) if primary in truths else "unknown"
    found += [(f"truth {case}", v, said.verdict == v) for v in ("PASS", "FAIL", "INCONCLUSIVE")]
    more = asked(sample, 20).more_minutes
    if more is not None and 20 + more <= sample.stretch[1]:
        for first in asked(sample, 20 + more).effects[:1]:
            least = HARM_SHARE if first.name == IN_TARGET else HARM_RATIO * first.before
            shows = first.high - first.low <= 2.5 * least
            found.append(("as narrow, ±25 %, after the least minutes named", "", shows))
    return found


def main(seed: int, cases: int) -> None:
    """Count and print."""
    counted = defaultdict(list)
    for number in range(cases):
        for what, case, is_so in judged(sample_of(seed, number)):
            counted[what, case].append(is_so)
    for (what, case), flags in sorted(counted.items()):
        one = share(flags)
        limits = f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
        print(f"{what:48} {case:30} {limits} of {one['of']}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

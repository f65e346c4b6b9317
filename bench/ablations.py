"""What each mechanism of the detectors is worth: their figures without it.

    python bench/ablations.py --seed N... [--pools 12] [--keep DIR] [--jobs 2] [--only NAME]...
                              [--page docs/truth.md]

Pools of the mixed fleets are made once and become minutes once; then the detectors score them as
they are, and once without each mechanism. A row says what changes: false findings a quiet
server-month, losses found, notices of lengths. Seeds 101 to 199 are for working.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from truth_judge import fleets
from truth_judge.bootstrap import ratio
from truth_judge.commands import Case
from truth_judge.facts import Finding, Stretch
from truth_judge.matching import SLOWER, alarms, detections, quiet_months
from truth_judge.mixed_pools import WORKING
from truth_judge.options import DATA
from truth_judge.report import interval, table
from truth_judge.sets import MIXED, Draw, derived

from driftwatch.baselines.windows import measured
from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import in_order
from driftwatch.detect import lengths
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.reference import baseline_of_minutes
from driftwatch.detect.speed import grid, like_work, load, model, verdicts
from driftwatch.pipeline.detection import Detection as AtHand
from driftwatch.pipeline.detection import detect, trim
from driftwatch.pipeline.explain import Window
from driftwatch.service.configuration import plan_of
from driftwatch.signals.one_process import fail_foreign_scrapes

LOOK_BACK = timedelta(minutes=12)  # what the columns of a chunk's first minute look back to


def _mean_of_passes(values: dict[str, Any]) -> Any:
    """The covariates as means over passes."""
    return load.token_met({**values, "overlap": np.ones_like(values["overlap"])})


def _one_prefill(values: dict[str, Any]) -> Any:
    *parts, most, least = load.token_met(values)
    return *parts, most * np.minimum(1.0, values["overlap"]), 0.0 * least


def _own_axes(windows: Any) -> Any:
    return np.diag(1 / np.maximum(windows.kinds.std(axis=0), like_work.LEAST_DEVIATION))


def _no_swings(column: Any, hour: Any) -> Any:
    return np.ones((len(column), len(hour)))


def _no_peers(at: grid.Grid, r: Any) -> Any:
    return np.full(r.shape, np.nan)


def _as_it_is(limit: Any) -> Any:
    return limit


def _no_preempting(at: grid.Grid, preempts: Any) -> Any:
    return at.usable


INFINITE = float("inf")
# Each mechanism: what is put in its place (module, name, value).
MECHANISMS: Mapping[str, Sequence[tuple[Any, str, Any]]] = {
    "as it is": (),
    "threshold from like work: one for all work": (
        (like_work, "NEIGHBOURS", like_work.MOST_WINDOWS), (like_work, "SHARE", 1.0),
        (like_work, "REACH", INFINITE),
    ),
    "unknown where the baseline has not seen the work": ((like_work, "REACH", INFINITE),),
    "distances in every direction: by each kind of work alone": (
        (like_work.Windows, "axes", property(_own_axes)),
    ),
    "few hours of like work count for less": ((like_work.Windows, "swing", 0.0),),
    "windows of six minutes: of eight": (
        (like_work, "WINDOW", 8), (verdicts, "WINDOW", 8),
        (like_work, "KNOWN", 5), (verdicts, "KNOWN", 5),
    ),
    "a high quantile: the median": ((like_work, "LEVEL_QUANTILE", 0.5),),
    "a higher floor for a baseline of less than a day": (
        (like_work, "YOUNG_MINUTES", 0),
    ),
    "work as a token meets it": ((model, "token_met", _mean_of_passes),),
    "two covariates of prefill: one": ((model, "token_met", _one_prefill),),
    "peers": ((verdicts, "peers_of", _no_peers), (like_work, "peers_of", _no_peers)),
    "five deviations: four": ((like_work, "DEVIATIONS", 4.0),),
    "the lower threshold of two minutes": ((verdicts, "_lower", _as_it_is),),
    "preempting minutes where a baseline preempts": ((grid.Grid, "counts", _no_preempting),),
    "minutes with 20 tokens and more: with 100": ((load, "MIN_TOKENS", 100.0),),
    "minutes after a restart and a gap do not count": ((grid, "WARM_MINUTES", 0),),
    "the baseline's own swings of lengths": ((lengths, "_by_hour", _no_swings),),
    "lengths unknown while requests queue": ((lengths, "MOST_WAIT_SECONDS", INFINITE),),
    "lengths beyond in 18 of 20 minutes: in one": ((lengths, "HELD", 1),),
}  # fmt: skip

KEEP_MINUTES = {"SlowerAtEqualLoad": 2, "ReplicaSlow": 15, "LengthDrift": 120}  # rules/
GROUP_SECONDS = 1800.0  # servers of a pool that follow so soon are one page
CHUNK = timedelta(hours=24)
MARKER = "<!-- made by bench/ablations.py; run it again instead of editing -->"


def main(argv: Sequence[str] | None = None) -> int:
    given = _options(argv)
    with tempfile.TemporaryDirectory(prefix="driftwatch-ablations-") as scratch:
        folder = given.keep or Path(scratch)
        rows = []
        # a fork after polars was imported may wait for a lock for ever
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(given.jobs, mp_context=spawn) as pool:
            draws = [draw for seed in given.seed for draw in _draws(seed, given.pools)]
            made = list(pool.map(_made, draws, [folder] * len(draws)))
            for mechanism in given.only or MECHANISMS:
                ran = list(pool.map(_scored, made, [mechanism] * len(made)))
                rows.append(_row(mechanism, ran, given.seed[0]))
                print(" | ".join(rows[-1]), flush=True)
    lines = table(HEAD, rows)
    if given.page is not None:
        given.page.write_text(_into_page(given.page.read_text(), lines))
    return 0


def _into_page(text: str, lines: Sequence[str]) -> str:
    """The page with the table under its marker made anew."""
    before, _, after = text.partition(MARKER)
    _, _, rest = after.partition("\n## ")
    return "\n".join([before + MARKER, "", *lines]) + (f"\n## {rest}" if rest else "")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, action="append", required=True)
    parser.add_argument("--pools", type=int, default=12, help="of each kind and seed")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the minutes, to go on with")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", default=[], choices=MECHANISMS)
    parser.add_argument("--page", type=Path, help="a Markdown page whose table is made anew")
    return parser.parse_args(argv)


def _draws(seed: int, pools: int) -> Iterator[Draw]:
    """One to three servers for three or four days, the first one or two of them the baseline."""
    traces = replace(WORKING, servegen=DATA / "servegen")
    for name, (group, make) in MIXED.items():
        for k in range(pools):
            own = derived(seed, name, k)
            rng = np.random.default_rng(own)
            servers, pinned = int(rng.integers(1, 4)), int(rng.choice((1, 1, 2)))
            yield Draw(name, own, make(rng, servers, pinned + 2, float(pinned), traces), group)


def _made(draw: Draw, folder: Path) -> Path:
    """The case of a draw and its minutes (MINUTE_SCHEMA), kept as one file."""
    into = folder / f"{draw.name}-{draw.seed}-{draw.digest}.pickle"
    if into.exists():
        return into
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="driftwatch-draw-") as scratch:
        case = fleets.made(draw, Path(scratch))
        source = open_recording(case.recording)
        plan = plan_of(case.recording / "driftwatch.yaml")
        at, last = source.span()
        at = at.replace(second=0, microsecond=0)
        parts = []
        while at < last:
            end = min(at + CHUNK / 2, last)
            some = source.collect(at - LOOK_BACK, end + timedelta(seconds=1))
            scrapes = fail_foreign_scrapes(in_order(some.scrapes))
            targets = plan.assign(dict(some.targets))
            parts.append(measured(scrapes, Window(at, end), targets, plan, some.gpus).minutes)
            at = end
    rows = pl.concat(parts, how="vertical_relaxed").sort("instance", "engine", "end")
    into.write_bytes(pickle.dumps((case, rows)))
    return into


def _scored(made: Path, mechanism: str) -> tuple[Stretch, Stretch, float, int]:
    """What would be told without a mechanism: each server's, and one page for a pool's; minutes
    of unknown speed, and minutes.
    """
    case, minutes = pickle.loads(made.read_bytes())
    with ExitStack() as patched:
        for module, name, value in MECHANISMS[mechanism]:
            patched.enter_context(patch.object(module, name, value))
        columns = _columns(case, minutes)
    found = sorted(_findings(columns), key=lambda one: one.at_seconds)
    told: list[Finding] = []
    last: dict[str, float] = {}
    for one in found:
        if one.at_seconds - last.get(one.severity, -INFINITE) > GROUP_SECONDS:
            told.append(one)
        last[one.severity] = one.at_seconds
    seen = columns.filter(pl.col("scrapes") > 0)["slower_at_equal_load"]
    return case.stretch(found), case.stretch(told), float(seen.null_count()), len(seen)


def _columns(case: Case, minutes: pl.DataFrame) -> pl.DataFrame:
    """The detectors' columns of the minutes from the end of the baseline on."""
    assert case.reference is not None
    since, until = (datetime.fromtimestamp(at, UTC) for at in case.reference)
    base = minutes.filter(pl.col("end") > since, pl.col("end") <= until)
    fitted = model.fit(base)
    baseline = Baseline(
        id="baseline",
        scope="pool",
        pool=base["pool"][0] or "",
        since=since,
        until=until,
        accepted_by="bench",
        accepted_at=since,
        load_model=fitted if isinstance(fitted, model.StepTimeModel) else None,
        arming=None if isinstance(fitted, model.StepTimeModel) else fitted.reason,
    )
    reference = baseline_of_minutes(base.filter(pl.col("scrapes") > 0), None)
    reference = reference.with_columns(kind=pl.lit("baseline"))
    at_hand, parts = AtHand(), []
    at, last = until - CHUNK / 8, minutes["end"].max()
    assert isinstance(last, datetime)
    while at < last:
        end = min(at + CHUNK, last)
        here = minutes.filter(pl.col("end") > at, pl.col("end") <= end)
        if len(here):
            columns, at_hand = detect(
                *(at_hand, here, (at, end), Baselines((baseline,)), reference, None), accepts=True
            )
            at_hand = trim(at_hand, end)
            parts.append(here.select("instance", "end", "scrapes").hstack(columns))
        at = end
    return pl.concat(parts).filter(pl.col("end") > until).sort("instance", "end")


def _findings(columns: pl.DataFrame) -> Iterator[Finding]:
    """Where the shipped rules on these columns would begin to fire, of each server."""
    longer = {
        name: pl.col(f"{name}_drift").is_in(["longer", "shorter"]) for name in lengths.LENGTHS
    }
    rules = [
        ("SlowerAtEqualLoad", "page", pl.col("slower_at_equal_load")),
        ("ReplicaSlow", "page", pl.col("slower_than_pool")),
        *(("LengthDrift", "notice", moved) for moved in longer.values()),
    ]
    for (instance,), own in columns.group_by("instance", maintain_order=True):
        ends = own["end"].dt.epoch("s").to_list()
        for rule, severity, when in rules:
            quiet = KEEP_MINUTES[rule] + 1
            for end, true in zip(ends, own.select(when).to_series(), strict=True):
                if true and quiet > KEEP_MINUTES[rule]:
                    yield Finding("firing", rule, severity, end, end, frozenset({str(instance)}))
                quiet = 0 if true else quiet + (true is False)


HEAD = (
    "without",
    "false pages",
    "≥ 15 % slower, found",
    "median delay",
    "false notices",
    "unknown",
)


def _row(
    mechanism: str, ran: Sequence[tuple[Stretch, Stretch, float, int]], seed: int
) -> list[str]:
    told = [one for _, one, _, _ in ran]
    months = quiet_months(told)
    due = [d for d in detections([one for one, *_ in ran]) if d.episode.pages & SLOWER]
    slow = [d for d in due if d.episode.kind in ("loss", "throttle", "upgrade")]
    delays = [d.delay_seconds / 60 for d in slow if d.delay_seconds is not None]

    def false(severity: str) -> str:
        counts = Counter(
            a.stretch.block(a.finding.at_seconds)
            for a in alarms(told)
            if a.verdict == "false" and a.finding.severity == severity
        )
        held = {**dict.fromkeys(counts, 0.0), **months}
        return f"{interval(ratio(counts, held, seed=seed).as_json())} ({counts.total()})"

    of = Counter(d.block for d in slow)
    hit = Counter(d.block for d in slow if d.delay_seconds is not None)
    found = ratio(hit, of, seed=seed, share=True).as_json()
    unknown, minutes = sum(r[2] for r in ran), sum(r[3] for r in ran)
    return [
        mechanism,
        false("page"),
        f"{interval(found, '%')} ({hit.total()} of {of.total()})",
        f"{np.median(delays):.1f} min" if delays else "–",
        false("notice"),
        f"{100 * unknown / minutes:.1f} %",
    ]


if __name__ == "__main__":
    raise SystemExit(main())

"""One stretch from its draw to everything that is counted of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truth_judge import fleets
from truth_judge.commands import Case, explained, leaf_of, replayed
from truth_judge.facts import DAY_SECONDS, Episode, Finding, Stretch
from truth_judge.healthy import Wander, counters_of, wander
from truth_judge.sets import Draw
from truth_judge.undisturbed import servers_again
from truth_judge.visible import with_visibility

HEALTHY = "healthy"
FAILED = "failed"  # the command ended with an error
MOST_ROWS = 300_000  # explain reads a whole recording; of a larger one it is given the days around
AROUND_SECONDS = 6 * 3600.0
SETTLED_SECONDS = 3600.0  # a healthy moment lies so long after the start


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one stretch.

    Attributes:
        group: ``recorded``, ``shipped``, ``healthy`` or ``grid``.
        stretch: with its findings.
        explained: (true leaf, said leaf) pairs of ``driftwatch explain``.
        paged: the same of the pages that found an episode.
        wanders: the servers' ln r.
        misfits: server → sd of its ln r without disturbance, of some servers of healthy stretches.
        gains: episodes with and without the advised change, as the what-if prints them.
        make_seconds: for its recording; 0 where it was recorded.
        replay_seconds: of ``driftwatch replay``.
    """

    group: str
    stretch: Stretch
    explained: list[tuple[str, str]] = field(default_factory=list)
    paged: list[tuple[str, str]] = field(default_factory=list)
    wanders: list[Wander] = field(default_factory=list)
    misfits: dict[str, float] = field(default_factory=dict)
    gains: list[dict[str, Any]] = field(default_factory=list)
    make_seconds: float = 0.0
    replay_seconds: float = 0.0


def run_recorded(case: Case) -> Ran:
    """A recorded run of a real server."""
    findings, seconds = replayed(case)
    said = [_explained(case, moment) for moment in moments_of(case, len(case.episodes), 0)]
    stretch = case.stretch(findings)
    return Ran("recorded", stretch, said, paged(stretch), replay_seconds=seconds)


def run_draw(draw: Draw, folder: Path, *, explains: int, whatifs: int, keep: bool = False) -> Ran:
    """A scenario under a seed: made, replayed, explained, asked what the advice would have done.

    Args:
        draw: which.
        folder: for its files; removed at the end unless they are kept.
        explains: how many moments are explained at most.
        whatifs: how many episodes are run again with other settings at most.
        keep: leave the files.
    """
    began = time.perf_counter()
    case = fleets.made(draw, folder)
    if draw.unjudged_days:
        begin = case.start_seconds + draw.unjudged_days * DAY_SECONDS
        case = replace(case, judged_from_seconds=begin)
    make_seconds = time.perf_counter() - began
    table = folder / "evidence.parquet" if draw.evidence else None
    findings, seconds = replayed(case, table)
    if table is not None:
        case = with_visibility(case, table)
    stretch = case.stretch(findings)
    moments = moments_of(case, explains, draw.seed)
    said = [_explained(case, moment, folder / "around") for moment in moments]
    gains = _gains(draw, case, findings, folder, whatifs)
    out: list[tuple[str | None, float, float]] = []
    for episode in case.episodes:
        whom: Iterable[str | None] = episode.instances or (None,)
        out += [(instance, episode.start_seconds, episode.until_seconds) for instance in whom]
    wanders = wander(counters_of(case.recording), out)
    misfits = _misfits(draw, case, folder) if draw.group == "healthy" and explains else {}
    if not keep:
        shutil.rmtree(folder)
    return Ran(
        draw.group,
        stretch,
        explained=said,
        paged=paged(stretch),
        wanders=wanders,
        misfits=misfits,
        gains=gains,
        make_seconds=make_seconds,
        replay_seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class Moment:
    """When a server is explained, and what its leaf should be."""

    instance: str
    at_seconds: float
    leaf: str


def moments_of(case: Case, most: int, seed: int) -> list[Moment]:
    """The end of each episode that has a leaf, or moments at which nothing is wrong."""
    found = [
        Moment(sorted(e.instances or case.instances)[0], e.end_seconds, e.leaf)
        for e in case.episodes
        if e.leaf is not None
    ]
    draw = np.random.default_rng([seed, 1])
    if not case.episodes:
        span = case.end_seconds - case.start_seconds
        for _ in range(most):
            at = case.start_seconds + SETTLED_SECONDS
            at += float(draw.random()) * (span - SETTLED_SECONDS)
            found.append(Moment(str(draw.choice(case.instances)), at, HEALTHY))
    if len(found) > most:
        found = [found[i] for i in sorted(draw.choice(len(found), most, replace=False))]
    return found


def _explained(case: Case, moment: Moment, around: Path | None = None) -> tuple[str, str]:
    if around is not None and case.recording.is_dir():
        case = _cut(case, moment.at_seconds, around)
    try:
        said = leaf_of(explained(case, moment.instance, moment.at_seconds))
    except RuntimeError as error:  # that it breaks is what there is to tell
        print(error, file=sys.stderr, flush=True)
        said = FAILED
    return moment.leaf, said


def _cut(case: Case, at: float, into: Path) -> Case:
    """A large recording's reference and the hours before a moment, as a recording of its own."""
    manifest = json.loads((case.recording / "recording.json").read_text())
    if sum(part["rows"] for part in manifest["parts"]) <= MOST_ROWS:
        return case
    spans = [(at - AROUND_SECONDS, at)]
    spans += [case.reference] if case.reference is not None else []
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    parts = []
    for part in manifest["parts"]:
        seconds = pl.col("time").dt.epoch("us") / 1e6
        inside = pl.any_horizontal([seconds.is_between(*span) for span in spans])
        if not any(part["last"] >= first and part["first"] <= last for first, last in spans):
            continue
        rows = pl.scan_parquet(case.recording / part["file"]).filter(inside).collect()
        if not rows.is_empty():
            rows.write_parquet(into / part["file"])
            parts.append(part | {"rows": len(rows)})
    (into / "recording.json").write_text(json.dumps(manifest | {"parts": parts}))
    return replace(case, recording=into)


def paged(stretch: Stretch) -> list[tuple[str, str]]:
    """(true leaf, leaf of the first page or ticket) of the episodes that were told of."""
    pairs = []
    for episode in stretch.episodes:
        told = [f for f in _told_of(stretch.findings, episode) if f.severity != "notice"]
        if episode.leaf is not None and told:
            pairs.append((episode.leaf, told[0].leaf or "no verdict"))
    return pairs


def _told_of(findings: Iterable[Finding], episode: Episode) -> list[Finding]:
    return [
        f
        for f in findings
        if f.event == "firing"
        and episode.start_seconds <= f.at_seconds <= episode.until_seconds
        and episode.concerns(f.instance)
    ]


def advice(findings: Iterable[Finding], episode: Episode) -> tuple[str, float] | None:
    """Knob and value of the first page or ticket that advises a change while it lasts."""
    told = (f for f in _told_of(findings, episode) if f.severity != "notice")
    return next(
        ((f.knob, f.after) for f in told if f.knob is not None and f.after is not None), None
    )


def _gains(
    draw: Draw, case: Case, findings: Iterable[Finding], folder: Path, most: int
) -> list[dict[str, Any]]:
    """The episodes again with the settings that their pages advise, and with a ladder of others."""
    asked = []
    findings = list(findings)
    for episode in case.episodes:
        window = [t - case.start_seconds for t in (episode.start_seconds, episode.end_seconds)]
        # a page that comes late is no help before it came: the whole episode is judged all the same
        asked.append(
            {
                "block": [case.draw, int(episode.start_seconds // 86_400)],
                "window": window,
                "numbers": sorted(case.instances.index(i) for i in episode.instances),
                "change": advice(findings, episode),
            }
        )
    if len(asked) > most:
        some = np.random.default_rng([draw.seed, 2]).choice(len(asked), most, replace=False)
        asked = [asked[i] for i in sorted(some)]
    if not asked:
        return []
    told = _in_its_own_process("whatif", draw, folder, {"episodes": asked})
    return [one for one in told if one is not None]


def _misfits(draw: Draw, case: Case, folder: Path) -> dict[str, float]:
    """What the regression of ln r misses where the engine keeps to its law."""
    numbers = servers_again(len(case.instances), case.end_seconds - case.start_seconds)
    told: dict[str, float] = _in_its_own_process("undisturbed", draw, folder, {"numbers": numbers})
    return told


def _in_its_own_process(module: str, draw: Draw, folder: Path, asked: dict[str, Any]) -> Any:
    """What a module of the judge prints of a draw: many run side by side."""
    job = folder / f"{module}.json"
    job.write_text(
        json.dumps({"scenario": fleets.scenario_of(draw, folder), "seed": draw.seed} | asked)
    )
    ran = subprocess.run(
        [sys.executable, "-m", f"truth_judge.{module}", str(job)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[1],
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{draw.name}, seed {draw.seed}: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout)

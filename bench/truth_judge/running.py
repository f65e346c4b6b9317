"""One stretch from its draw to everything that is counted of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truth_judge import fleets
from truth_judge.commands import Case, explained, leaf_of, recommended, replayed
from truth_judge.due import injected
from truth_judge.facts import DAY_SECONDS, Block, Episode, Finding, Stretch
from truth_judge.figures import NO_VERDICT, Verdict
from truth_judge.healthy import Wander, counters_of, wander
from truth_judge.moments import Moment, leaf_then, moments_of
from truth_judge.saturated import leaves_then
from truth_judge.sets import Draw
from truth_judge.whatif import AT_MOST_SECONDS, PAGES, RECOMMEND
from truth_judge.yardstick import judged

YARDSTICK = "yardstick"
FAILED = "failed"  # the command ended with an error
MOST_ROWS = 300_000  # explain reads a whole recording; of a larger one it is given the days around
AROUND_SECONDS = 6 * 3600.0

Change = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one stretch."""

    group: str
    stretch: Stretch
    explained: list[Verdict] = field(default_factory=list)
    paged: list[Verdict] = field(default_factory=list)
    wanders: list[Wander] = field(default_factory=list)
    gains: list[dict[str, Any]] = field(default_factory=list)
    make_seconds: float = 0.0
    replay_seconds: float = 0.0
    # what others said of the same recording: the yardstick, other versions
    beside: Mapping[str, Stretch] = field(default_factory=dict)


def run_recorded(case: Case) -> Ran:
    """A recorded run of a real server."""
    findings, seconds = replayed(case)
    said = [_explained(case, moment) for moment in moments_of(case, len(case.episodes), 0)]
    stretch = case.stretch(findings)
    return Ran("recorded", stretch, said, paged(stretch), replay_seconds=seconds)


def run_draw(
    draw: Draw, folder: Path, *, explains: int, whatifs: int, trees: Mapping[str, Path]
) -> Ran:
    """A scenario under a seed: made, replayed, explained, asked what the advice would have done.

    ``trees``: checkouts of other versions by name, which replay it too.
    """
    began = time.perf_counter()
    case = fleets.made(draw, folder)
    make_seconds = time.perf_counter() - began
    # nobody reads the advice of pages where no episode is carried out again
    findings, seconds = replayed(case, *(() if whatifs else ("--no-advice",)))
    stretch = case.stretch(findings)
    around = folder / "around"
    said = [_explained(case, one, around) for one in moments_of(case, explains, draw.seed)]
    gains = _gains(draw, case, findings, folder, whatifs)
    out: list[tuple[str | None, float, float]] = []
    for episode in case.episodes:
        whom: Iterable[str | None] = episode.instances or (None,)
        out += [(instance, episode.start_seconds, episode.until_seconds) for instance in whom]
    wanders = wander(counters_of(case.recording), out)
    beside = {} if case.reference is None else {YARDSTICK: case.stretch(judged(case))}
    for name, tree in trees.items():
        beside[name] = case.stretch(replayed(case, tree=tree)[0])
    shutil.rmtree(folder)
    return Ran(
        draw.group, stretch, said, paged(stretch), wanders, gains, make_seconds, seconds, beside
    )


def _explained(case: Case, moment: Moment, around: Path | None = None) -> Verdict:
    if around is not None and case.recording.is_dir():
        case = _cut(case, moment.at_seconds, around)
    try:
        said = leaf_of(explained(case, moment.instance, moment.at_seconds, moment.window_seconds))
    except RuntimeError as error:  # that it breaks is what there is to tell
        print(error, file=sys.stderr, flush=True)
        said = FAILED
    true = said if said in moment.also else moment.leaf
    return Verdict(true, said, _block(case.draw, moment.at_seconds))


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


def _block(draw: str, at_seconds: float) -> Block:
    return draw, int(at_seconds // DAY_SECONDS)


def paged(stretch: Stretch) -> list[Verdict]:
    """True leaf and that of the first page or ticket, of the episodes that were told of."""
    pairs = []
    for episode in stretch.episodes:
        # what fires after its end is of what is there then, unless it is due
        told = [
            f
            for f in _told_of(stretch.findings, episode)
            if f.severity != "notice"
            and (f.at_seconds <= episode.end_seconds or f.said in episode.expected)
        ]
        if episode.leaf is not None and told:
            block = _block(stretch.draw, episode.start_seconds)
            leaf = told[0].leaf or NO_VERDICT
            full = frozenset[str]().union(
                *(
                    leaves_then(minutes, told[0].at_seconds)
                    for name, minutes in episode.waited.items()
                    if not told[0].instances or name in told[0].instances
                )
            )
            true, also = leaf_then(episode.leaf, episode.also, full)
            true = leaf if leaf in also else true
            pairs.append(Verdict(true, leaf, block))
    return pairs


def _told_of(findings: Iterable[Finding], episode: Episode) -> list[Finding]:
    return [
        f
        for f in findings
        if f.event == "firing"
        and episode.start_seconds <= f.at_seconds <= episode.until_seconds
        and episode.concerns(*f.instances)
    ]


def advice(findings: Iterable[Finding], episode: Episode) -> Change | None:
    """Knob and value of the first page or ticket that advises a change while it lasts."""
    told = (f for f in _told_of(findings, episode) if f.severity != "notice")
    return next(
        ((f.knob, f.after) for f in told if f.knob is not None and f.after is not None), None
    )


def _gains(
    draw: Draw, case: Case, findings: Iterable[Finding], folder: Path, most: int
) -> list[dict[str, Any]]:
    """The episodes again with what each adviser advises, and with a ladder of other settings."""
    findings, episodes = list(findings), injected(case.episodes)
    if len(episodes) > most:
        some = np.random.default_rng([draw.seed, 2]).choice(len(episodes), most, replace=False)
        episodes = [episodes[i] for i in sorted(some)]
    if not episodes or most == 0:
        return []
    asked: list[dict[str, Any]] = []
    answered: list[dict[str, Any]] = []
    for episode in episodes:
        answer, advised = _recommended(case, episode, folder / "around")
        # a page that comes late is no help before it came: the whole episode is judged all the same
        changes = {
            PAGES: advice(findings, episode),
            RECOMMEND: advised,
        }
        answered.append({"answer": answer, "asked_of": episode.cell, "leaf": episode.leaf})
        asked.append(
            {
                "block": _block(case.draw, episode.start_seconds),
                "window": [
                    t - case.start_seconds for t in (episode.start_seconds, episode.end_seconds)
                ],
                "numbers": sorted(case.instances.index(i) for i in episode.instances),
                "changes": {who: change for who, change in changes.items() if change is not None},
            }
        )
    told = _what_if(draw, folder, asked)
    return [one | more for one, more in zip(told, answered, strict=True) if one is not None]


def _recommended(case: Case, episode: Episode, around: Path) -> tuple[str | None, Change | None]:
    """What ``driftwatch recommend`` answers after the hour that is judged, and its change."""
    at = min(episode.end_seconds, episode.start_seconds + AT_MOST_SECONDS)
    instance = sorted(episode.instances or case.instances)[0]
    try:
        told = recommended(_cut(case, at, around), instance, at)
    except RuntimeError as error:  # that it breaks is what there is to tell
        print(error, file=sys.stderr, flush=True)
        return FAILED, None
    if told is None:
        return NO_VERDICT, None
    said = told["recommendation"]
    if said["action"] != "change" or said["to_value"] is None:
        return said["action"], None
    return said["action"], (said["knob"], said["to_value"])


def _what_if(draw: Draw, folder: Path, episodes: list[dict[str, Any]]) -> Any:
    """What the what-if prints of some episodes, in a process of its own: many run side by side."""
    job = folder / "whatif.json"
    asked = {"scenario": fleets.scenario_of(draw, folder), "seed": draw.seed, "episodes": episodes}
    job.write_text(json.dumps(asked))
    ran = subprocess.run(
        [sys.executable, "-m", "truth_judge.whatif", str(job)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[1],
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{draw.name}, seed {draw.seed}: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout)

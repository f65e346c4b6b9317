"""One stretch from its draw to everything that is counted of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from truth_judge import fleets, sent
from truth_judge.commands import Case, explained, leaf_of, recommended, replayed, sent_pages
from truth_judge.due import injected
from truth_judge.facts import DAY_SECONDS, Block, Episode, Finding, Stretch, findings_of
from truth_judge.figures import NO_VERDICT, Verdict
from truth_judge.healthy import Wander, counters_of, wander
from truth_judge.kept import kept, made_with
from truth_judge.moments import Moment, leaf_then, moments_of
from truth_judge.saturated import leaves_then
from truth_judge.sets import Draw
from truth_judge.simple_rules import said_by
from truth_judge.undisturbed import servers_again
from truth_judge.visible import with_visibility
from truth_judge.whatif import AT_MOST_SECONDS, FOLK, PAGES, RECOMMEND

PAGES_FILE = "pages.json"  # what was sent of a stretch, whole
FAILED = "failed"  # the command ended with an error
MOST_ROWS = 300_000  # explain reads a whole recording; of a larger one it is given the days around
AROUND_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one stretch.

    Attributes:
        group: ``recorded``, ``shipped``, ``healthy`` or ``grid``.
        stretch: with its findings.
        explained: true and said leaves of ``driftwatch explain``.
        paged: the same of the pages that found an episode.
        wanders: the servers' ln r.
        misfits: server → sd of its ln r without disturbance, of some servers of healthy stretches.
        gains: episodes with and without the advised change, as the what-if prints them.
        make_seconds: for its recording; 0 where it was recorded.
        replay_seconds: of ``driftwatch replay``.
        simple: rule of :mod:`truth_judge.simple_rules` → what it says of the same stretch.
    """

    group: str
    stretch: Stretch
    explained: list[Verdict] = field(default_factory=list)
    paged: list[Verdict] = field(default_factory=list)
    wanders: list[Wander] = field(default_factory=list)
    misfits: dict[str, float] = field(default_factory=dict)
    gains: list[dict[str, Any]] = field(default_factory=list)
    make_seconds: float = 0.0
    replay_seconds: float = 0.0
    simple: dict[str, list[Finding]] = field(default_factory=dict)


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
    # where a recording is kept, what was said of it by these same sources is as well
    case = fleets.made(draw, folder)
    if draw.unjudged_days:
        begin = case.start_seconds + draw.unjudged_days * DAY_SECONDS
        case = replace(case, judged_from_seconds=begin)
    make_seconds = time.perf_counter() - began
    table = folder / "evidence.parquet" if draw.evidence else None
    findings, seconds = _replayed(draw, case, folder, table)
    if table is not None:
        case = with_visibility(case, table)
    stretch = case.stretch(findings)
    moments = moments_of(case, explains, draw.seed)
    answers = _Answers(draw, case, folder)
    said = [answers.explained(moment) for moment in moments]
    gains = _gains(draw, case, findings, answers, whatifs)
    out: list[tuple[str | None, float, float]] = []
    for episode in case.episodes:
        whom: Iterable[str | None] = episode.instances or (None,)
        out += [(instance, episode.start_seconds, episode.until_seconds) for instance in whom]
    wanders = wander(counters_of(case.recording), out)
    simple = said_by(case.recording, case.reference)
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
        simple=simple,
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
                    if told[0].instance in (None, name)
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
        and episode.concerns(f.instance)
    ]


def advice(findings: Iterable[Finding], episode: Episode) -> tuple[str, float] | None:
    """Knob and value of the first page or ticket that advises a change while it lasts."""
    told = (f for f in _told_of(findings, episode) if f.severity != "notice")
    return next(
        ((f.knob, f.after) for f in told if f.knob is not None and f.after is not None), None
    )


def _gains(
    draw: Draw, case: Case, findings: Iterable[Finding], answers: _Answers, most: int
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
    scrapes = sent.lengths_of(case.recording)
    for episode in episodes:
        window = [t - case.start_seconds for t in (episode.start_seconds, episode.end_seconds)]
        answer, advised = answers.recommended(episode)
        # a page that comes late is no help before it came: the whole episode is judged all the same
        changes = {
            PAGES: advice(findings, episode),
            RECOMMEND: advised,
            FOLK: _folk(case, episode, scrapes),
        }
        answered.append({"answer": answer, "asked_of": episode.cell, "leaf": episode.leaf})
        asked.append(
            {
                "block": _block(case.draw, episode.start_seconds),
                "window": window,
                "numbers": sorted(case.instances.index(i) for i in episode.instances),
                "changes": {who: change for who, change in changes.items() if change is not None},
            }
        )
    told = [
        kept(
            answers.file("whatif", one["window"][0]),
            [draw.seed, fleets.text_of(draw), one, made_with(simulator=True)],
            partial(_in_its_own_process, "whatif", draw, answers.folder, {"episodes": [one]}),
        )[0]
        for one in asked
    ]
    return [one | more for one, more in zip(told, answered, strict=True) if one is not None]


class _Answers:
    """What single commands say of a stretch, kept beside its recording.

    Args:
        draw: which.
        case: what is asked about.
        folder: where the answers are kept.
    """

    def __init__(self, draw: Draw, case: Case, folder: Path) -> None:
        self._draw, self._case, self.folder = draw, case, folder
        (folder / "answers").mkdir(exist_ok=True)

    def file(self, verb: str, at_seconds: float) -> Path:
        """Where the answer about a moment is kept."""
        return self.folder / "answers" / f"{verb}-{at_seconds:.0f}.json"

    def _asked(self, *words: object) -> list[object]:
        return [self._draw.seed, fleets.text_of(self._draw), made_with(), *words]

    def explained(self, moment: Moment) -> Verdict:
        """True and said leaf of a moment."""
        asked = self._asked(moment.instance, moment.at_seconds, moment.window_seconds)
        around = self.folder / "around"
        file = self.file(f"explain-{moment.instance}", moment.at_seconds)
        said = kept(file, asked, lambda: _explained(self._case, moment, around).said)
        true = said if said in moment.also else moment.leaf
        return Verdict(true, said, _block(self._case.draw, moment.at_seconds))

    def recommended(self, episode: Episode) -> tuple[str | None, tuple[str, float] | None]:
        """What ``driftwatch recommend`` answers of an episode."""
        asked = self._asked(sorted(episode.instances), episode.start_seconds, episode.end_seconds)
        around = self.folder / "around"
        file = self.file("recommend", episode.start_seconds)
        answer, change = kept(file, asked, lambda: _recommended(self._case, episode, around))
        return answer, None if change is None else (change[0], change[1])


def _replayed(
    draw: Draw, case: Case, folder: Path, table: Path | None
) -> tuple[tuple[Finding, ...], float]:
    """The findings of a case and the seconds that they took, now or when they were kept."""
    asked = [draw.seed, fleets.text_of(draw), made_with(), case.words(), table is not None]

    def ask() -> dict[str, Any]:
        said, seconds = sent_pages(case, table)
        return {"pages": said, "seconds": seconds}

    told = kept(folder / PAGES_FILE, asked, ask)
    return findings_of(told["pages"]), told["seconds"]


def _recommended(
    case: Case, episode: Episode, around: Path
) -> tuple[str | None, tuple[str, float] | None]:
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


def _folk(case: Case, episode: Episode, scrapes: pl.DataFrame) -> tuple[str, float] | None:
    """What the folk rule would do about the episode's first hour."""
    instance = sorted(episode.instances or case.instances)[0]
    until = min(episode.end_seconds, episode.start_seconds + AT_MOST_SECONDS)
    now = sent.sent(scrapes, instance, (episode.start_seconds, until))
    before = None if case.reference is None else sent.sent(scrapes, instance, case.reference)
    if now is None or before is None:
        return None
    configured = json.loads((case.recording / fleets.CONFIGURATION).read_text())
    return sent.folk_change(now, before, configured["pools"][0].get("serving", {}))


def _misfits(draw: Draw, case: Case, folder: Path) -> dict[str, float]:
    """What the regression of ln r misses where the engine keeps to its step-time model."""
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

"""driftwatch as its users run it: its public commands, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from truth_judge.facts import Episode, Finding, Stretch, findings_of, joined_of
from truth_judge.figures import NO_VERDICT

EXIT_PARTLY, EXIT_NO_VERDICT = 1, 4


@dataclass(frozen=True, slots=True)
class Case:
    """Something to replay, and what is true of it."""

    name: str
    draw: str
    recording: Path
    start_seconds: float
    end_seconds: float
    instances: tuple[str, ...]
    episodes: tuple[Episode, ...] = ()
    reference: tuple[float, float] | None = None
    options: tuple[str, ...] = ()
    present: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    def words(self) -> list[str]:
        """What ``replay`` and ``explain`` are both given."""
        if self.reference is None:
            return list(self.options)
        first, last = (iso(at) for at in self.reference)
        return [*self.options, "--baseline", f"{first}..{last}"]

    def stretch(self, findings: Sequence[Finding]) -> Stretch:
        """The case with what was said of it, from the end of the baseline on."""
        since = self.start_seconds if self.reference is None else self.reference[1]
        stays = {
            instance: [(max(first, since), last) for first, last in spans if last > since]
            for instance, spans in self.present.items()
        }
        return Stretch(
            name=self.name,
            draw=self.draw,
            start_seconds=since,
            end_seconds=self.end_seconds,
            instances=self.instances,
            episodes=self.episodes,
            findings=tuple(one for one in findings if one.at_seconds >= since),
            present=stays,
        )


def iso(seconds: float) -> str:
    """Unix seconds as the command line takes them."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def driftwatch(
    *words: str, accept: Sequence[int] = (0,), tree: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it; ``tree``: a checkout of another version.

    Raises:
        RuntimeError: it ended with another exit code; with what it said.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "driftwatch", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
        env=None if tree is None else {**os.environ, "PYTHONPATH": str(tree)},
    )
    # a program that breaks ends with 1 as well, and says so
    broken = ran.returncode != 0 and "Traceback (most recent call last)" in ran.stderr
    if broken or ran.returncode not in accept:
        raise RuntimeError(
            f"driftwatch {' '.join(words)}: exit {ran.returncode}: {ran.stderr[-2000:]}"
        )
    return ran


def pages(*words: str, tree: Path | None = None) -> tuple[list[dict[str, Any]], float]:
    """What ``driftwatch replay --json`` prints with these words, and how long it took.

    Exit 1 is taken: failed scrapes are part of most histories.
    """
    began = time.perf_counter()
    ran = driftwatch("replay", "--json", *words, accept=(0, EXIT_PARTLY), tree=tree)
    seconds = time.perf_counter() - began
    return [json.loads(line) for line in ran.stdout.splitlines()], seconds


def replayed(case: Case, *more: str, tree: Path | None = None) -> tuple[tuple[Finding, ...], float]:
    """The findings of a case, and the seconds it took; ``tree``: of another version."""
    with TemporaryDirectory(prefix="driftwatch-truth-") as folder:
        database = ("--db", f"{folder}/replay.db")
        recording = str(case.recording.resolve())
        said, seconds = pages(*case.words(), *more, *database, recording, tree=tree)
        listed = driftwatch("incidents", "--all", "--json", *database, tree=tree)
    findings = findings_of(said)
    incidents = json.loads(listed.stdout)["incidents"]
    both = (*findings, *joined_of(incidents, findings))
    return tuple(sorted(both, key=lambda f: f.at_seconds)), seconds


def explained(
    case: Case, instance: str, at_seconds: float, window_seconds: float | None = None
) -> dict[str, Any] | None:
    """``driftwatch explain --json`` of a server at a moment; None = it had nothing to look at.

    Exit 4 is taken: an undetermined leaf ends with it as well.
    """
    more = [] if window_seconds is None else ["--window", f"{window_seconds:.0f}s"]
    return _asked(case, "explain", instance, at_seconds, *more)


def recommended(case: Case, instance: str, at_seconds: float) -> dict[str, Any] | None:
    """``driftwatch recommend --json`` of a server at a moment; None = it printed nothing.

    Exit 4 is taken: a refusal that names its gate ends with it.
    """
    return _asked(case, "recommend", instance, at_seconds)


def _asked(
    case: Case, verb: str, instance: str, at_seconds: float, *more: str
) -> dict[str, Any] | None:
    words = ["--at", iso(at_seconds), "--recording", str(case.recording), *more, *case.words()]
    ran = driftwatch(verb, instance, "--json", *words, accept=(0, EXIT_NO_VERDICT))
    if not ran.stdout.strip():
        return None
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def leaf_of(told: dict[str, Any] | None) -> str:
    """Where the diagnosis ended."""
    diagnosis = None if told is None else told["diagnosis"]
    return NO_VERDICT if diagnosis is None else str(diagnosis["leaf"])

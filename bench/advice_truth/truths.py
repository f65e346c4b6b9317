"""Truth of the cases, kept on disk: the hidden engine is asked once for each setting.

Under the folder, ``cases/`` holds what was drawn and ``truths/`` the shares in target. A case is
drawn again when the code that draws it is another; a truth when simulator or hidden engine are.
What of the product is asked about the case has no part in either, so two versions of it are
compared on the same servers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numba
import numpy as np
from truth_judge.whatif import Runs

from advice_truth.cases import DRIFT_AT, LASTING, Case, case_of
from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic

ROOT = Path(__file__).resolve().parents[2]
DRAWS = ("bench/advice_truth/cases.py", "driftwatch/fleet")
ENGINE = ("driftwatch/simulate", "driftwatch/fleet", "bench/truth_judge/whatif.py")

Knobs = Mapping[str, float]


class Truth:
    """What became of one server's requests with one setting or another.

    Args:
        case: the server and its drift.
        kept: file of what is known already; None = nothing is kept.
    """

    def __init__(self, case: Case, kept: Path | None) -> None:
        self._case, self._kept = case, kept
        self._runs: dict[float, Runs] = {}
        self._shares: dict[str, float | None] = (
            json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
        )

    def share(self, knobs: Knobs, demand: float = 1.0) -> float | None:
        """Share of the requests of the drift in every target.

        Args:
            knobs: what is set otherwise than today.
            demand: times the case's request rate; the requests are drawn anew.

        Returns:
            0 where vLLM would not start with them; None where no request is to be judged.
        """
        turned = {name: round(value) for name, value in sorted(knobs.items())}
        key = json.dumps([demand, turned])
        if key not in self._shares:
            self._shares[key] = self._run(turned, demand)
            self._keep()
        return self._shares[key]

    def _run(self, knobs: dict[str, int], demand: float) -> float | None:
        if demand not in self._runs:
            window = (DRIFT_AT, DRIFT_AT + LASTING)
            scenario = _at_demand(self._case.scenario, demand)
            self._runs[demand] = Runs(scenario, self._case.seed, window, (0,))
        try:
            return self._runs[demand].share(knobs)
        except ImpossibleConfiguration:
            return 0.0

    def _keep(self) -> None:
        if self._kept is not None:
            write(self._kept, json.dumps(self._shares, indent=1, sort_keys=True))


class Truths:
    """Cases of a seed and their truths.

    Args:
        folder: where they are kept; None = each is made anew.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def case(self, seed: int, number: int) -> Case:
        """As :func:`case_of` draws it."""
        if self._folder is None:
            return case_of(seed, number)
        kept = self._folder / "cases" / digest_of(DRAWS) / f"{seed}-{number}.json"
        if not kept.exists():
            write(kept, json.dumps(asdict(case_of(seed, number)), indent=1))
        said = json.loads(kept.read_text())
        return Case(
            said["said"],
            said["seed"],
            said["asked_at"],
            (said["drift"][0], said["drift"][1], said["drift"][2]),
            said["knows_budget"],
        )

    def of(self, case: Case) -> Truth:
        """The truth of a case, with what is known of it; when it is asked has no part in it."""
        if self._folder is None:
            return Truth(case, None)
        kept = f"{_digest([case.said, case.seed])}.json"
        return Truth(case, self._folder / "truths" / digest_of(ENGINE) / kept)


def named(case: Case) -> str:
    """A name that two cases share only where they are the same."""
    return _digest(asdict(case))


def _digest(said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


@cache
def digest_of(paths: Iterable[str]) -> str:
    """Of source files, and of the libraries whose arithmetic and random numbers they use."""
    whole = hashlib.sha256(f"{np.__version__} {numba.__version__}".encode())
    for path in paths:
        at = ROOT / path
        for file in sorted(at.rglob("*.py")) if at.is_dir() else (at,):
            whole.update(file.relative_to(ROOT).as_posix().encode())
            whole.update(file.read_bytes())
    return whole.hexdigest()[:12]


def write(path: Path, text: str) -> None:
    """A whole file or none: others may read it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def _at_demand(scenario: Scenario, demand: float) -> Scenario:
    if demand == 1.0:
        return scenario
    rate = PoolTraffic.of(scenario, scenario.seed).mean_rate * demand
    said = {"requests_per_second": rate, "utilisation_ratio": None}
    traffic = scenario.traffic.model_copy(update=said)
    return scenario.model_copy(update={"traffic": traffic})

"""Truth of the cases: the hidden engine run again with other settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

from truth_judge.whatif import Runs

from advice_truth.cases import DRIFT_AT, LASTING, Case
from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic

Knobs = Mapping[str, float]


class Truth:
    """What became of one server's requests with one setting or another; each is run once."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._runs: dict[float, Runs] = {}
        self._shares: dict[str, float | None] = {}

    def share(self, knobs: Knobs, demand: float = 1.0) -> float | None:
        """Share of the requests of the drift in every target.

        Returns:
            0 where vLLM would not start with them; None where no request is to be judged.
        """
        turned = {name: round(value) for name, value in sorted(knobs.items())}
        key = json.dumps([demand, turned])
        if key not in self._shares:
            self._shares[key] = self._run(turned, demand)
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


def _at_demand(scenario: Scenario, demand: float) -> Scenario:
    if demand == 1.0:
        return scenario
    rate = PoolTraffic.of(scenario, scenario.seed).mean_rate * demand
    said = {"requests_per_second": rate, "utilisation_ratio": None}
    traffic = scenario.traffic.model_copy(update=said)
    return scenario.model_copy(update={"traffic": traffic})

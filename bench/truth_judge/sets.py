"""What a set is made of: shipped scenarios, healthy weeks, and grids of many episodes.

Scenarios of the judge's own are plain data in the format of a scenario file
(docs/contributing/fleet.md): they are written to files and run as any other. Where and when their
episodes lie comes from the seed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truth_judge import mixed_fleets
from truth_judge.detection_sets import KINDS, LEARNT_DAYS
from truth_judge.mixed_pools import Traces

SETS = ("quick", "smoke", "standard", "full")

Scenario = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Draw:
    """One scenario under one seed.

    Attributes:
        name: what the figures call it.
        seed: of its randomness.
        scenario: its data, or the name of a shipped one.
        group: ``shipped``, ``healthy`` or ``grid``.
        evidence: whether the replay's evidence table is looked at as well.
        unjudged_days: so many at the start are replayed and not counted.
    """

    name: str
    seed: int
    scenario: Scenario | str
    group: str
    evidence: bool = False
    unjudged_days: float = 0.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large a set is.

    Attributes:
        recorded: with the recorded runs of real servers.
        shipped_hours: shipped scenarios of at most so many server-hours are taken.
        shipped_seeds: how often each.
        quiet: pools of ``mixed-quiet``.
        faults: pools of ``mixed-faults``, and as many of ``mixed-limits``.
        servers: fewest and most of a pool.
        days: how long a pool runs.
        pinned_days: so many of them are its baseline.
        ticks: fleet sizes whose tick is timed.
    """

    recorded: bool
    shipped_hours: float
    shipped_seeds: int
    quiet: int
    faults: int
    servers: tuple[int, int]
    days: int
    pinned_days: float
    ticks: tuple[int, ...]


SIZES: Mapping[str, Size] = {
    # 24 server-days in some minutes of one core: for a change of a detector, the same hour
    "quick": Size(False, 0.0, 0, 2, 1, (2, 2), 3, 1.0, ()),
    "smoke": Size(True, 9.0, 1, 1, 1, (2, 2), 3, 1.0, (100,)),
    # 10 server-months and more in an hour of two cores
    "standard": Size(True, 0.0, 0, 12, 7, (1, 4), 5, 2.0, (100,)),
    "full": Size(True, 400.0, 10, 110, 60, (1, 4), 7, 2.0, (100, 1000, 10_000)),
}
MIXED: Mapping[str, tuple[str, Callable[..., dict[str, Any]]]] = {
    "mixed-quiet": ("healthy", mixed_fleets.quiet),
    "mixed-faults": ("grid", mixed_fleets.faults),
    "mixed-limits": ("grid", mixed_fleets.limits),
}


def draws(size: Size, seed: int, shipped: Mapping[str, float], traces: Traces) -> Iterator[Draw]:
    """Everything of a set but the recorded runs.

    Args:
        size: of the set.
        seed: all seeds derive from it.
        shipped: name → server-hours of each shipped scenario.
        traces: whose requests the mixed fleets get.
    """
    for name, hours in sorted(shipped.items()):
        if hours <= size.shipped_hours:
            for k in range(size.shipped_seeds):
                yield Draw(name, derived(seed, name, k), name, "shipped")
    for name, (group, make) in MIXED.items():
        for k in range(size.quiet if group == "healthy" else size.faults):
            own = derived(seed, name, k)
            rng = np.random.default_rng(own)
            low, high = size.servers
            # a replica that is slow among others needs others
            least = low if group == "healthy" else max(low, 2)
            servers = int(rng.integers(least, high + 1))
            made = make(rng, servers, size.days, size.pinned_days, traces)
            yield Draw(name, own, made, group)


def detection_draws(name: str, seed: int, servegen: Path | None) -> Iterator[Draw]:
    """The grids of the detection figures.

    Args:
        name: of the set: how large and how many.
        seed: all seeds derive from it.
        servegen: folder of the whole ServeGen dataset; None = the shipped extract.
    """
    for kind in KINDS:
        draws = kind.draws if name == "full" else 1
        for k in range(draws):
            own = derived(seed, kind.name, k)
            extent = kind.smoke if name in ("quick", "smoke") else kind.full
            scenario = kind.make(np.random.default_rng(own), extent)
            traffic = scenario["traffic"]
            if servegen is not None and traffic["source"] == "servegen":
                scenario["traffic"] = {
                    **traffic,
                    "path": str(servegen.resolve()),
                    "model_class": "m-small",
                }
            learnt = LEARNT_DAYS if traffic["source"] == "servegen" and name != "smoke" else 0
            yield Draw(kind.name, own, scenario, kind.group, kind.evidence, learnt)


def derived(seed: int, name: str, k: int) -> int:
    """A seed of its own for each scenario and repetition: what they draw is independent."""
    state = np.random.SeedSequence([seed, zlib.crc32(name.encode()), k]).generate_state(1)
    return int(state[0] >> 1)

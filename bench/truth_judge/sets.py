"""What a set is made of: shipped scenarios, healthy weeks, and grids of many episodes.

Scenarios of the judge's own are plain data in the format of a scenario file
(docs/contributing/fleet.md): they are written to files and run as any other. Where and when their
episodes lie comes from the seed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from truth_judge import mixed_fleets
from truth_judge.mixed_pools import Traces

SETS = ("quick", "smoke", "pages", "standard", "full")

Scenario = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Draw:
    """One scenario under one seed."""

    name: str
    seed: int
    scenario: Scenario | str
    group: str

    @property
    def digest(self) -> str:
        """Of what is drawn: one seed draws another scenario when the generator changes."""
        text = json.dumps(self.scenario, sort_keys=True, default=str)
        return f"{zlib.crc32(text.encode()):08x}"


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
        days: how long a pool runs after its baseline; that is what is judged.
        pinned_days: how long its baseline is, one of these at random.
        explains: moments of a stretch at which ``driftwatch explain`` is asked, at most.
        whatifs: episodes of a stretch whose advice is carried out, at most.
    """

    recorded: bool
    shipped_hours: float
    shipped_seeds: int
    quiet: int
    faults: int
    servers: tuple[int, int]
    days: int
    pinned_days: tuple[int, ...]
    explains: int
    whatifs: int


SIZES: Mapping[str, Size] = {
    # 24 server-days in some minutes of one core: for a change of a detector, the same hour
    "quick": Size(False, 0.0, 0, 2, 1, (1, 3), 2, (1,), 0, 0),
    "smoke": Size(True, 9.0, 1, 1, 1, (1, 3), 2, (1,), 2, 2),
    # pages alone, of 10 server-months and more after the baselines
    "pages": Size(False, 0.0, 0, 20, 11, (1, 4), 3, (1, 1, 2, 2, 7), 0, 0),
    "standard": Size(True, 0.0, 0, 20, 11, (1, 4), 3, (1, 1, 2, 2, 7), 8, 5),
    "full": Size(True, 400.0, 10, 110, 60, (1, 4), 5, (1, 1, 2, 2, 7), 24, 24),
}
MIXED: Mapping[str, tuple[str, Callable[..., dict[str, Any]]]] = {
    "mixed-quiet": ("healthy", mixed_fleets.quiet),
    "mixed-faults": ("grid", mixed_fleets.faults),
    "mixed-limits": ("grid", mixed_fleets.limits),
}


def draws(size: Size, seed: int, shipped: Mapping[str, float], traces: Traces) -> Iterator[Draw]:
    """Everything of a set but the recorded runs."""
    for name, hours in sorted(shipped.items()):
        if hours <= size.shipped_hours:
            for k in range(size.shipped_seeds):
                yield Draw(name, derived(seed, name, k), name, "shipped")
    for name, (group, make) in MIXED.items():
        for k in range(size.quiet if group == "healthy" else size.faults):
            own = derived(seed, name, k)
            rng = np.random.default_rng(own)
            low, high = size.servers
            servers, pinned = int(rng.integers(low, high + 1)), int(rng.choice(size.pinned_days))
            made = make(rng, servers, pinned + size.days, float(pinned), traces)
            yield Draw(name, own, made, group)


def derived(seed: int, name: str, k: int) -> int:
    """A seed of its own for each scenario and repetition: what they draw is independent."""
    state = np.random.SeedSequence([seed, zlib.crc32(name.encode()), k]).generate_state(1)
    return int(state[0] >> 1)

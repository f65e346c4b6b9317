"""The grids of detection power: losses, demand, lengths, caps, creep.

Each draw has a hidden engine and a traffic of its own: how fast a step is, how it jitters, whose
requests it gets and how they swing over the day all come from the seed. An engine that is so many
times slower gets as many times fewer requests: the same load, batch and queue in fewer steps, so
that months of servers can be made. Scenarios are plain data, as in :mod:`truth_judge.sets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

HOUR, DAY = 3600, 86_400
PINNED_FROM, PINNED_UNTIL = 2 * HOUR, 50 * HOUR  # two days, as baselines.md asks for
SETTLED = PINNED_UNTIL + 2 * HOUR
# detectors are calibrated on ServeGen's first week: of its traffic the second week alone counts
LEARNT_DAYS = 7
LOSSES = (0.05, 0.1, 0.15, 0.2, 0.3)
SLOWER = ("SlowerAtEqualLoad", "ReplicaSlow")

# Requests a second and server at a mean utilisation of about 0.42 of Llama-3.1-8B on an H100
USUAL = {"azure_conv": 6.5, "servegen": 25.0}
# … at which it would be full: what a share of that is called utilisation here
FULL = {"azure_conv": 15.3, "servegen": 62.0}

Scenario = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """How large one draw of a grid is.

    Attributes:
        servers: of its pool.
        days: how long.
    """

    servers: int
    days: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One grid.

    Attributes:
        name: what the figures call it.
        group: ``grid`` or ``healthy``.
        make: (rng, extent) → scenario.
        smoke: extent of its only draw in the smallest set.
        full: extent in the others.
        draws: how many in the full set; the standard one has one.
        evidence: whether the smallest detectable shift is looked up.
    """

    name: str
    group: str
    make: Callable[[np.random.Generator, Extent], Scenario]
    smoke: Extent
    full: Extent
    draws: int
    evidence: bool = False


@dataclass(frozen=True, slots=True)
class Hidden:
    """What a draw has that no detector knows.

    Attributes:
        times: how much slower than the usual engine.
        source: of the traffic; ServeGen's from its first day on.
        swing: demand at the peak over that at night.
        engine: of the scenario.
    """

    times: float
    source: str
    swing: float
    engine: Mapping[str, Any]

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Hidden:
        """One of many."""
        times = float(rng.choice([3.0, 4.0, 6.0]))
        engine: dict[str, Any] = {
            "times_roofline": round(1.1 * times, 3),
            "quadratic_ratio": times,
            "jitter_sigma": float(rng.choice([0.04, 0.06, 0.09])),
            "stalls_per_day": float(rng.choice([2.0, 4.0, 8.0])),
        }
        engine["wander_sd_ratio"] = float(rng.choice([0.02, 0.035, 0.05]))
        source = str(rng.choice(["azure_conv", "servegen"]))
        return cls(times, source, float(rng.choice([2.5, 4.0, 5.6])), engine)

    def pool(self, servers: int, **more: Any) -> dict[str, Any]:
        slo = {"ttft_seconds": 1.0 * self.times, "tpot_seconds": 0.05 * self.times}
        return {"name": "chat", "replicas": servers, "dcgm": False, "slo": slo} | more

    def traffic(self, servers: int, rate: float | None = None, **more: Any) -> dict[str, Any]:
        """Requests at so many a second and server (of the usual engine), over the day."""
        usual = USUAL[self.source] if rate is None else rate
        found: dict[str, Any] = {
            "source": self.source,
            "requests_per_second": round(usual * servers / self.times, 4),
            "season": {"peak_to_trough": self.swing, "weekend_ratio": 0.7},
        }
        return found | more


def _scenario(
    name: str, hidden: Hidden, pool: Mapping[str, Any], traffic: Mapping[str, Any], days: int,
    effects: list[dict[str, Any]], **more: Any,
) -> Scenario:  # fmt: skip
    baseline = {"at": _seconds(PINNED_FROM), "until": _seconds(PINNED_UNTIL)}
    return {
        "name": name,
        "title": "many episodes, one after the other",
        "duration": f"{days}d",
        "long": True,
        "start": "2026-11-16T00:00:00Z",
        "scrape": {"interval": "30s"},
        "pool": pool,
        "traffic": traffic,
        "engine": hidden.engine,
        "truth": {"baseline": baseline, "effects": effects},
        **more,
    }


def _seconds(value: float) -> str:
    return f"{round(value)}s"


def _dealt(cells: list[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """Cells in random order, each as often as the others (but for what is left over)."""
    rounds = -(-count // len(cells))
    order = np.concatenate([rng.permutation(len(cells)) for _ in range(rounds)])
    return [cells[i] for i in order[:count]]


def losses(rng: np.random.Generator, extent: Extent) -> Scenario:
    """Each replica by itself 5 to 30 % slower for one to two hours, every ten hours."""
    hidden, every = Hidden.drawn(rng), 10 * HOUR
    starts = np.arange(SETTLED, extent.days * DAY - every, every)
    slots = [(replica, int(start)) for start in starts for replica in range(extent.servers)]
    faults, effects = [], []
    for (replica, slot), size in zip(slots, _dealt(list(LOSSES), len(slots), rng), strict=True):
        lasting = int(rng.integers(HOUR, 2 * HOUR))
        at = slot + int(rng.integers(0, every - lasting - 2 * HOUR))
        when = {"at": _seconds(at), "until": _seconds(at + lasting), "replicas": [replica]}
        faults.append({"kind": "slowdown", "factor": round(1 / (1 - size), 4), **when})
        effect = {"what": f"{100 * size:g} % slower", "kind": "loss", "size": size, **when}
        if size >= 0.15:  # what the rule promises to see
            effect |= {"leaf": "replica_slow", "pages": list(SLOWER)}
        effects.append(effect)
    pool, traffic = hidden.pool(extent.servers), hidden.traffic(extent.servers)
    return _scenario("losses", hidden, pool, traffic, extent.days, effects, faults=faults)


def demand(rng: np.random.Generator, extent: Extent) -> Scenario:
    """Restarts, rollouts, other buckets, scaling and rates: nobody should be told of any."""
    hidden, every, lasting = Hidden.drawn(rng), 4 * HOUR, 2 * HOUR
    starts = np.arange(SETTLED, extent.days * DAY - every, every)
    cells = ["restart", "rollout", "bucket_layout", "scale", "rate 0.25", "rate 1.4"]
    faults: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    effects: list[dict[str, Any]] = []
    for start, cell in zip(starts, _dealt(cells, len(starts), rng), strict=True):
        at = int(start) + int(rng.integers(0, every - lasting - HOUR))
        when = {"at": _seconds(at), "until": _seconds(at + lasting)}
        one = int(rng.integers(extent.servers))
        kind, _, size = cell.partition(" ")
        effect: dict[str, Any] = {"what": cell, "kind": kind, **when}
        if size:
            effect["size"] = float(size)
            changes.append({**when, "rate_factor": float(size)})
        elif kind == "scale":
            faults.append({"kind": "scale", "at": _seconds(at), "to": extent.servers + 2})
            after = _seconds(at + lasting // 2)
            faults.append({"kind": "scale", "at": after, "to": extent.servers})
        elif kind == "rollout":
            faults.append({"kind": "rollout", "at": _seconds(at), "every": "4m", "down": "60s"})
        else:
            faults.append({"kind": kind, "at": _seconds(at), "down": "60s", "replicas": [one]})
        effects.append(effect)
    traffic = hidden.traffic(extent.servers, 0.85 * USUAL[hidden.source], changes=changes)
    pool = hidden.pool(extent.servers)
    return _scenario("demand", hidden, pool, traffic, extent.days, effects, faults=faults)


def uneven(rng: np.random.Generator, extent: Extent) -> Scenario:
    """One server of the pool gets prompts or answers ×1.3 or ×2 for an hour, every three hours."""
    hidden, every, lasting = Hidden.drawn(rng), 3 * HOUR, HOUR
    starts = np.arange(SETTLED, extent.days * DAY - every, every)
    cells = [(kind, size) for kind in ("prompt", "generation") for size in (1.3, 2.0)]
    changes, effects = [], []
    for start, (kind, size) in zip(starts, _dealt(cells, len(starts), rng), strict=True):
        at = int(start) + int(rng.integers(0, every - lasting - HOUR))
        one = [int(rng.integers(extent.servers))]
        when = {"at": _seconds(at), "until": _seconds(at + lasting), "replicas": one}
        changes.append({**when, f"{kind}_factor": size})
        said = {"notices": ["UnevenTraffic"]}
        effects.append({"what": f"one server's {kind}s", "kind": f"uneven-{kind}",
                        "size": size, **when, **said})  # fmt: skip
    rate = 0.7 * USUAL[hidden.source]
    traffic = hidden.traffic(extent.servers, rate, changes=changes)
    pool = hidden.pool(extent.servers)
    return _scenario("uneven", hidden, pool, traffic, extent.days, effects)


def shifts(rng: np.random.Generator, extent: Extent) -> Scenario:
    """The whole pool's lengths ×1.3, or a new client of 20 %: 90 minutes, every twelve hours."""
    hidden, every, lasting = Hidden.drawn(rng), 12 * HOUR, 90 * 60
    starts = np.arange(5 * DAY, extent.days * DAY - every, every)  # a past of five days first
    client = {"new_client": {"share_ratio": 0.2, "prompt_tokens": 1200}}
    cells: list[tuple[str, float, dict[str, Any]]] = [
        ("shift-prompt", 1.3, {"prompt_factor": 1.3}),
        ("shift-generation", 1.3, {"generation_factor": 1.3}),
        ("shift-new-client", 0.2, client),
    ]
    changes, effects = [], []
    for start, (kind, size, change) in zip(starts, _dealt(cells, len(starts), rng), strict=True):
        at = int(start) + int(rng.integers(0, every - 3 * lasting))
        when = {"at": _seconds(at), "until": _seconds(at + lasting)}
        changes.append(when | change)
        effects.append({"what": f"the pool's {kind}", "kind": kind, "size": size, **when,
                        "notices": ["TrafficShift"]})  # fmt: skip
    rate = 0.7 * USUAL[hidden.source]
    traffic = hidden.traffic(extent.servers, rate, changes=changes)
    pool = hidden.pool(extent.servers)
    return _scenario("shifts", hidden, pool, traffic, extent.days, effects)


def at_cap(rng: np.random.Generator, extent: Extent) -> Scenario:
    """30 % slower at a utilisation of 65 %: the batch fills up to max_num_seqs, requests queue."""
    hidden, lasting = Hidden.drawn(rng), 90 * 60
    hidden = Hidden(hidden.times, "azure_conv", 1.0, hidden.engine)
    faults, effects = [], []
    for day in range(SETTLED // DAY, extent.days):
        for hour in (12, 18):
            at = day * DAY + hour * HOUR + int(rng.integers(0, 2 * HOUR))
            when = {"at": _seconds(at), "until": _seconds(at + lasting)}
            faults.append({"kind": "slowdown", "factor": round(1 / 0.7, 4), **when})
            effects.append({"what": "30 % slower at 65 % of what it can", "kind": "loss-at-cap",
                            "size": 0.3, **when, "grace": "30m",
                            "pages": ["SlowerAtEqualLoad"]})  # fmt: skip
    pool = hidden.pool(extent.servers, serving={"max_num_seqs": 80})
    # at one load alone no load model can be fitted: six hours of little a night
    nights = [
        {"at": _seconds(h * HOUR), "until": _seconds((h + 6) * HOUR), "rate_factor": 0.2}
        for h in range(3, extent.days * 24 - 6, 24)
    ]
    traffic = hidden.traffic(extent.servers, 0.65 * FULL["azure_conv"], changes=nights,
                             timeout=_seconds(60 * hidden.times))  # fmt: skip
    return _scenario("at-cap", hidden, pool, traffic, extent.days, effects, faults=faults)


def creep(rng: np.random.Generator, extent: Extent) -> Scenario:
    """Half of the servers lose 3, 5 or 10 % over fourteen days, after a week of none."""
    hidden = Hidden.drawn(rng)
    sizes = _dealt([0.03, 0.05, 0.1, None, None, None], extent.servers, rng)
    faults, effects = [], []
    at, until = 7 * DAY, extent.days * DAY
    for replica, size in enumerate(sizes):
        if size is None:
            continue
        when = {"at": _seconds(at), "replicas": [replica]}
        ramp = {"factor": round(1 / (1 - size), 4), "ramp": _seconds(until - at)}
        faults.append({"kind": "slowdown", **when, **ramp})
        effect = {"what": f"{100 * size:g} % in two weeks", "kind": "creep", "size": size, **when}
        if size > 0.03:  # 3 % is where the rule begins
            effect["tickets"] = ["LatencyCreep"]
        effects.append(effect)
    pool, traffic = hidden.pool(extent.servers), hidden.traffic(extent.servers)
    return _scenario("creep", hidden, pool, traffic, extent.days, effects, faults=faults)


KINDS: tuple[Kind, ...] = (
    Kind("losses", "grid", losses, Extent(3, 4), Extent(20, 14), 5),
    Kind("demand", "grid", demand, Extent(3, 4), Extent(6, 14), 30),
    Kind("uneven", "grid", uneven, Extent(4, 4), Extent(10, 14), 20, evidence=True),
    Kind("shifts", "grid", shifts, Extent(3, 6), Extent(3, 14), 75, evidence=True),
    Kind("at-cap", "grid", at_cap, Extent(2, 3), Extent(2, 8), 24),
    Kind("creep", "grid", creep, Extent(6, 21), Extent(24, 21), 20),
)

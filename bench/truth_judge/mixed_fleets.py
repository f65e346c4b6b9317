"""Mixed fleets: pools of which each draws its engine, traffic, settings and scrapes at random.

No two pools are alike: GPU, model, form of the step time, settings that are no round numbers, KV
size, whose requests, how busy, with bursts and prefill-heavy nights, with DCGM pages or without,
with lost and late scrapes, dropped buckets, and a release that stands in a label, in
kube-state-metrics alone, or nowhere. Nothing is injected into ``mixed-quiet``; ``mixed-faults``
are engines that get slower and traffic that changes, ``mixed-limits`` services whose sequence cap,
token budget or KV cache is small for what they are sent at times.

What a limit costs follows from the scheduler (:mod:`truth_judge.saturated`), not from what was
meant: an effect names what was done, and the judge adds what was due of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from truth_judge.mixed_pools import (
    DAY,
    HOUR,
    NEW_IMAGE,
    OLD_IMAGE,
    Data,
    Random,
    Traces,
    chance,
    log_uniform,
    pool_drawn,
    roomy,
    seconds,
    tight,
)

SLOWER = ("SlowerAtEqualLoad", "ReplicaSlow")
LENGTHS = ("LengthDrift",)
EVERY = 6 * HOUR  # an episode and the quiet after it


def quiet(rng: Random, servers: int, days: int, pinned_days: float, traces: Traces) -> Data:
    """Nothing is injected: from nearly idle to 95 % of what the servers can do."""
    low, high = ((0.02, 0.15), (0.15, 0.6), (0.6, 0.95))[int(rng.choice(3, p=[0.3, 0.4, 0.3]))]
    made = pool_drawn(
        "mixed-quiet", rng, traces, servers, days, pinned_days, roomy(rng),
        log_uniform(rng, low, high), speed_is_measured=False,
    )  # fmt: skip
    made["faults"] = [*_restarts(rng, servers, days), *_rollouts(rng, made["pool"], days)]
    return made


def _restarts(rng: Random, servers: int, days: int) -> list[Data]:
    """Servers that start again, now and then: nothing is wrong after it."""
    often = log_uniform(rng, 0.05, 1.0) if chance(rng, 0.6) else 0.0
    return [
        {"kind": "restart", "at": seconds(at), "replicas": [int(rng.integers(servers))]}
        for at in np.sort(rng.uniform(0, days * DAY - HOUR, rng.poisson(often * days)))
    ]


def _rollouts(rng: Random, pool: Data, days: int) -> list[Data]:
    """All servers one after the other: the same again, or a release that is no slower."""
    found: list[Data] = []
    for at in np.sort(rng.uniform(0, days * DAY - HOUR, rng.poisson(0.2 * days))):
        one: Data = {"kind": "rollout", "at": seconds(at), "every": "90s", "down": "50s"}
        if chance(rng, 0.5) and not found and ("vllm_version" in pool or "image" in pool):
            name, value = _released(pool, NEW)
            one[name] = value
        found.append(one)
    return found


OLD, NEW = 0, 1


def _released(pool: Data, which: int) -> tuple[str, str]:
    """Which key says what release the pool runs, and the old or the new one."""
    if "vllm_version" in pool:
        return "vllm_version", ("0.10.2", "0.11.0")[which]
    return "image", (OLD_IMAGE, NEW_IMAGE)[which]


def _when(rng: Random, slot: float, lasting: float) -> Data:
    at = slot + rng.uniform(0, EVERY - lasting - 2 * HOUR)
    return {"at": seconds(at), "until": seconds(at + lasting)}


def _slots(pinned_days: float, days: int) -> list[float]:
    settled = pinned_days * DAY + HOUR
    return [float(at) for at in np.arange(settled, days * DAY - EVERY, EVERY)]


def _dealt(cells: Sequence[Any], count: int, rng: Random) -> list[Any]:
    """Cells in random order, each as often as the others but for what is left over."""
    rounds = -(-count // len(cells))
    order = np.concatenate([rng.permutation(len(cells)) for _ in range(rounds)])
    return [cells[i] for i in order[:count]]


# (kind, size): a loss of so much of the speed, lengths times so much
FAULTS: Sequence[tuple[str, float]] = (
    ("loss", 0.05), ("loss", 0.1), ("loss", 0.15), ("loss", 0.15), ("loss", 0.2), ("loss", 0.2),
    ("loss", 0.3), ("loss", 0.3), ("throttle", 0.25), ("upgrade", 0.2), ("prompts", 2.0),
    ("prompts", 4.0), ("generations", 2.0), ("generations", 4.0), ("generations", 0.06),
    ("client", 0.3),
)  # fmt: skip
SURGES: Sequence[tuple[str, float]] = (
    ("rate", 1.7), ("rate", 2.5), ("rate", 3.5), ("prompts", 2.0), ("prompts", 4.0),
    ("generations", 2.0), ("generations", 4.0), ("prefix-loss", 0.0),
)  # fmt: skip


def faults(rng: Random, servers: int, days: int, pinned_days: float, traces: Traces) -> Data:
    """An engine gets slower, or its traffic changes, for one to two hours out of six."""
    made = pool_drawn(
        "mixed-faults", rng, traces, servers, days, pinned_days, roomy(rng),
        log_uniform(rng, 0.12, 0.75), speed_is_measured=True,
    )  # fmt: skip
    slots = _slots(pinned_days, days)
    for slot, (kind, size) in zip(slots, _dealt(FAULTS, len(slots), rng), strict=True):
        when = _when(rng, slot, float(rng.uniform(HOUR, 2 * HOUR)))
        if kind in ("loss", "throttle", "upgrade"):
            _slow(made, rng, kind, size, when)
        elif kind == "client":
            _join(made, rng, when)
        else:
            _change(made, kind, size, when)
    made.setdefault("faults", []).extend(_restarts(rng, servers, days))
    return made


def limits(rng: Random, servers: int, days: int, pinned_days: float, traces: Traces) -> Data:
    """Traffic meets a small sequence cap, token budget or KV cache, one to two hours out of six."""
    made = pool_drawn(
        "mixed-limits", rng, traces, servers, days, pinned_days, tight(rng, roomy(rng)),
        log_uniform(rng, 0.25, 0.6), speed_is_measured=True,
    )  # fmt: skip
    slots = _slots(pinned_days, days)
    for slot, (kind, size) in zip(slots, _dealt(SURGES, len(slots), rng), strict=True):
        _change(made, kind, size, _when(rng, slot, float(rng.uniform(HOUR, 2 * HOUR))))
    return made


def _slow(made: Data, rng: Random, kind: str, size: float, when: Data) -> None:
    """An engine, or all of the pool, loses that share of its speed."""
    pool, servers = made["pool"], int(made["pool"]["replicas"])
    told = "vllm_version" in pool or "image" in pool
    if (kind == "throttle" and not pool["dcgm"]) or (kind == "upgrade" and not told):
        kind = "loss"
    one = servers >= 3 and kind != "upgrade" and chance(rng, 0.5)
    if one:
        when = {**when, "replicas": [int(rng.integers(servers))]}
    effect: Data = {"what": f"{100 * size:g} % slower", "kind": kind, "size": size, **when}
    if size >= 0.15:
        leaf = {"throttle": "gpu_throttled", "upgrade": "version_change"}.get(
            kind, "replica_slow" if one else "scheduler_regression"
        )
        effect |= {"leaf": leaf, "pages": list(SLOWER), "grace": "30m"}
    made["truth"]["effects"].append(effect)
    factor = 1 / (1 - size)
    into = made.setdefault("faults", [])
    if kind != "upgrade":
        kinds = {"loss": "slowdown", "throttle": "clock_throttle"}
        into.append({"kind": kinds[kind], "factor": round(factor, 4), **when})
        return
    name, new = _released(pool, NEW)
    _, old = _released(pool, OLD)
    for at, times, value in ((when["at"], factor, new), (when["until"], 1 / factor, old)):
        into.append(
            {"kind": "rollout", "at": at, "every": "60s", "down": "50s",
             "factor": round(times, 4), name: value}
        )  # fmt: skip


def _join(made: Data, rng: Random, when: Data) -> None:
    """A client that nobody has seen before: lengths may be told of, and need not."""
    share = round(float(rng.uniform(0.15, 0.6)), 3)
    most = int(made["pool"]["serving"]["max_model_len"])
    client = {
        "share_ratio": share,
        "prompt_tokens": round(log_uniform(rng, 30, most / 2)),
        "generation_tokens": round(log_uniform(rng, 3, 600)),
    }
    made["traffic"].setdefault("changes", []).append({"new_client": client, **when})
    made["truth"]["effects"].append({"what": "a new client", "kind": "client", **when})


def _change(made: Data, kind: str, size: float, when: Data) -> None:
    """Traffic changes; what is due of it, the scheduler says."""
    change: Data = {
        "rate": {"rate_factor": size},
        "prompts": {"prompt_factor": size},
        "generations": {"generation_factor": size},
        "prefix-loss": {"prefix_hit_ratio": 0.0},
    }[kind]
    effect: Data = {"what": f"{kind} {size:g}", "kind": kind, **when}
    if kind != "prefix-loss":
        effect["size"] = size
    if kind in ("prompts", "generations"):
        effect |= {"leaf": "drifted_within_limits", "notices": list(LENGTHS)}
    if kind == "prefix-loss":
        effect["leaf"] = "prefix_cache_collapse"
        made["traffic"]["prefix_hit_ratio"] = max(made["traffic"]["prefix_hit_ratio"], 0.45)
    made["traffic"].setdefault("changes", []).append({**change, **when})
    made["truth"]["effects"].append(effect)

"""What can go wrong with the servers of a scenario: kinds of faults, and the keys of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

FaultKind = Literal[
    "slowdown",
    "clock_throttle",
    "wedge",
    "restart",
    "rollout",
    "scale",
    "gone",
    "stats_disabled",
    "bucket_layout",
    "missed_scrapes",
    "sleep",
    "acceptance",
]


class FaultFields(NamedTuple):
    """What a kind of fault is: in words, the keys that it needs, and those that it may have."""

    meaning: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


FAULT_KINDS: Mapping[FaultKind, FaultFields] = {
    "slowdown": FaultFields(
        "steps take `factor` times as long, after a `ramp` if there is one",
        ("factor",),
        ("until", "ramp"),
    ),
    "clock_throttle": FaultFields(
        "steps take `factor` times as long and the SM clock falls by as much",
        ("factor",),
        ("until",),
    ),
    "wedge": FaultFields(
        "the engine hangs: its page answers, gauges stand still, no token comes", (), ("until",)
    ),
    "restart": FaultFields(
        "nobody answers for `down`, then counters begin at 0", (), ("down", "serving")
    ),
    "rollout": FaultFields(
        "replicas restart one after the other, from the lowest number on, `every` so long",
        (),
        ("down", "every", "factor", "serving", "release", "vllm_version", "image"),
    ),
    "scale": FaultFields(
        "from then on there are `to` replicas; new ones answer after 40 s", ("to",)
    ),
    "gone": FaultFields("the servers run on and are no longer scraped", (), ("until",)),
    "stats_disabled": FaultFields(
        "a restart with `--disable-log-stats`: no `vllm:` series", (), ("down",)
    ),
    "bucket_layout": FaultFields(
        "a restart with `--custom-histogram-buckets`: every second edge", (), ("down",)
    ),
    "missed_scrapes": FaultFields("a `ratio` of the scrapes times out", ("ratio",), ("until",)),
    "sleep": FaultFields("the engine sleeps: it runs nothing and holds what comes", (), ("until",)),
    "acceptance": FaultFields(
        "a `ratio` of the drafted tokens is accepted (kind speculative)", ("ratio",), ("until",)
    ),
}

"""Phrases of an advice: knobs, targets, shares, gains, capacities."""

from __future__ import annotations

from driftwatch.model import Slo
from driftwatch.numbers import (
    brief,
    change,
    figure,
    knob,
    milliseconds,
    percent,
    plural,
    rate,
)


def add_replicas(more: int, have: int | None, *, at_least: bool = False) -> str:
    """As ``add 2 replicas (10 in all)``; of a pool of unknown size, beside each one."""
    text = f"add {'at least ' if at_least else ''}{plural(more, 'replica')}"
    return f"{text} ({have + more} in all)" if have else f"{text} for each of today's"


def admit(limit: float, have: int | None, offered: float) -> str:
    """A rate limit at the gateway, of all servers where their number is known.

    ``limit``, ``offered``: requests a second of one server.

    >>> admit(15.0, 8, 20.0)
    'let the gateway pass at most 120 req/s (15.0 per server): it turns 25 % away at once'
    """
    each = f"{rate(limit)} per server"
    most = f"{rate(have * limit)} ({figure(limit)} per server)" if have else each
    away = percent(1 - limit / offered)
    return f"let the gateway pass at most {most}: it turns {away} away at once"


def aims(slo: Slo | None, joined: str = " and ") -> str:
    """The targets as ``TTFT 1 s and TPOT 50 ms``."""
    if slo is None:
        return "a start within 1 s"
    targets = []
    if slo.ttft_seconds is not None:
        targets.append(f"TTFT {brief(slo.ttft_seconds)} s")
    if slo.tpot_seconds is not None:
        targets.append(f"TPOT {milliseconds(slo.tpot_seconds)}")
    return joined.join(targets) or "no target"


def within(slo: Slo | None) -> str:
    """What requests do that are in target, after their number."""
    return "start within 1 s" if slo is None else f"within {aims(slo)}"


def share_in_target(ratio: float, slo: Slo | None) -> str:
    """As ``98 % of requests in target``."""
    return f"{percent(ratio)} of requests {'start within 1 s' if slo is None else 'in target'}"


def points(gain: float) -> str:
    """As ``+21 points``."""
    number = round(100 * gain)
    return f"{number:+d} {'point' if abs(number) == 1 else 'points'}"


def gained(mean: float, low: float, high: float, inside: str = "") -> str:
    """As ``+21 points, between +0 and +35``; ``inside``: which requests, as ``within TTFT 1 s``.

    >>> gained(0.01, 0.0, 0.02, "within TTFT 1 s")
    '+1 point within TTFT 1 s, between +0 and +2'
    """
    first, last = round(100 * low), round(100 * high)
    between = "" if first == last else f", between {first:+d} and {last:+d}"
    return f"{points(mean)}{f' {inside}' if inside else ''}{between}"


def from_to(before: str, after: str) -> str:
    """As ``54 → 61 ms``: a unit that both have stands once.

    >>> from_to("54 ms", "61 ms"), from_to("900 ms", "1.20 s"), from_to("54 ms", "54 ms")
    ('54 → 61 ms', '900 ms → 1.20 s', 'stays 54 ms')
    """
    if before == after:
        return f"stays {after}"
    return f"{before.removesuffix(after[after.rindex(' ') :])} → {after}"


def capacity_gain(now: float | None, then: float | None) -> str | None:
    """As ``capacity 15.0 → 19.0 req/s per server (+27 %)``; None where either is unknown."""
    if not now or not then:
        return None
    return f"capacity {from_to(rate(now), rate(then))} per server ({change(then / now)})"


def what_if_text(name: str, value: float) -> str:
    """What was asked about, as ``3 replicas`` or ``max_num_seqs 64``."""
    if name == "replicas":
        return plural(value, "replica")
    if name == "prefix_hit_ratio":
        return f"{percent(value)} of prompt tokens cached"
    if name == "kv_cache_dtype_fp8":
        return "an fp8 KV cache"
    return f"{name} {knob(value)}"

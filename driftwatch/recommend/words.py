"""Numbers of an advice in words: three digits, units, from → to."""

from __future__ import annotations

from collections.abc import Mapping

from driftwatch.model import Slo


def digits(value: float) -> str:
    """Three digits, thousands with commas.

    >>> digits(27000), digits(15.04), digits(0.0512)
    ('27,000', '15.0', '0.0512')
    """
    if value and abs(value) >= 999.5:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    if "e" in text:
        return f"{value:.6f}".rstrip("0").rstrip(".")
    whole = text.lstrip("-0.").replace(".", "")
    if "." not in text and 0 < abs(value) < 100 and len(whole) < 3:
        return f"{value:.{max(0, 3 - len(text.lstrip('-')))}f}"
    return text


def percent(ratio: float) -> str:
    """A share without decimals; what is nearly all or nothing is not rounded to it.

    >>> percent(0.9996), percent(0.004), percent(0.42)
    ('99 %', '<1 %', '42 %')
    """
    if 0.0 < ratio < 0.005:
        return "<1 %"
    return f"{99 if 0.995 <= ratio < 1.0 else 100 * ratio:.0f} %"


def milliseconds(seconds: float) -> str:
    """As ``54 ms``."""
    if seconds < 1e-3:
        return f"{1000 * seconds:.2g} ms"
    text = digits(1000 * seconds)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} ms"


def rate(value: float) -> str:
    """As ``15.0 req/s``."""
    return f"{digits(value)} req/s"


def span(low: float, high: float) -> str:
    """A gain as a range of percent.

    >>> span(0.22, 0.28), span(0.05, 0.05)
    ('+22 to +28 %', '+5 %')
    """
    first, last = round(100 * low), round(100 * high)
    return f"{first:+d} %" if first == last else f"{first:+d} to {last:+d} %"


def change(knobs: Mapping[str, float], today: Mapping[str, float | None]) -> str:
    """As ``max_num_seqs 64 → 128``."""
    words = []
    for name, value in knobs.items():
        now = today.get(name)
        words.append(f"{name} {'off' if not now else f'{now:.0f}'} → {value:.0f}")
    return " and ".join(words)


def add_replicas(more: int, have: int | None, *, at_least: bool = False) -> str:
    """As ``add 2 replicas (10 in all)``; of a pool of unknown size, beside each one."""
    text = f"add {'at least ' if at_least else ''}{more} replica{'s' if more > 1 else ''}"
    return f"{text} ({have + more} in all)" if have else f"{text} for each"


def aims(slo: Slo | None, joined: str = " and ") -> str:
    """The targets as ``TTFT 1 s and TPOT 50 ms``."""
    if slo is None:
        return "a start within 1 s"
    targets = []
    if slo.ttft_seconds is not None:
        targets.append(f"TTFT {slo.ttft_seconds:.3g} s")
    if slo.tpot_seconds is not None:
        targets.append(f"TPOT {1000 * slo.tpot_seconds:.3g} ms")
    return joined.join(targets) or "no target"


def within(slo: Slo | None) -> str:
    """What requests do that are in target, after their number."""
    return "start within 1 s" if slo is None else f"within {aims(slo)}"


def share_in_target(ratio: float, slo: Slo | None) -> str:
    """As ``98 % of requests in target``."""
    return f"{percent(ratio)} of requests {'start within 1 s' if slo is None else 'in target'}"


def points(gain: float) -> str:
    """As ``+21 points``."""
    return f"{round(100 * gain):+d} points"


def gained(mean: float, low: float, high: float) -> str:
    """As ``+21 points, between +0 and +35``."""
    first, last = round(100 * low), round(100 * high)
    between = "" if first == last else f", between {first:+d} and {last:+d}"
    return f"{points(mean)}{between}"


def capacity_gain(now: float | None, then: float | None) -> str | None:
    """As ``capacity 15.0 → 19.0 req/s per replica (+27 %)``; None where either is unknown."""
    if not now or not then:
        return None
    return f"capacity {digits(now)} → {rate(then)} per replica ({100 * (then / now - 1):+.0f} %)"


def what_if_text(name: str, value: float) -> str:
    """What was asked about, as ``3 replicas`` or ``max_num_seqs 64``."""
    number = f"{value:.0f}" if value == int(value) else f"{value:g}"
    if name == "replicas":
        return f"{number} {'replica' if value == 1 else 'replicas'}"
    if name == "prefix_hit_ratio":
        return f"{100 * value:.0f} % of the prompt tokens cached"
    if name == "kv_cache_dtype_fp8":
        return "an fp8 KV cache"
    if name == "max_num_queued_tokens":
        return f"load turned away (max_num_queued_tokens {number})"
    return f"{name} {number}"

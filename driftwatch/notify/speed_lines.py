"""What pages of slowness, of traffic and of slow drift say: line 1 and the lines under it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from driftwatch.notify.numbers import (
    clean,
    figure,
    is_as_before,
    percent,
    times,
)
from driftwatch.notify.page_values import Page, value

SPEED_ALERTS = ("SlowerAtEqualLoad", "ReplicaSlow")
_TRENDS = (
    ("speed", "speed at equal load", -1),
    ("e2e_p99", "p99 end-to-end time at equal lengths", 1),
    ("e2e_p50", "p50 end-to-end time at equal lengths", 1),
)


def slower(page: Page, past: bool) -> list[str]:
    """``19 % slower at equal load``."""
    was = "was " if past else ""
    up_to = "up to " if (page.get("concerned") or {}).get("targets", 1) > 1 else ""
    ratio, demand = (
        value(page, "speed_at_equal_load_ratio"),
        value(page, "speed_at_equal_demand_ratio"),
    )
    if ratio is not None and ratio < 1:
        return [f"{was}{up_to}{percent(1 - ratio)} slower at equal load"]
    if demand is not None and demand < 1:
        return [f"{was}at least {percent(1 - demand)} slower at equal demand"]
    return [f"{was}slower at equal load"]


def replica_slow(page: Page, past: bool) -> list[str]:
    """``19 % slower than its twins``."""
    ratio, was = value(page, "speed_against_pool_ratio"), "was " if past else ""
    if ratio is None or ratio >= 1:
        own = value(page, "speed_at_equal_load_ratio")
        if own is not None and own < 1:
            return slower(page, past)
        return [f"{was}slower than its twins at equal load"]
    text = f"{was}{percent(1 - ratio)} slower than its twins"
    return [f"{text} at equal load", text]


def uneven(page: Page, past: bool) -> list[str]:
    """``prompts ×2.0 of its twins', generations as theirs``."""
    parts, same = [], []
    for stem in ("prompt", "generation"):
        ratio = value(page, f"{stem}_tokens_peer_ratio")
        if ratio is None:
            same.append(f"{stem}s unknown")
        elif is_as_before(ratio):
            same.append(f"{stem}s as theirs")
        else:
            parts.append(f"{stem}s {times(ratio)} of its twins'")
    were = "were " if past else ""
    if not parts:
        return [f"its lengths {were or 'are '}not those of its twins"]
    return [", ".join(parts + same), ", ".join(parts)]


def stale(page: Page, past: bool) -> list[str]:
    """``tune is stale: generations 211 → 338 tokens (×1.6), 24 h against the pin of …``."""
    before = (page["reference"] or {}).get("values") or {}
    parts = []
    for stem in ("prompt", "generation"):
        usual = value(page, f"{stem}_tokens_pin_score")
        ratio = value(page, f"{stem}_tokens_pin_ratio")
        if ratio is None or is_as_before(ratio):
            if usual is not None and usual > 1:
                parts.append(f"{stem}s distributed otherwise")
            continue
        was = before.get(f"{stem}_tokens_mean")
        if was is None:
            parts.append(f"{stem}s {times(ratio)}")
        else:
            now = _tokens(was * ratio)
            parts.append(f"{stem}s {_tokens(was)} → {now} tokens ({times(ratio)})")
    start = f"tune {'was' if past else 'is'} stale"
    if not parts:
        return [f"{start}: {against_pin(page)}", start]
    told = f"{start}: {', '.join(parts)}"
    return [f"{told}, {against_pin(page)}", told]


def against_pin(page: Page) -> str:
    """``24 h against the pin of 2026-10-27``."""
    since = (page["reference"] or {}).get("from")
    of = "" if since is None else f" of {datetime.fromisoformat(since):%Y-%m-%d}"
    return f"24 h against the pin{of}"


def creeps(page: Page, past: bool) -> list[str]:
    """``speed at equal load -4.2 % in 14 days``."""
    found = [text for name, word, bad in _TRENDS if (text := _trend(page, name, word, bad))]
    if not found:
        return [f"latency {'crept' if past else 'creeps'} from day to day"]
    return [f"{'was ' if past else ''}{found[0]}"]


def _trend(page: Page, name: str, word: str, bad: int) -> str | None:
    """The slope where its interval excludes 0 in the bad direction; slopes are of logarithms."""
    slope, low, high = (
        value(page, f"{name}_slope_14d_{part}ratio") for part in ("", "lower_", "upper_")
    )
    if slope is None or low is None or high is None or not (low > 0 if bad > 0 else high < 0):
        return None
    return f"{word} {_signed(slope)} in 14 days"


def _signed(log_ratio: float) -> str:
    percents = 100 * log_ratio + 50 * log_ratio**2  # exp(x) - 1 to the digits that are printed
    return f"{percents:+.1f} %"


def trend_lines(page: Page) -> Iterator[str]:
    """Each slow drift with its 95 % interval, or that there is none."""
    for name, word, _ in _TRENDS:
        slope, low, high = (
            value(page, f"{name}_slope_14d_{part}ratio") for part in ("", "lower_", "upper_")
        )
        if slope is not None and low is not None and high is not None:
            yield f"{word} {_signed(slope)} in 14 days (95 %: {_signed(low)} to {_signed(high)})"


def others_text(page: Page) -> str:
    """``1 of 8; the others at 0.99–1.01 of expected speed``."""
    twins: Mapping[str, Any] | None = page.get("twins")
    concerned = page.get("concerned")
    if concerned is not None and concerned["targets"] >= concerned["of_targets"]:
        return ""  # there are no others, and the page counts its targets itself
    if not twins:
        median = value(page, "pool_speed_at_equal_load_ratio")
        return "" if median is None else f"the others at {median:.2f} of expected speed"
    slow = twins["slower"] if concerned is None else concerned["targets"]
    if slow >= twins["of_targets"]:
        return f"{slow} of {twins['of_targets']}"
    low, high = (f"{twins[f'speed_{end}_ratio']:.2f}" for end in ("low", "high"))
    span = low if low == high else f"{low}–{high}"
    return f"{slow} of {twins['of_targets']}; the others at {span} of expected speed"


def seen_text(page: Page) -> str | None:
    """``step 13.0 ms, 10.5 expected at this load (r 0.81)``."""
    itl, ratio = value(page, "itl_seconds_mean"), value(page, "speed_at_equal_load_ratio")
    if ratio is None:
        demand = value(page, "speed_at_equal_demand_ratio")
        if demand is None:
            return None
        return f"at the demand that is offered {demand:.2f} of the expected speed, a bound"
    if itl is None:
        return f"{ratio:.2f} of the expected speed (r)"
    now, expected = figure(itl * 1000), figure(itl * ratio * 1000)
    return f"step {now} ms, {expected} expected at this load (r {ratio:.2f})"


def hidden_text(page: Page) -> str | None:
    """Throughput that stays because the batch grew: ``1,300 tokens/s/GPU as before: …``."""
    before = (page["reference"] or {}).get("values") or {}
    for column, unit in (
        ("tokens_per_second_per_gpu", "tokens/s/GPU"),
        ("generation_tokens_per_second", "tokens/s"),
    ):
        now, was = value(page, column), before.get(column)
        batch, batch_was = value(page, "effective_batch_size"), before.get("effective_batch_size")
        if not now or not was or not batch or not batch_was:
            continue
        if (
            is_as_before(now / was)
            and batch / batch_was > 1
            and not is_as_before(batch / batch_was)
        ):
            grew = f"{figure(batch_was)} → {figure(batch)}"
            return f"{figure(now)} {unit} as before: its batch grew {grew}"
    return None


def calibration_text(page: Page) -> str | None:
    """Against which reference and in whose past it was judged."""
    reference, past = value(page, "speed_reference"), value(page, "speed_calibration")
    known = [clean(str(reference))] if reference else []
    if past:
        whose = {"own": "its own past", "pool": "its pool's past", "shipped": "a shipped table"}
        word, _, marked = clean(str(past)).partition(" ")
        known.append(f"judged by {whose.get(word, word)} {marked}".rstrip())
    return "; ".join(known) or None


def slo_text(page: Page) -> str:
    """Whether the latency target is kept, where no share of requests says it."""
    missed = value(page, "slo_missed")
    if missed is not None:
        return "the latency target is missed" if missed else "in target"
    why = (page["evidence"].get("slo_missed") or {}).get("reason") or "not on the page"
    return f"whether a target is missed is unknown: {clean(why)}"


def _tokens(mean: float) -> str:
    return f"{round(mean):,}" if mean >= 100 else figure(mean)

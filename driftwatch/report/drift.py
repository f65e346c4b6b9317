"""Drift, what it cost, what was done, whether it worked: a row each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.knobs import COLUMN_KNOBS, KNOBS
from driftwatch.notify.phrases.traffic import length_ratio
from driftwatch.notify.verification_line import from_to
from driftwatch.numbers import (
    clean,
    clock_seconds,
    cut,
    duration,
    figure,
    is_as_before,
    percent_range,
    times,
    utc_text,
)
from driftwatch.report.cells import HOUR_SECONDS
from driftwatch.report.incidents import Cause, causes, is_open, key_of, namer
from driftwatch.report.material import Material
from driftwatch.verify.figures import WORDS
from driftwatch.verify.verification import Effect, Verification

# verdict → what the report calls it, what a person looks for first in front
_WORDS: Mapping[str, str] = {
    "FAIL": "did not work",
    "INCONCLUSIVE": "not proven",
    "open": "not verified yet",
    "PASS": "worked",
}


def verifications_of(
    incidents: Sequence[Incident], verifications: Iterable[Verification], until: datetime
) -> list[Verification]:
    """Verifications of changes that came after incidents began, on their targets or pools."""
    keys = {key_of(one) for one in incidents if one.target.get("instance")}
    pools = {one.target.get("pool") for one in incidents if not one.target.get("instance")}
    ids = {one.id for one in incidents}
    began = min(one.started_at for one in incidents)
    return [
        one
        for one in verifications
        if one.change.at < until
        and (
            one.incident_id in ids
            or (
                ((one.instance, one.engine) in keys or one.pool in pools) and one.change.at >= began
            )
        )
    ]


def done_text(verifications: Sequence[Verification]) -> str:
    """What was changed: ``budget 2048``, ``release 0.11.0``.

    >>> done_text([])
    'no change found'
    """
    words: dict[str, None] = {}
    for one in verifications:
        for name, (_, after) in sorted(one.change.what.items()):
            what = KNOBS[name].short if name in KNOBS else clean(name)
            words[f"{what} {cut(clean(after), 24)}"] = None
    return ", ".join(words) or "no change found"


def standing(one: Verification, until: datetime) -> str:
    """Its verdict as it stood at a time."""
    return "open" if one.closed_at is None or one.closed_at >= until else one.verdict


def result_text(verifications: Sequence[Verification], until: datetime) -> str | None:
    """Did it work: ``worked, 1 → 100 %``, or of several ``7 worked``; None without any."""
    verdicts = Counter(standing(one, until) for one in verifications)
    if not verdicts:
        return None
    if len(verdicts) > 1:
        return ", ".join(
            f"{verdicts[name]} {word}" for name, word in _WORDS.items() if verdicts[name]
        )
    (verdict,) = verdicts
    word = _WORDS[verdict]
    if verdict == "open":
        return word
    last = verifications[-1]
    effect = effect_text(main_effect(last.effects))
    return f"{word}, {effect}" if effect else word


def main_effect(effects: Sequence[Effect]) -> Effect | None:
    """The one that says most: requests in target, else the first, which decided the verdict."""
    for one in effects:
        if one.name == "in_target_ratio":
            return one
    return effects[0] if effects else None


def effect_text(effect: Effect | None) -> str:
    """From → to with its unit: ``1 → 100 %``, ``TTFT 1.8 → 0.06 s``."""
    if effect is None:
        return ""
    name = "" if effect.name == "in_target_ratio" else f"{effect_name(effect.name)} "
    return f"{name}{from_to(effect)}"


def effect_name(column: str) -> str:
    """``TTFT`` of ttft_seconds_mean; other columns as ``driftwatch verify`` calls them."""
    for stem in ("ttft", "itl", "tpot", "e2e"):
        if column.startswith(f"{stem}_"):
            return stem.upper()
    return WORDS.get(column) or clean(column)


_RECOVERED = 0.95  # of the usual speed
_LAST_CELLS = 36  # six hours: a speed of ten minutes wanders
_AFTER = timedelta(hours=1)  # a restart so long after an incident is what somebody did about it
_LIMITS: Mapping[str, str] = {
    **{name: f"{KNOBS[name].short} full" for name in COLUMN_KNOBS},
    "kv_cache": "KV full",
    "deferred": "deferred",
}


def drift_rows(material: Material) -> list[dict[str, Any]]:
    """The drift table as JSON values, the costliest first."""
    name = namer(material)
    rows = [_row(material, cause, name) for cause in causes(material)]
    return sorted(rows, key=lambda r: (-_weight(r["cost"]), r["from"], r["subject"]))


def _row(material: Material, cause: Cause, name: Callable[[Incident], str]) -> dict[str, Any]:
    family, episodes, cells = cause.family, cause.incidents, cause.cells
    subjects = {name(one) for one in episodes}
    pool = clean(episodes[0].target.get("pool") or episodes[0].key)
    subject = subjects.pop() if len(subjects) == 1 else pool
    changed = verifications_of(episodes, material.verifications, material.until)
    still = [one for one in episodes if is_open(one, material.until)]
    return {
        "subject": subject,
        "pool": episodes[0].target.get("pool"),
        "family": family,
        "figure": _figure(family, episodes, cells),
        "alerts": sorted({one.alert for one in episodes}),
        "incidents": [one.id for one in episodes],
        "from": utc_text(min(one.started_at for one in episodes)),
        "open": bool(still),
        "cost": cost(material, family, cells),
        "done": _done(material, cause, changed),
        "verifications": [one.id for one in changed],
        "result": result_text(changed, material.until) or _result(material, family, episodes),
    }


def _figure(family: str, episodes: Sequence[Incident], cells: pl.DataFrame) -> str:
    """What moved, in a few words: ``prompts ×2.3``, ``19 % slower``, ``budget full``."""
    pages = [one.page for one in episodes if one.page is not None]
    if family == "traffic":
        ratios = [(s, length_ratio(p, s)) for p in pages for s in ("prompt", "generation")]
        moved = [(stem, r) for stem, r in ratios if r and not is_as_before(r)]
        if moved:
            stem, ratio = max(moved, key=lambda pair: max(pair[1], 1 / pair[1]))
            return f"{stem}s {times(ratio)}"
        binds = (_LIMITS.get(str(p.value("binding_limit"))) for p in pages)
        return next((text for text in binds if text), "waits")
    if family == "speed":
        slow, lost = (float(cells[c].sum()) for c in ("slow_seconds", "lost_seconds"))
        speeds = [p.value("speed_at_equal_load_ratio") for p in pages]
        loss = lost / slow if slow and lost else 1 - min((r for r in speeds if r), default=1.0)
        return f"{100 * loss:.0f} % slower" if loss > 0 else "slower"
    if stuck := float(cells["stuck_seconds"].sum()):
        return f"no token for {duration(stuck)}"
    texts = [p.phrases.problem[-1] for p in pages]
    return clean(texts[0]) if texts else clean(episodes[0].alert)


def cost(material: Material, family: str, cells: pl.DataFrame) -> dict[str, Any]:
    """What cells cost: requests over target, GPU-hours lost."""
    over, unknown = requests_over(material, cells)
    lost, gpus_unknown = gpu_hours_lost(cells)
    return {
        "requests_over_target_low": over[0],
        "requests_over_target_high": over[1],
        "requests_over_target_reason": unknown,
        **_share_of_all(material, cells, over),
        "targets_derived": unknown is None and _any_derived(material, cells),
        "gpu_hours_lost": lost,
        "gpu_hours_lost_reason": gpus_unknown,
        "server_hours_lost": float(cells["lost_seconds"].sum()) / HOUR_SECONDS,
        "waited_hours": _waited(cells),
        "kind": "gpu_hours" if family in ("speed", "stuck") else "requests",
    }


def requests_over(
    material: Material, cells: pl.DataFrame
) -> tuple[tuple[float | None, float | None], str | None]:
    """Requests over one of their targets, bounds, and why they are not known.

    A target inside a bucket leaves a range, and so do two targets: which requests missed both no
    metric says.
    """
    pools = cells["pool"].unique().to_list()
    if cells.is_empty():
        return (None, None), "no minute of it is kept"
    if not any(pool in material.slos for pool in pools):
        return (None, None), "no SLO"
    with_target = cells.filter(pl.col("pool").is_in(sorted(material.slos)))
    names = [n for n in ("ttft", "tpot") if with_target[f"{n}_over_low"].is_not_null().any()]
    if not names:
        return (None, None), "no histogram of it"
    low = max(float(with_target[f"{n}_over_low"].sum()) for n in names)
    high = sum(float(with_target[f"{n}_over_high"].sum()) for n in names)
    most = float(with_target["ttft_seconds_count"].sum() or high)
    return (low, max(low, min(high, max(most, low)))), None


def _share_of_all(
    material: Material, cells: pl.DataFrame, over: tuple[float | None, float | None]
) -> dict[str, float | None]:
    """Requests over target as shares of all requests of the week in the same pools."""
    pools = [pool for pool in cells["pool"].unique().to_list() if pool in material.slos]
    of_pools = material.cells.filter(pl.col("pool").is_in(pools))
    requests = float(of_pools["ttft_seconds_count"].sum() or 0.0)
    return {
        f"requests_over_target_{bound}_ratio": None
        if number is None or not requests
        else min(1.0, number / requests)
        for bound, number in zip(("low", "high"), over, strict=True)
    }


def gpu_hours_lost(cells: pl.DataFrame) -> tuple[float | None, str | None]:
    """Σ (1 - r) · GPUs · h; None where no minute tells the speed, or nobody counted the GPUs."""
    seconds = float(cells["verdict_seconds"].sum()) + float(cells["lost_seconds"].sum())
    if not seconds:
        return None, "no verdict on the speed"
    unknown = (cells["lost_seconds"] > 0) & cells["lost_gpu_seconds"].is_null()
    if unknown.any():
        return None, "GPU count unknown"
    return float(cells["lost_gpu_seconds"].sum()) / HOUR_SECONDS, None


def _any_derived(material: Material, cells: pl.DataFrame) -> bool:
    return bool(set(cells["pool"].unique().to_list()) & material.derived)


def _waited(cells: pl.DataFrame) -> float | None:
    """How long requests waited for their first step, all of them together."""
    waited = cells["queue_seconds_sum"]
    return None if waited.is_null().all() else float(waited.sum()) / HOUR_SECONDS


def _weight(costs: Mapping[str, Any]) -> float:
    """Which of two costs comes first; GPU-hours and requests are only roughly comparable."""
    hours = costs["server_hours_lost"]
    return float(costs["requests_over_target_high"] or 0.0) + 3600.0 * float(hours)


def cost_text(costs: Mapping[str, Any]) -> str:
    """A cost in a cell of the table.

    >>> cost_text({"kind": "gpu_hours", "gpu_hours_lost": 0.3})
    '0.30 GPU-hours lost'
    """
    if costs["kind"] == "gpu_hours":
        missed = costs.get("requests_over_target_low")
        return lost_text(costs) + (f", {over_text(costs)} requests missed" if missed else "")
    if (why := costs["requests_over_target_reason"]) is not None:
        waited = costs["waited_hours"]
        waits = "waits unknown" if waited is None else f"requests waited {hours_text(waited)} h"
        return f"{waits}; {why}"
    # nobody asked for the derived target: twice the baseline's p95
    aim = " twice the baseline's p95" if costs["targets_derived"] else ""
    return f"{over_text(costs)} requests missed{aim}"


def lost_text(costs: Mapping[str, Any]) -> str:
    """``0.30 GPU-hours lost``; server-hours, or why it is unknown."""
    lost = costs["gpu_hours_lost"]
    if lost is None:
        hours, why = costs["server_hours_lost"], costs["gpu_hours_lost_reason"]
        return f"{hours_text(hours)} server-hours lost, {why}" if hours else f"unknown: {why}"
    return f"{hours_text(lost)} GPU-hours lost"


def over_text(costs: Mapping[str, Any]) -> str:
    """Requests over target: ``414k``, ``300–400``."""
    low, high = (compact(costs[f"requests_over_target_{b}"]) for b in ("low", "high"))
    return low if low == high else f"{low}–{high}"


def missed_text(costs: Mapping[str, Any]) -> str:
    """Requests over target and their share of all: ``414k (3.1 %)``, or why it is unknown."""
    if (why := costs["requests_over_target_reason"]) is not None:
        return str(why)
    low, high = (costs.get(f"requests_over_target_{bound}_ratio") for bound in ("low", "high"))
    if low is None or high is None:
        return over_text(costs)
    return f"{over_text(costs)} ({percent_range(low, high)})"


def hours_text(hours: float) -> str:
    """Hours with two or three digits."""
    return "0" if hours == 0 else f"{hours:.2f}" if hours < 1 else figure(hours)


def compact(value: float | None) -> str:
    """A count for a narrow column.

    >>> compact(414_200), compact(87), compact(1_250_000), compact(None)
    ('414k', '87', '1.25M', '?')
    """
    if value is None:
        return "?"
    if value < 10_000:
        return f"{round(value):,}"
    return f"{figure(value / 1e6)}M" if value >= 999_500 else f"{figure(value / 1e3)}k"


def _done(material: Material, cause: Cause, changed: Sequence[Any]) -> str:
    episodes = cause.incidents
    if changed:
        return done_text(changed)
    if restarted := _restarted(material, cause):
        return "restarted" if restarted == 1 else f"{restarted} restarted"
    reasons = [None if one.page is None else one.page.resolved_reason for one in episodes]
    ends = [reason for reason in reasons if reason]
    if ends:
        return clean(ends[-1].split(" (")[0])
    acked = sorted({one.acknowledged_by for one in episodes if one.acknowledged_by})
    return f"acknowledged by {clean(acked[0])}" if acked else "no change found"


def _restarted(material: Material, cause: Cause) -> int:
    """How many of its targets restarted from its beginning until an hour after its end."""
    keys = cause.cells.select("instance", "engine").unique()
    ends = [one.resolved_at or material.until for one in cause.incidents]
    after = min(one.started_at for one in cause.incidents), max(ends) + _AFTER
    restarts = material.cells.filter(
        pl.col("restarted").fill_null(False)
        & (pl.col("end") > after[0])
        & (pl.col("end") <= after[1])
    )
    return restarts.join(keys, on=keys.columns, how="semi").n_unique(keys.columns)


def _result(material: Material, family: str, episodes: Sequence[Incident]) -> str:
    """Without a verification: how long it lasted, or how fast the engine is since it ended."""
    still = [one for one in episodes if is_open(one, material.until)]
    if still:
        since = min(one.started_at for one in still)
        return f"open {duration((material.until - since).total_seconds())}"
    if family == "speed" and episodes[-1].target.get("instance"):
        key = key_of(episodes[-1])
        ended = max(one.resolved_at or material.until for one in episodes)
        mine = material.cells.filter(
            (pl.col("instance") == key.instance)
            & (pl.col("engine") == key.engine)
            & (pl.col("end") > ended)
            & pl.col("speed_at_equal_load_ratio").is_not_null()
        )
        if len(mine):
            ratio = float(mine["speed_at_equal_load_ratio"].tail(_LAST_CELLS).to_numpy().mean())
            return f"speed {100 * ratio:.0f} %{' again' if ratio >= _RECOVERED else ''}"
    return f"over after {duration(_covered(material, episodes))}"


def _covered(material: Material, episodes: Sequence[Incident]) -> float:
    """Seconds in which any of them was open; what overlaps counts once."""
    covered, last = 0.0, None
    for one in sorted(episodes, key=lambda i: i.started_at):
        end = one.resolved_at or material.until
        began = one.started_at if last is None else max(one.started_at, last)
        covered += clock_seconds(began, end) if end > began else 0.0
        last = end if last is None else max(last, end)
    return covered

"""The verdict of one change: its minutes before and after, matched, compared and judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.model import Slo
from driftwatch.verify.compare import Comparison, compare
from driftwatch.verify.figures import inside_bucket
from driftwatch.verify.judge import judge, load_not_met, promised
from driftwatch.verify.matching import after_change, before_change, comparable, with_traffic
from driftwatch.verify.verification import Verification

# A day has every load and every mix of a day.
LOOK_BACK = timedelta(hours=24)
# What took longer to show is not told from what else changes in a week.
LONGEST = timedelta(days=7)
# The change is looked at whenever so many minutes came after it. Each look knows twice as much as
# the one before, so two neighbours correlate by sqrt(1/2). One limit for all of them (Pocock,
# "Group sequential methods in the design and analysis of clinical trials", Biometrika 64, 1977):
# ten such looks cross 2.71 standard deviations by chance in 5 % of cases, both ways together.
LOOKS = (10, 20, 40, 80, 160, 320, 640, 1440, 2880, 5760)
LOOK_CONFIDENCE = 0.9933
# An empty prefix cache makes a fresh server look worse than it is, and a few bursts less make any
# look better: a FAIL waits for so many minutes, and so does a PASS of what nobody had promised.
FEWEST_UNPROMISED = 30


@dataclass(frozen=True, slots=True)
class Stretch:
    """From when to when."""

    start: datetime
    end: datetime


def looks_done(minutes_after: int) -> int:
    """How many looks so many comparable minutes allow."""
    return sum(minutes_after >= needed for needed in LOOKS)


def minutes_of_change(
    minutes: pl.DataFrame, at: datetime, until: datetime
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Comparable minutes before and after a change.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of the target, by end.
    """
    rows = with_traffic(minutes)
    return before_change(rows, at, at - LOOK_BACK), after_change(rows, at, until)


def minutes_of_stretches(
    before: pl.DataFrame, after: pl.DataFrame, one: Stretch, other: Stretch
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Comparable minutes of two named stretches, of one target or of two."""
    return _inside(before, one), _inside(after, other)


def _inside(minutes: pl.DataFrame, stretch: Stretch) -> pl.DataFrame:
    rows = with_traffic(minutes)
    return comparable(rows.filter(pl.col("end") > stretch.start, pl.col("end") <= stretch.end))


def verified(
    opened: Verification,
    before: pl.DataFrame,
    after: pl.DataFrame,
    at: datetime,
    *,
    slo: Slo | None = None,
    confidence: float = 0.95,
) -> Verification:
    """The verification with what the minutes say now; its verdict is never "open".

    ``slo``: latency targets; None = those that the forecast was made for.
    """
    slo = slo or targets_of(opened)
    comparison = compare(
        before, after, slo=slo, forecast=promised(opened.forecast), confidence=confidence
    )
    judgement = judge(comparison, opened.change.kind, opened.forecast)
    unmet = load_not_met(comparison, opened.forecast)
    if unmet is not None:
        apart = tuple(replace(effect, forecast=None) for effect in comparison.effects)
        comparison = replace(comparison, effects=apart)
    return replace(
        opened,
        closed_at=at,
        verdict=judgement.verdict,
        reason=judgement.reason,
        effects=tuple(sorted(comparison.effects, key=lambda one: one.name != judgement.primary)),
        matched_minutes=comparison.matched.minutes,
        notes=(
            *([unmet] if unmet else []),
            *_notes(opened, comparison, before, after, slo, confidence),
        ),
    )


def targets_of(opened: Verification) -> Slo | None:
    """The latency targets that a forecast was made for; None where it names none."""
    slo = (opened.forecast or {}).get("slo")
    if not slo:
        return None
    return Slo(slo.get("ttft_seconds"), slo.get("tpot_seconds"), slo.get("share") or Slo().share)


def look(
    opened: Verification,
    before: pl.DataFrame,
    after: pl.DataFrame,
    at: datetime,
    *,
    slo: Slo | None = None,
) -> Verification:
    """An open verification after another look: closed where the verdict fell, else open still."""
    verification = verified(opened, before, after, at, slo=slo, confidence=LOOK_CONFIDENCE)
    promised_pass = verification.verdict == "PASS" and opened.forecast is not None
    decided = verification.verdict != "INCONCLUSIVE" and len(after) >= FEWEST_UNPROMISED
    if promised_pass or decided or at - opened.change.at >= LONGEST:
        return verification
    return replace(verification, verdict="open", closed_at=None)


def superseded(opened: Verification, at: datetime) -> Verification:
    """An open verification that another change ended."""
    reason = "another change came before a verdict"
    return replace(
        opened,
        verdict="INCONCLUSIVE",
        closed_at=at,
        reason=f"{reason} ({opened.reason})" if opened.reason else reason,
    )


def _notes(
    opened: Verification,
    comparison: Comparison,
    before: pl.DataFrame,
    after: pl.DataFrame,
    slo: Slo | None,
    confidence: float,
) -> tuple[str, ...]:
    notes = []
    if len(opened.change.what) > 1:
        notes.append(f"{len(opened.change.what)} things changed at once: the verdict is of all")
    if comparison.load_before is not None and comparison.load_after is not None:
        notes.append(
            f"offered {comparison.load_before:.3g} requests/s before, "
            f"{comparison.load_after:.3g} after, mean of the matched minutes"
        )
    if comparison.load == "more":
        notes.append("more load after the change than before: gains are lower bounds")
    elif comparison.load == "less":
        notes.append("less load after the change than before: losses are lower bounds")
    saturated = int(before["saturated"].sum()) / max(1, len(before))
    if saturated > 0.5:
        notes.append(
            f"requests waited in {100 * saturated:.0f} % of the minutes before: matched on "
            "arrivals (first tokens + growth of the queue), not on what was served"
        )
    notes += inside_bucket(after, slo) if len(after) else []
    if comparison.enough:
        notes.append(
            f"differences: {100 * confidence:.4g} % intervals, the usual variation of the engine's "
            "speed included"
        )
    return tuple(notes)

"""Verifications as text: one in full, a list, the track record."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from driftwatch.cli.output import encodable, lines, render
from driftwatch.notify.layout import wrap
from driftwatch.notify.numbers import moment, utc_text
from driftwatch.notify.verification_line import difference_text, effect_text, value_text
from driftwatch.verify.changes import text_of
from driftwatch.verify.figures import SHARES, WORDS
from driftwatch.verify.verification import VERIFICATION, cell_text

if TYPE_CHECKING:
    from driftwatch.verify.verification import TrackRecord, Verification

HEADER = ("ID", "VERDICT", "SINCE UTC", "TARGET", "CHANGE")
_WIDTH = 80


def target_of(verification: Verification) -> str:
    """``host:8000``, or ``host:8000/1`` for another engine than 0."""
    from driftwatch.model import TargetKey

    return TargetKey(verification.instance, verification.engine).text


def changed_text(verification: Verification) -> str:
    """What changed."""
    return text_of(verification.change) or "no known change"


def one_in_full(verification: Verification, now: datetime) -> Iterator[str]:
    """Lines of one verification, at most 80 columns on a terminal; piped not cut."""
    for line in _lines(verification, now):
        if sys.stdout.isatty():
            yield from (encodable(short) for short in wrap(line, _WIDTH, "  "))
        else:
            yield encodable(line)


_WORKED = {
    "PASS": "IT WORKED, same traffic before and after",
    "FAIL": "IT DID NOT WORK, same traffic before and after",
}


def _lines(verification: Verification, now: datetime) -> Iterator[str]:
    document = VERIFICATION.document(verification)
    effects = document["effects"]
    closed = verification.closed_at
    head = f"{verification.verdict}{'' if closed is None else f' {moment(closed, now.date())}'}: "
    worked = _WORKED.get(verification.verdict)
    if worked is None or not effects:
        yield f"{head}{verification.reason}"
    else:
        yield f"{head}{worked}: {effect_text(effects[0])}"
    since = moment(verification.change.at, now.date())
    yield f"{target_of(verification)}: {changed_text(verification)} at {since}"
    if worked is not None and effects:
        yield f"why: {verification.reason}"
    if verification.forecast is None:
        yield "forecast: none, driftwatch had not advised this change"
    # spelled before they are aligned
    rows = [tuple(map(encodable, _row(effect))) for effect in effects]
    if rows:
        minutes_before, minutes_after = verification.matched_minutes
        yield (
            f"compared: {minutes_before} min before with {minutes_after} min after, at the same "
            "lengths and load; means and the limits of their difference"
        )
        header = ("figure", "before", "after", "difference", "forecast")
        if sys.stdout.isatty():
            yield from render(header, rows, width=_WIDTH)
        else:
            yield from ("\t".join(row) for row in (header, *rows))
    yield from verification.notes
    if verification.itl_p99_cell_seconds is not None:
        yield f"after: {cell_text(verification.itl_p99_cell_seconds)}"
    if any(effect.low <= -effect.before < 0 < effect.after for effect in verification.effects):
        yield "a lower limit of minus the mean before: too few minutes to bound it closer"


def _row(effect: Mapping[str, Any]) -> tuple[str, ...]:
    forecast = effect["forecast"]
    return (
        WORDS[effect["name"]],
        value_text(effect["before"], effect),
        value_text(effect["after"], effect),
        difference_text(effect),
        "not forecast" if forecast is None else value_text(forecast, effect),
    )


def listed(verifications: Sequence[Verification], now: datetime) -> list[str]:
    """A line each; piped whole rows: id, verdict, since, target, change, closed, reason."""
    short = [
        (
            one.id[:8],
            one.verdict,
            moment(one.change.at, now.date()).removesuffix(" UTC"),
            target_of(one),
            changed_text(one),
        )
        for one in verifications
    ]
    full = [
        (
            one.id,
            one.verdict,
            utc_text(one.change.at),
            target_of(one),
            changed_text(one),
            "" if one.closed_at is None else utc_text(one.closed_at),
            one.reason,
        )
        for one in verifications
    ]
    return lines(HEADER if verifications else (), short, full)


def record_lines(record: TrackRecord) -> Iterator[str]:
    """The track record: verdicts, then how far forecasts were off, by figure."""
    yield f"advised changes: {_verdicts(record.advised)}"
    yield f"other changes: {_verdicts(record.others)}"
    counts: dict[str, int] = {}
    for one in record.forecasts:
        counts[one.name] = counts.get(one.name, 0) + 1
    rows = [
        (
            WORDS[name],
            str(counts[name]),
            _off(name, error),
            _off(name, record.median_signed_error[name], signed=True),
        )
        for name, error in record.median_error.items()
    ]
    if not rows:
        yield "no forecast has been compared with a measurement yet"
        return
    header = ("figure", "forecasts", "median error", "measured minus forecast")
    yield from lines(header, rows, [header, *rows])


def _verdicts(counts: Mapping[str, int]) -> str:
    parts = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    return ", ".join(parts) or "none"


def _off(name: str, error: float, *, signed: bool = False) -> str:
    unit = " points" if name in SHARES else " %"
    value = 100 * error
    sign = "+" if signed and value > 0 else ""
    return f"{sign}{value:.3g}{unit}"


def record_document(record: TrackRecord) -> dict[str, Any]:
    """The track record as JSON values."""
    return {"schema_version": 1, **asdict(record)}

"""Rules over minutes of a pool's servers, as a tick takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import polars as pl

from driftwatch.condition import parse_condition
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Severity, Target, TargetKey
from driftwatch.pipeline.incidents import advance, just_ended
from driftwatch.rulebook.rules import Rule
from driftwatch.rulebook.values import Family, PageForm

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
# server → column → a letter a minute (T, F, ? unknown; of limit_full s = max_num_seqs, - = none)
Minutes = Mapping[str, Mapping[str, str]]
_BOOLEANS = ("slower_at_equal_load", "requests_wait", "target_missed", "lengths_moved")
_LETTERS = {"T": True, "F": False, "?": None, "s": "max_num_seqs", "-": "none"}


def rule_of(
    name: str,
    when: str,
    family: Family | None = None,
    severity: Severity = "page",
    by: tuple[str, ...] = (),
    until: str | None = None,
    keep: int = 0,
) -> Rule:
    """A rule with its alert's name as its id; ``keep``: minutes."""
    return Rule.model_construct(
        id=name,
        alert=name,
        group="group",
        severity=severity,
        when=parse_condition(when),
        until=None if until is None else parse_condition(until),
        keep_firing_for_seconds=60.0 * keep,
        inhibited_by=by,
        page=PageForm(family=family),
    )


SLOW = rule_of("Slow", "slower_at_equal_load", "speed")
FULL = rule_of(
    "Full", "limit_full <> 'none' AND target_missed", "traffic", by=("Slow", "Drift"), keep=2
)
DRIFT = rule_of("Drift", "lengths_moved AND target_missed", "traffic", by=("Slow", "Full"))
WAVE = rule_of("Wave", "requests_wait", None, "notice", by=("Slow", "Full"))


def targets(many: int, pool: str = "chat") -> dict[TargetKey, Target]:
    """``s0:8000`` and so on."""
    keys = [TargetKey(f"s{i}:8000", "0") for i in range(many)]
    return {key: Target(key, {}, pool) for key in keys}


def rows_of(of: Minutes, many: int, minutes: int) -> pl.DataFrame:
    """A row per server and minute; a short text goes on as it ends, a column without one is F."""
    made = []
    for key in targets(many):
        said = of.get(key.instance.split(":")[0], {})
        for minute in range(minutes):
            row = {"instance": key.instance, "engine": "0", "pool": "chat"}
            for name in (*_BOOLEANS, "limit_full"):
                text = said.get(name, "-" if name == "limit_full" else "F")
                row[name] = _LETTERS[text[min(minute, len(text) - 1)]]  # type: ignore[assignment]
            made.append({**row, "end": START + timedelta(minutes=minute + 1)})
    unknown = pl.lit(None, pl.Float64)
    types = dict.fromkeys(_BOOLEANS, pl.Boolean)
    return pl.DataFrame(made, schema_overrides=types, orient="row").with_columns(
        seconds_since_last_token=unknown,
        coverage_missing_seconds=unknown,
    )


def lived(
    rules: Sequence[Rule], of: Minutes, many: int, minutes: int, cuts: Sequence[int] = ()
) -> tuple[dict[str, Incident], list[Transition], list[Transition]]:
    """Open incidents, what happened, and refreshes; in ticks that end at ``cuts``."""
    rows = rows_of(of, many, minutes)
    incidents, happened, refreshes = dict[str, Incident](), list[Transition](), list[Transition]()
    for first, last in pairwise([0, *sorted(cuts), minutes]):
        span = START + timedelta(minutes=first), START + timedelta(minutes=last)
        piece = rows.filter(pl.col("end") > span[0], pl.col("end") <= span[1])
        if piece.is_empty():
            continue
        verdicts = piece.select(rule.verdict.alias(rule.id) for rule in rules)
        over = just_ended((one.incident for one in happened), span[0])
        incidents, told, looked = advance(rules, incidents, targets(many), piece, verdicts, over)
        happened += told
        refreshes += looked
    return incidents, happened, refreshes


def told(happened: Sequence[Transition]) -> list[str]:
    """``3 firing Slow``."""
    texts = []
    for one in happened:
        minute = round((one.at - START) / timedelta(minutes=1))
        texts.append(f"{minute} {one.event} {one.incident.alert}")
    return texts


def concerned(incidents: Mapping[str, Incident]) -> dict[str, str]:
    """Alert → the servers that its messages count."""
    return {
        one.alert: " ".join(key.instance.split(":")[0] for key in one.concerned)
        for one in incidents.values()
    }

"""Minutes of rows of real columns, lived through as a tick does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import polars as pl

from driftwatch.condition import parse_condition
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.incidents import advanced
from driftwatch.rulebook.rules import Group, Rule

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
T, F, U = True, False, None
Minutes = Mapping[str, Sequence[bool | None]]

SLOW = Rule(
    "SlowerAtEqualLoad",
    "SlowerAtEqualLoad",
    "speed",
    "page",
    when=parse_condition("slower_at_equal_load"),
    until=parse_condition("gauges_live"),
    inhibited_by=("ReplicaSlow",),
)
REPLICA = Rule(
    "ReplicaSlow",
    "ReplicaSlow",
    "speed",
    "page",
    when=parse_condition("slower_than_pool"),
    inhibited_by=("SlowerAtEqualLoad",),
)
TOGETHER = replace(SLOW, together=Group(180.0, 1800.0))
PER_POOL = replace(SLOW, per="pool")


def targets(many: int) -> dict[TargetKey, Target]:
    keys = [TargetKey(f"s{i}:8000", "0") for i in range(many)]
    return {key: Target(key, {}, "chat") for key in keys}


def table(of: Mapping[str, Minutes], many: int, minutes: int) -> pl.DataFrame:
    """Rows of each server: column → its values; a short row goes on as it ends, else False."""
    columns = ("slower_at_equal_load", "gauges_live", "slower_than_pool")
    made = []
    for key in sorted(targets(many)):
        said = of.get(key.instance.split(":")[0], {})
        for minute in range(minutes):
            row = {
                c: (said[c][minute] if minute < len(said[c]) else said[c][-1]) if c in said else F
                for c in columns
            }
            end = START + timedelta(minutes=minute + 1)
            made.append({"instance": key.instance, "engine": "0", "end": end, **row})
    since = dict.fromkeys(
        ("seconds_since_last_token", "coverage_missing_seconds"),
        pl.lit(None, pl.Float64),
    )  # fmt: skip
    never = pl.lit(None, pl.Datetime("us", "UTC"))
    return pl.DataFrame(
        made, schema_overrides=dict.fromkeys(columns, pl.Boolean), orient="row"
    ).with_columns(
        pool=pl.lit("chat"), ever_seen=pl.lit(True), binding_since=never, deferred_since=never,
        **since,
    )  # fmt: skip


def live(
    rules: Sequence[Rule],
    of: Mapping[str, Minutes],
    minutes: int,
    many: int = 1,
    cuts: Sequence[int] = (),
    never: str = "",
) -> tuple[dict[str, Incident], list[Transition]]:
    """Live through the minutes, in pieces that end at ``cuts``; ``never`` never answered."""
    rows = table(of, many, minutes).with_columns(ever_seen=pl.col("instance") != f"{never}:8000")
    incidents: dict[str, Incident] = {}
    happened: list[Transition] = []
    bounds = [0, *sorted(cuts), minutes]
    for first, last in pairwise(bounds):
        span = (START + timedelta(minutes=first), START + timedelta(minutes=last))
        piece = rows.filter((pl.col("end") > span[0]) & (pl.col("end") <= span[1]))
        if piece.is_empty():
            continue
        verdicts = piece.select(rule.verdict.alias(rule.id) for rule in rules)
        incidents, told = advanced(rules, incidents, targets(many), piece, verdicts)
        happened += told
    return incidents, happened


def told(happened: Sequence[Transition]) -> list[tuple[str, str, int]]:
    """Alert@where, event, minute."""
    return [
        (
            f"{t.incident.alert}@{t.incident.target.get('instance', 'pool').split(':')[0]}",
            t.event,
            round((t.at - START).total_seconds() / 60),
        )
        for t in happened
    ]

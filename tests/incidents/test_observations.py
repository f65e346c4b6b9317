"""Rows that can change no incident are dropped: what comes of the others is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.condition import parse_condition
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline import incidents as module
from driftwatch.pipeline.incidents import advanced
from driftwatch.pipeline.observations import relevant_verdicts
from driftwatch.rulebook.rules import Group, Override, Rule

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SERVERS, MINUTES = 4, 40
COLUMNS = ("slower_at_equal_load", "gauges_live", "slower_than_pool")
PLAIN = Rule("Plain", "Plain", "speed", "page", when=parse_condition("slower_than_pool"))

Values = Sequence[bool | None]


def rule_of(
    hysteresis: bool,
    for_minutes: int,
    keep_minutes: int,
    form: str,
    inhibited: bool,
    override: tuple[bool, int] | None,
) -> Rule:
    rule = Rule(
        "Slow",
        "Slow",
        "speed",
        "page",
        when=parse_condition("slower_at_equal_load"),
        until=parse_condition("gauges_live") if hysteresis else None,
        for_seconds=60.0 * for_minutes,
        keep_firing_for_seconds=60.0 * keep_minutes,
        per="pool" if form == "pool" else "target",
        together=Group(120.0, 300.0) if form == "group" else None,
        inhibited_by=("Plain",) if inhibited else (),
    )
    if override is None:
        return rule
    until = parse_condition("gauges_live") if override[0] else None
    there = replace(rule, until=until, keep_firing_for_seconds=60.0 * override[1])
    return replace(rule, overrides=(Override(("ch*",), there),))


rules = st.builds(
    rule_of,
    st.booleans(),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from(("target", "pool", "group")),
    st.booleans(),
    st.none() | st.tuples(st.booleans(), st.integers(0, 6)),
)
# long calm stretches, as in life, and minutes that nobody knows
value = st.sampled_from((False, False, False, True, None))
stretch = st.tuples(value, st.integers(1, 12)).map(lambda one: [one[0]] * one[1])
series = st.lists(stretch, min_size=12, max_size=12).map(
    lambda parts: [*chain(*parts), *[False] * MINUTES][:MINUTES]
)


def targets() -> dict[TargetKey, Target]:
    keys = [TargetKey(f"s{number}:8000", "0") for number in range(SERVERS)]
    return {key: Target(key, {}, "chat") for key in keys}


def table(values: Sequence[Values]) -> pl.DataFrame:
    """One series for each server and column, the columns of a server next to each other."""
    never = pl.lit(None, pl.Datetime("us", "UTC"))
    numbers = dict.fromkeys(
        ("seconds_since_last_token", "coverage_missing_seconds"),
        pl.lit(None, pl.Float64),
    )  # fmt: skip
    rows = [
        (key.instance, "0", START + timedelta(minutes=minute + 1), *(
            values[len(COLUMNS) * number + i][minute] for i in range(len(COLUMNS))
        ))
        for number, key in enumerate(targets())
        for minute in range(MINUTES)
    ]  # fmt: skip
    schema = {"instance": pl.String, "engine": pl.String, "end": pl.Datetime("us", "UTC")}
    return pl.DataFrame(
        rows, schema={**schema, **dict.fromkeys(COLUMNS, pl.Boolean)}, orient="row"
    ).with_columns(
        pool=pl.lit("chat"), ever_seen=pl.lit(True), binding_since=never, deferred_since=never,
        **numbers,
    )  # fmt: skip


def through(
    rule: Rule, rows: pl.DataFrame, ticks: Sequence[int]
) -> tuple[list[Transition], dict[str, Incident]]:
    of = (replace(rule), PLAIN)
    incidents: dict[str, Incident] = {}
    happened: list[Transition] = []
    for first, last in zip((0, *ticks), (*ticks, MINUTES), strict=True):
        inside = pl.col("end").is_between(
            START + timedelta(minutes=first), START + timedelta(minutes=last), closed="right"
        )
        part = rows.filter(inside)
        verdicts = part.select(one.verdict.alias(one.id) for one in of)
        incidents, new = advanced(of, incidents, targets(), part, verdicts)
        happened += new
    return happened, incidents


def every_row(
    observed: pl.DataFrame, rule: Rule, by: Sequence[str], open_keys: pl.DataFrame
) -> pl.DataFrame:
    return observed


@settings(max_examples=40, deadline=None)
@given(
    rule=rules,
    values=st.lists(series, min_size=SERVERS * 3, max_size=SERVERS * 3),
    cut=st.integers(1, MINUTES - 1),
)
def test_the_same_happens_with_every_row(rule: Rule, values: list[Values], cut: int) -> None:
    rows = table(values)
    dropped = through(rule, rows, [cut])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "relevant_verdicts", every_row)
        assert through(rule, rows, [cut]) == dropped
        assert through(rule, rows, []) == dropped


def test_a_pending_incident_outlives_minutes_without_a_verdict() -> None:
    rule = rule_of(False, 2, 1, "target", False, (True, 0))
    calm = [False] * MINUTES
    verdict = [True, None, False, *calm[3:]]
    over = [False, True, True, *[True] * (MINUTES - 3)]
    columns = {"slower_at_equal_load": verdict, "gauges_live": over}
    own = [columns.get(name, calm) for name in COLUMNS]
    rows = table([*own, *[calm] * (len(COLUMNS) * (SERVERS - 1))])
    assert through(rule, rows, []) == ([], {})


def test_what_is_left_of_a_day_with_one_short_episode() -> None:
    calm = [False] * MINUTES
    one = [*calm[:10], True, True, *calm[12:]]
    rows = table([one, calm, calm, *[calm] * 9])
    observed = rows.select(
        "instance", "engine", "end", verdict=PLAIN.verdict, over=pl.lit(None, pl.Boolean)
    ).with_columns(verdict=rows["slower_at_equal_load"])
    nobody = rows.select("instance", "engine").clear()
    rule = replace(PLAIN, keep_firing_for_seconds=180.0)
    left = relevant_verdicts(observed, rule, ["instance", "engine"], nobody)
    # the two true minutes, and the three that end the incident
    assert left["end"].to_list() == [START + timedelta(minutes=m) for m in range(11, 16)]

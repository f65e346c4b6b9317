"""Evidence of days that are over, from stored minutes: a row per target and ten minutes.

Each row is what ``explain`` says of a window of these ten minutes
(:func:`driftwatch.pipeline.past_windows.past_row`), for every target at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.detect.reference import with_reference
from driftwatch.detect.slo import slo_columns
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.evidence_table import ten_minute_columns
from driftwatch.diagnose.limits import with_allowances
from driftwatch.evidence import BY_NAME
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.past_windows import BESIDE, as_totals, then_serving
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.minutes import GAUGED
from driftwatch.signals.rows import base_columns
from driftwatch.store.minute_columns import STORED_SCHEMA, rolled_up
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

SECONDS = 600
_KEY = [*KEY_COLUMNS, "end"]
# Of a whole window, also of what came before its last restart.
_OF_WHOLE = ("restarted", "configuration_changed", "release_changed")
_LENGTHS = tuple(
    f"{name}_{part}" for name in ("prompt_tokens", "generation_tokens") for part in ("sum", "count")
)


def past_evidence(
    store: Store,
    targets: Mapping[TargetKey, Target],
    since: datetime,
    until: datetime,
    plan: Plan,
    reference: pl.DataFrame,
) -> pl.DataFrame:
    """Evidence rows, by target and end, with ``minutes``: how many stored minutes a row is of.

    Args:
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
    """
    rows = store.past(since, until, targets)
    if rows.is_empty():
        return pl.DataFrame(schema={"instance": pl.String, "minutes": pl.Float64})
    rows = rows.with_columns(window=_window_end())
    scraped = pl.col("scrapes") > 0
    whole = rows.group_by(*KEY_COLUMNS, "window").agg(
        *(pl.col(name).filter(scraped).any(ignore_nulls=False) for name in _OF_WHOLE),
        minutes=pl.col("seconds").sum() / MINUTE,
    )
    rows = _since_last_change(rows)
    own = rolled_up(rows.select(*STORED_SCHEMA), SECONDS)
    evidence = _evidence(own, _last_lengths(rows, own), targets, plan, reference)
    whole = whole.rename({"window": "end"})
    return evidence.drop(_OF_WHOLE).join(whole, on=_KEY, how="left", maintain_order="left")


def _window_end() -> pl.Expr:
    begins = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate(f"{SECONDS}s")
    return (begins + pl.duration(seconds=SECONDS)).cast(TIME)


def _since_last_change(rows: pl.DataFrame) -> pl.DataFrame:
    """Of each window what came after its last restart or knob change, where that was scraped."""
    changed = pl.col("restarted").fill_null(False) | pl.col("configuration_changed").fill_null(
        False
    )
    window = [*KEY_COLUMNS, "window"]
    last = pl.col("end").filter(changed).max().over(window)
    after = pl.col("end") > last
    scraped_after = (after & (pl.col("scrapes") > 0)).any().over(window)
    return rows.filter(last.is_null() | after | (~scraped_after & (pl.col("end") == last)))


def _last_lengths(rows: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Prompt and generation tokens of each window's last two minutes; NULL where it has none."""
    near = pl.col("window") - pl.col("end") < pl.duration(minutes=2)
    fine = (
        rows.filter(near & (pl.col("seconds") == MINUTE))
        .group_by(*KEY_COLUMNS, "window")
        .agg(pl.col(name).sum() for name in _LENGTHS)
        .rename({"window": "end"})
    )
    bare = own.drop(_LENGTHS)
    return bare.join(fine, on=_KEY, how="left", maintain_order="left")


def _evidence(
    own: pl.DataFrame,
    last_2m: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    reference: pl.DataFrame,
) -> pl.DataFrame:
    """As :func:`driftwatch.pipeline.past_windows.past_row`, row by row."""
    now = plan.serving_frame(targets.values())
    now = own.select(KEY_COLUMNS).join(now, on=KEY_COLUMNS, how="left", maintain_order="left")
    serving = then_serving(own, now)
    evidence = base_columns(as_totals(own), serving)
    columns = [c for c in STORED_SCHEMA if c in BY_NAME and c not in evidence.columns]
    evidence = evidence.with_columns(own.select(*columns, *BESIDE))
    evidence = evidence.with_columns(
        *[own[c] for c in GAUGED if c in BY_NAME],
        *slo_columns(own, serving),
        *ten_minute_columns(own),
        *[own[name] for name in _OF_WHOLE],
        start=own["end"] - pl.duration(seconds=SECONDS),
        end=own["end"],
        model_name=own["model_name"],
        cache_config=own["cache_config"],
        binding_since=pl.lit(None, dtype=TIME),
        deferred_since=pl.lit(None, dtype=TIME),
    )
    return in_schema_order(with_allowances(with_reference(evidence, last_2m, own, reference)))

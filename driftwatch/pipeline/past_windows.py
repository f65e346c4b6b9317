"""A window of which the store has no scrapes any more: its minutes, or rows of ten, as evidence.

Counters and histograms of the rows add up to the window's, gauges are averaged over time, and what
a minute said of the ten before it, or a detector of its past, is that of the window's last row.
What only scrapes could tell is unknown, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import in_force
from driftwatch.baselines.rows import baselines_from_store
from driftwatch.collect.schema import KEY_COLUMNS, TIME, Collected
from driftwatch.detect.reference import combined, with_reference
from driftwatch.detect.reference_minutes import baseline_of_minutes
from driftwatch.detect.slo import slo_columns
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.evidence_table import ten_minute_columns
from driftwatch.diagnose.limits import with_allowances
from driftwatch.diagnose.tree import walk
from driftwatch.errors import NoVerdict
from driftwatch.evidence import BY_NAME
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Finding, Target, TargetKey
from driftwatch.notify.numbers import moment
from driftwatch.pipeline.advice import explained
from driftwatch.pipeline.explain import (
    DEFAULT_TREE,
    Window,
    measured_reference,
    with_shipped_trees,
)
from driftwatch.pipeline.findings import finding_of
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.minutes import GAUGED, MINUTE_SCHEMA
from driftwatch.signals.rows import SERVING_SCHEMA, base_columns
from driftwatch.store.minute_columns import STORED_SCHEMA, added_up
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

_KEY = list(KEY_COLUMNS)
_TEN_MINUTES, _TWO_MINUTES = timedelta(minutes=10), timedelta(minutes=2)
# Stored beside evidence, and read with it.
BESIDE = ("gpu_reasons", "gpus_lost_names", "binding_requests")
_SETTINGS = (*COLUMN_KNOBS, "max_num_seqs_inferred", "kv_cache_tokens")


def explain_past(
    store: Store,
    target: Target,
    window: Window,
    plan: Plan,
    reference: pl.DataFrame,
    *,
    today: date | None = None,
    tree: str = DEFAULT_TREE,
) -> tuple[Finding, Window]:
    """Evidence of one past window of one target, with the walk through the tree.

    Returns:
        The finding, and the window that it is about: whole rows, the nearest to what was asked.

    Raises:
        NoVerdict: no minute of the target in the window is in the store, or none has a scrape.
    """
    rows = _rows_of(store, window, [target.key])
    if rows.is_empty() or not (rows["scrapes"] > 0).any():
        stored = store.minutes_span(target.key)
        raise NoVerdict(
            f"{target.key.text}: no minute with a usable scrape from "
            f"{moment(window.start, today)} to {moment(window.end, today)} is in the store",
            help_text="nothing of this target is stored"
            if stored is None
            else f"its minutes reach from {moment(stored[0], today)} to {moment(stored[1], today)}",
        )
    declared = plan.declared_reference([target])
    row = past_row(rows, target, plan, combined(reference, declared))
    plan = with_shipped_trees(plan)
    diagnosis, values = walk(plan.trees[tree], row)[0], row.row(0, named=True)
    finding = explained(finding_of("explain", target, values, diagnosis), values, plan)
    reasons = {**finding.reasons, **_unknown(row, rows)}
    return replace(finding, reasons=reasons), Window(row["start"][0], row["end"][0])


def is_past(store: Store, scrapes: pl.DataFrame, key: TargetKey, window: Window) -> bool:
    """Whether stored minutes know more of a window than the scrapes that are still there."""
    mine = (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
    oldest = scrapes.filter(mine & pl.col("ok"))["time"].min()
    if not isinstance(oldest, datetime):
        oldest = window.end
    if oldest <= window.start + timedelta(seconds=MINUTE):
        return False
    before = store.past(window.start, min(oldest, window.end), [key])
    return bool((before["scrapes"] > 0).any())


def reference_from_store(
    store: Store, history: Collected, baseline: Window | None, plan: Plan
) -> pl.DataFrame:
    """Reference rows: measured in a baseline window where one is named, else of those in force.

    Args:
        baseline: which window; None = those in force alone.

    Raises:
        UsageError: the store has neither a scrape nor a minute of any target in the baseline.
    """
    of_pins = in_force(baselines_from_store(store), history.targets, plan, history.gpus).reference
    if baseline is None:
        return of_pins
    if any(is_past(store, history.scrapes, key, baseline) for key in history.targets):
        rows = _rows_of(store, baseline, list(history.targets))
        return combined(baseline_of_minutes(rows.select(*MINUTE_SCHEMA)), of_pins)
    return combined(measured_reference(history, baseline, plan), of_pins)


def detected_from_store(store: Store, key: TargetKey, end: datetime) -> pl.DataFrame:
    """What the detectors said of the last minute that had ended then; without a row if unknown."""
    newest = store.past(end - timedelta(minutes=1), end, [key]).tail(1)
    return newest if len(newest) else store.past(end - _TWO_MINUTES, end, [key]).tail(1)


def _rows_of(store: Store, window: Window, keys: list[TargetKey]) -> pl.DataFrame:
    """Rows that lie in the window by half at least; the one that holds its end if none does."""
    around = _TEN_MINUTES
    rows = store.past(window.start - around, window.end + around, keys)
    length = pl.duration(seconds=pl.col("seconds"))
    begins = pl.col("end") - length
    inside = pl.min_horizontal("end", pl.lit(window.end, dtype=TIME)) - pl.max_horizontal(
        begins, pl.lit(window.start, dtype=TIME)
    )
    near = rows.filter(inside * 2 >= length)
    if len(near):
        return near
    return rows.filter((begins < window.end) & (pl.col("end") >= window.end))


def past_row(
    rows: pl.DataFrame, target: Target, plan: Plan, reference: pl.DataFrame
) -> pl.DataFrame:
    """The evidence row of stored rows, as :func:`driftwatch.diagnose.evidence_table` makes it.

    Args:
        rows: ``STORED_SCHEMA`` and ``seconds``, of one target, by time; at least one with a
            scrape.
        reference: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`.
    """
    start = rows["end"][0] - timedelta(seconds=rows["seconds"][0])
    end = rows["end"][-1]
    whole, every = _total(rows), rows
    rows = _since_last_change(rows)
    own = whole if rows is every else _total(rows)
    recent = _last(rows, end, _TEN_MINUTES)
    last_10m = own if len(recent) == len(rows) else _total(recent)
    fine = _last(rows, end, _TWO_MINUTES).filter(pl.col("seconds") == MINUTE)
    last_2m = (
        _total(fine)
        if len(fine)
        else _total(rows).with_columns(
            pl.lit(None, pl.Float64).alias(f"{name}_{part}")
            for name in ("prompt_tokens", "generation_tokens")
            for part in ("sum", "count")
        )
    )
    serving = serving_of_rows(own, [target], plan)
    evidence = base_columns(as_totals(own), serving)
    columns = [c for c in STORED_SCHEMA if c in BY_NAME and c not in evidence.columns]
    evidence = evidence.with_columns(own.select(*columns, *BESIDE))
    evidence = evidence.with_columns(
        *[own[c] for c in GAUGED if c in BY_NAME],
        *slo_columns(last_10m, serving),
        *ten_minute_columns(last_10m),
        start=pl.lit(start, dtype=TIME),
        end=pl.lit(end, dtype=TIME),
        restarted=whole["restarted"],
        configuration_changed=whole["configuration_changed"],
        release_changed=whole["release_changed"],
        model_name=own["model_name"],
        cache_config=own["cache_config"],
        binding_since=pl.lit(None, dtype=TIME),
        deferred_since=pl.lit(None, dtype=TIME),
    )
    compared = with_reference(evidence, last_2m, last_10m, reference)
    return in_schema_order(with_allowances(compared))


def _since_last_change(rows: pl.DataFrame) -> pl.DataFrame:
    """Less what came before the last restart or knob change, and its own minute, which has both."""
    changed = rows.select(
        pl.col("restarted").fill_null(False) | pl.col("configuration_changed").fill_null(False)
    ).to_series()
    if not changed.any():
        return rows
    at = int(changed.arg_true()[-1])
    after = rows.slice(at + 1)
    return after if (after["scrapes"] > 0).any() else rows.slice(at)


def _last(rows: pl.DataFrame, end: datetime, span: timedelta) -> pl.DataFrame:
    recent = rows.filter(pl.col("end") > end - span)
    return recent if len(recent) else rows.tail(1)


def _total(rows: pl.DataFrame) -> pl.DataFrame:
    return added_up(rows.select(*STORED_SCHEMA), _KEY)


def as_totals(own: pl.DataFrame) -> pl.DataFrame:
    """Stored rows as :func:`driftwatch.signals.windows.totals` calls their columns."""
    return own.with_columns(
        *[pl.col(g).alias(f"{g}_mean") for g in GAUGED],
        # forward passes are counted once each, whatever the number of API servers, where known
        iteration_tokens_count=pl.col("forward_passes"),
        several_api_servers=pl.col("forward_passes_overcounted"),
        # vLLM's loggers.py observes these three of a finished request together
        prefill_seconds_count=pl.col("e2e_seconds_count"),
        decode_seconds_count=pl.col("e2e_seconds_count"),
        # a minute's prefix hits are those of an external cache too
        external_prefix_cache_hits_total=pl.lit(None, pl.Float64),
    ).drop(*_SETTINGS, "pool", "kv_block_tokens", "forward_passes_overcounted", *_OF_EVIDENCE)


# Named alike in minutes and in evidence, and made anew from the totals.
_OF_EVIDENCE = (
    "running_requests",
    "waiting_requests",
    "waiting_capacity_requests",
    "waiting_deferred_requests",
    "kv_cache_usage_ratio",
    "slo_missed",
)


def serving_of_rows(own: pl.DataFrame, targets: Sequence[Target], plan: Plan) -> pl.DataFrame:
    """Settings as they were in stored rows, one of each target; latency targets as they are
    configured now.
    """
    return then_serving(own, plan.serving_frame(targets))


def then_serving(own: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Settings as they were in stored rows; what is not stored as configured now, beside them."""
    then = own.select(
        *_SETTINGS,
        "kv_block_tokens",
        gpus_per_replica="gpu_count",
        # the passes are those of the engine already
        api_server_count=pl.lit(None, pl.Float64),
    )
    return now.drop(then.columns).hstack(then).select(*SERVING_SCHEMA)


def _unknown(row: pl.DataFrame, rows: pl.DataFrame) -> dict[str, str]:
    """Columns that are unknown because the scrapes are gone → that reason."""
    if rows["seconds"].max() == MINUTE:
        return {}
    why = "minutes of that time are kept ten by ten"
    return {name: why for name in BY_NAME if "_2m" in name and row[name][0] is None}

"""What is known of a target in one window: evidence, reference, path, limits, advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME, Collected
from driftwatch.detect.reference import baseline, combined, no_reference
from driftwatch.diagnose.evidence_table import (
    WINDOW_SCHEMA,
    Carried,
    evidence_table,
    minute_windows,
)
from driftwatch.diagnose.tree import UNDETERMINED, walk
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.model import Finding, Target, TargetKey
from driftwatch.notify.numbers import clean, moment
from driftwatch.pipeline.advice import explained
from driftwatch.pipeline.findings import as_detected, finding_of
from driftwatch.pipeline.plan import Plan
from driftwatch.rulebook.book import shipped_trees

_KEY = list(KEY_COLUMNS)
DEFAULT_TREE = "batch-size-drift"
# What a person sees first → the tree that begins there; all of them end in the same causes.
SYMPTOMS: Mapping[str, str] = {
    "batch": DEFAULT_TREE,
    "latency": "latency-high",
    "throughput": "throughput-low",
    "gpu-idle": "gpu-idle",
}


def with_shipped_trees(plan: Plan) -> Plan:
    """The plan with the shipped trees beside those that its rules name."""
    return replace(plan, trees={**shipped_trees(), **plan.trees})


@dataclass(frozen=True, slots=True)
class Window:
    """A span somebody asked about; both ends belong to it."""

    start: datetime
    end: datetime


def target_named(
    name: str | None, targets: Mapping[TargetKey, Target], limit: int | None = 8
) -> Target:
    """The target a person means: ``host:8000``, ``host:8000/1``, a pool of one, or none named.

    Args:
        limit: how many candidates are listed; None = all.

    Raises:
        UsageError: nothing, or more than one target, answers to it; names the candidates.
        NoVerdict: there is no target at all.
    """
    every = [targets[key] for key in sorted(targets)]
    if name is None:
        matching = every
    else:
        exact = [t for t in every if name in (t.key.text, f"{t.key.instance}/{t.key.engine}")]
        matching = exact or [
            t for t in every if name in (t.key.instance, t.pool, t.labels.get("model_name"))
        ]
    if len(matching) == 1:
        return matching[0]
    if not every:
        raise NoVerdict("there is no target here", help_text="is the recording or store empty?")
    if not matching:
        listing = _listing(every, limit)
        raise UsageError(f"no target {name!r}", help_text=f"known targets: {listing}")
    raise UsageError(
        "name one target" if name is None else f"{name!r} names {len(matching)} targets",
        help_text=f"one of: {_listing(matching, limit)}",
    )


def _listing(targets: Sequence[Target], limit: int | None) -> str:
    names = ", ".join(target.key.text for target in targets[:limit])
    more = 0 if limit is None else len(targets) - limit
    return f"{names} and {more} more" if more > 0 else names


def measured_reference(history: Collected, window: Window | None, plan: Plan) -> pl.DataFrame:
    """Reference rows measured in a baseline window; none without a window.

    Raises:
        UsageError: the window holds no usable scrape of any target.
    """
    if window is None:
        return no_reference()
    rows = _rows(history, window, plan, no_reference(), Carried())
    rows = rows.filter(pl.col("duration_seconds") > 0)
    if rows.is_empty():
        raise UsageError(
            f"the baseline {window.start:%Y-%m-%dT%H:%M:%SZ}..{window.end:%Y-%m-%dT%H:%M:%SZ} "
            "holds no two scrapes",
            help_text=_span_help(history.scrapes, None, exact=True),
        )
    return baseline(rows)


# Rates of less than two usual scrape intervals (15 s) are one difference of two scrapes.
OBSERVED_SECONDS = 30.0


def explain(
    history: Collected,
    target: Target,
    window: Window,
    plan: Plan,
    measured: pl.DataFrame,
    *,
    source: str | None = None,
    today: date | None = None,
    detected: pl.DataFrame | None = None,
    tree: str = DEFAULT_TREE,
) -> Finding:
    """Evidence of one window of one target, with the walk through the tree.

    Args:
        history: everything known up to the window's end (what came earlier settles an inferred
            max_num_seqs and how long nothing was seen), and every target.
        source: name of the source that listed the target last; None = not known.
        detected: the evidence row of the window's last whole minute, for what detectors with a
            past say of it; None or empty = not known.

    Raises:
        NoVerdict: no usable scrape of the target lies in the window.
    """
    upto = replace(history, scrapes=history.scrapes.filter(pl.col("time") <= window.end))
    reference = combined(measured, plan.declared_reference(history.targets.values()))
    rows = _rows(upto, window, plan, reference, _carried_until(upto, window, plan, reference))
    rows = rows.filter(
        (pl.col("instance") == target.key.instance) & (pl.col("engine") == target.key.engine)
    )
    if rows["scrapes"][0] == 0:
        silent = last_seen(history.scrapes, target.key, window.end, source)
        why = "no usable scrape in the window" if silent is None else silent.text(today)
        raise NoVerdict(f"{target.key.text}: {why}", help_text=_span_help(history.scrapes, today))
    if detected is not None and len(detected):
        rows = as_detected(rows, detected.with_columns(end=pl.lit(rows["end"][0], dtype=TIME)))
    plan = with_shipped_trees(plan)
    row, diagnosis = rows.row(0, named=True), walk(plan.trees[tree], rows)[0]
    finding = explained(finding_of("explain", target, row, diagnosis), row, plan)
    return _with_enough_observed(finding, window)


def _with_enough_observed(finding: Finding, window: Window) -> Finding:
    """The finding; without a cause where too little of the window was observed for one."""
    seconds, diagnosis = finding.evidence.get("duration_seconds"), finding.diagnosis
    if seconds is None or seconds >= OBSERVED_SECONDS or diagnosis is None:
        return finding
    whole = (window.end - window.start).total_seconds()
    why = (
        f"scrapes of one process cover {seconds:.3g} of {whole:.4g} s, a cause needs "
        f"{OBSERVED_SECONDS:g} s"
    )
    unknown = replace(
        diagnosis,
        leaf=UNDETERMINED,
        cause=None,
        advice=None,
        meaning=None,
        missing=("duration_seconds",),
    )
    return replace(finding, diagnosis=unknown, reasons={**finding.reasons, "duration_seconds": why})


def _carried_until(
    history: Collected, window: Window, plan: Plan, reference: pl.DataFrame
) -> Carried:
    """What the minutes before the window's end teach."""
    first = history.scrapes["time"].min()
    last = window.end.replace(second=0, microsecond=0)
    if not isinstance(first, datetime) or first >= last:
        return Carried()
    keys = [tuple(key) for key in sorted(history.targets)]
    return evidence_table(
        history.scrapes,
        minute_windows(
            pl.DataFrame(keys, schema=_KEY, orient="row"),
            first.replace(second=0, microsecond=0),
            last,
        ),
        kind="chained",
        cut=False,
        serving=plan.serving_frame(history.targets.values()),
        reference=reference,
        inputs=plan.inputs,
    ).carried


def _rows(
    history: Collected, window: Window, plan: Plan, reference: pl.DataFrame, carried: Carried
) -> pl.DataFrame:
    targets = history.targets
    windows = pl.DataFrame(
        [(*key, window.start, window.end) for key in sorted(targets)],
        schema=WINDOW_SCHEMA,
        orient="row",
    )
    return evidence_table(
        history.scrapes,
        windows,
        kind="whole",
        cut=True,
        serving=plan.serving_frame(targets.values()),
        reference=reference,
        inputs=plan.inputs,
        carried=carried,
        gpus=history.gpus,
        gpu_targets=plan.gpu_targets(targets.values()),
    ).rows


def _span_help(scrapes: pl.DataFrame, today: date | None, *, exact: bool = False) -> str:
    first, last = scrapes["time"].min(), scrapes["time"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return "there are no scrapes at all"
    if exact:  # as --baseline is written
        return f"scrapes reach from {first:%Y-%m-%dT%H:%M:%SZ} to {last:%Y-%m-%dT%H:%M:%SZ}"
    return f"scrapes reach from {moment(first, today)} to {moment(last, today)}"


def window_ending(at: datetime, length: timedelta) -> Window:
    """The window of ``length`` that ends at ``at``."""
    return Window(at - length, at)


# two scrapes that do not come are no accident; sooner than this nobody is told
_LATE_SCRAPES = 2
_SOONEST = timedelta(seconds=90)


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A target of which nothing is known at some time."""

    at: datetime | None  # its newest usable scrape; None = there is none
    since: datetime | None  # the scrapes reach back to here; None = there are none of anybody
    reason: str

    def text(self, today: date | None) -> str:
        """``last seen 15:20 UTC; not scraped by prometheus 0 since``."""
        if self.at is not None:
            text = f"last seen {moment(self.at, today)}"
        elif self.since is not None:
            text = f"not seen since {moment(self.since, today)}, where the scrapes begin"
        else:
            text = "never seen"
        return f"{text}; {clean(self.reason)}"


def last_seen(
    scrapes: pl.DataFrame, key: TargetKey, at: datetime, source: str | None = None
) -> LastSeen | None:
    """What is said of a target that is silent at ``at``; None where it is not.

    Silent is one whose newest scrape failed, or is older than two of its scrape intervals (at
    least 90 s).

    Args:
        scrapes: of everybody; later ones than ``at`` are left out.
        source: name of the source that listed it last; None = not known.
    """
    upto = scrapes.filter(pl.col("time") <= at)
    # a page that does not answer fails for all engines behind it
    mine = (pl.col("engine") == key.engine) | ~pl.col("ok")
    own = upto.filter((pl.col("instance") == key.instance) & mine).unique("time").sort("time")
    good, begin, newest = (_time(t) for t in (own.filter("ok")["time"].max(), *_ends(upto)))
    last = _time(own["time"].max())
    if last is None or good is None:
        failed = None if last is None else _failed(own, good)
        return LastSeen(good, begin, failed or _not_scraped(source))
    patience = max(_SOONEST, _LATE_SCRAPES * _interval(own))
    if at - last > patience:
        alone = newest is not None and newest - last > patience
        return LastSeen(good, begin, _not_scraped(source) if alone else "nothing is scraped since")
    return LastSeen(good, begin, _failed(own, good)) if good < last else None


def _failed(own: pl.DataFrame, good: datetime | None) -> str:
    """How many scrapes failed since the last good one, and the newest reason."""
    since = own if good is None else own.filter(pl.col("time") > good)
    many = "the scrape since failed" if len(since) == 1 else f"{len(since)} scrapes since failed"
    return f"{many}: {since['reason'][-1]}"


def _not_scraped(source: str | None) -> str:
    return "not scraped since" if source is None else f"not scraped by {source} since"


def _interval(own: pl.DataFrame) -> timedelta:
    usual = own["time"].diff().median()
    return usual if isinstance(usual, timedelta) else timedelta(0)


def _ends(scrapes: pl.DataFrame) -> tuple[object, object]:
    return scrapes["time"].min(), scrapes["time"].max()


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None

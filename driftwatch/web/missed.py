"""The picture of an incident: what was missed, from an hour before it to half an hour after."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import TIME
from driftwatch.incidents.incident import Incident
from driftwatch.model import Slo, TargetKey
from driftwatch.numbers import percent
from driftwatch.plots.plot import Panel, Plot, Series, panels
from driftwatch.plots.scales import Axis
from driftwatch.signals.slo import slo_columns
from driftwatch.store.minute_columns import STORED_SCHEMA, added_up
from driftwatch.web.page import Visit
from driftwatch.web.target_plots import changes, event_ticks, incident_spans, width_of

BEFORE, AFTER = timedelta(hours=1), timedelta(minutes=30)
_MOST_SERVERS = 20
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT"}


def missed_plot(visit: Visit, incident: Incident, servers: Sequence[TargetKey]) -> Plot | None:
    """Requests that missed a target and the speed at equal load of its servers; None without rows.

    ``servers``: whom it concerns.
    """
    until = min(visit.now, (incident.resolved_at or visit.now) + AFTER)
    span = (incident.started_at - BEFORE, until)
    rows = visit.store.rows_of(servers[:_MOST_SERVERS], span, STORED_SCHEMA)
    slo = next((one.slo for one in visit.web.plan.pools if one.name == incident.pool), None)
    return draw(rows.filter(pl.col("scrapes") > 0), slo, incident)


def draw(rows: pl.DataFrame, slo: Slo | None, incident: Incident) -> Plot | None:
    """The plot of :func:`missed_plot`; None where neither a share nor a speed is known.

    ``rows``: ``STORED_SCHEMA`` and ``seconds``, by server and time.
    """
    first, last = rows["end"].min(), rows["end"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return None
    first -= timedelta(minutes=1)
    width = width_of(first, last, rows)
    bins = binned(rows, width)
    x = [at.timestamp() - width / 2 for at in bins["end"]]
    parts, findings = [], []
    for name, shares in _missed(bins, slo).items():
        target = f"{_LATENCIES[name]} {getattr(slo, f'{name}_seconds'):g} s"
        allowed = Series("level", "allowed", y=[100 * (1 - slo.share) if slo else None], colour=2)
        parts.append(Panel(Axis(f"requests that miss {target}, %"), [allowed, _line(x, shares)]))
        findings.append(f"up to {percent(max(_known(shares)))} of requests missed {target}")
    speeds = bins["speed"].to_list()
    if _known(speeds):
        usual = Series("level", "its baseline", y=[100.0], colour=4)
        axis = Axis("speed of the slowest server, %", high=max(105.0, 100 * max(_known(speeds))))
        parts.append(Panel(axis, [usual, _line(x, speeds)]))
        findings.append(f"speed at equal load down to {percent(min(_known(speeds)))}")
    if not parts:
        return None
    ends = (first.timestamp(), last.timestamp())
    sent = [] if incident.firing_at is None else [(incident.firing_at, "page sent")]
    around = [
        *incident_spans([incident], *ends),
        *event_ticks(changes(rows), *ends, "restart or change", colour=3),
        *event_ticks(sent, *ends, "page sent", colour=1),
    ]
    title, across = "; ".join(findings), Axis("", low=ends[0], high=ends[1], is_time=True)
    return panels(title[:1].upper() + title[1:], parts, across, around=around)


def _known(values: Sequence[float | None]) -> list[float]:
    return [one for one in values if one is not None]


def _line(x: Sequence[float], ratios: Sequence[float | None]) -> Series:
    return Series("line", "", x, [None if one is None else 100 * one for one in ratios])


def binned(rows: pl.DataFrame, width: int) -> pl.DataFrame:
    """One row of all servers for each stretch of so many seconds, with ``speed``: the lowest."""
    begins = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate(f"{width}s")
    at = (begins + pl.duration(seconds=width)).cast(TIME)
    rows = rows.with_columns(end=at).sort("end", maintain_order=True)
    lowest = pl.col("speed_at_equal_load_ratio").min()
    speed = rows.group_by("end", maintain_order=True).agg(speed=lowest)
    total = added_up(rows.select(*STORED_SCHEMA), ["end"])
    return total.join(speed, on="end", how="left", maintain_order="left")


def _missed(bins: pl.DataFrame, slo: Slo | None) -> dict[str, list[float | None]]:
    """Latency → share of requests that missed its target, at most; of two that are known only
    those that missed it more often than it allows, where one did.
    """
    if slo is None:
        return {}
    names = ("ttft_seconds", "tpot_seconds", "share")
    targets = (pl.lit(getattr(slo, one), pl.Float64).alias(f"slo_{one}") for one in names)
    shares = slo_columns(bins, bins.select(pl.col("end"), *targets))
    missed = {name: (1 - shares[f"{name}_in_target_10m_ratio"]).to_list() for name in _LATENCIES}
    known = {name: values for name, values in missed.items() if _known(values)}
    over = {name: v for name, v in known.items() if max(_known(v)) > 1 - slo.share}
    return over or known

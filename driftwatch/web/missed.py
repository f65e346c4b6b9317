"""The picture of an incident: what was missed, from an hour before it to half an hour after."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from driftwatch.collect.schema import TIME
from driftwatch.incidents.incident import Incident
from driftwatch.model import Slo, TargetKey
from driftwatch.numbers import percent
from driftwatch.plots.plot import Panel, Plot, Series, panels
from driftwatch.plots.scales import Axis
from driftwatch.signals.slo import slo_columns
from driftwatch.store.minute_columns import STORED_SCHEMA, added_up
from driftwatch.web.target_plots import changes, event_ticks

if TYPE_CHECKING:
    from driftwatch.web.page import Visit

BEFORE, AFTER = timedelta(hours=1), timedelta(minutes=30)
_MOST_SERVERS, _MOST_BINS = 20, 120
_WIDTHS = (60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT"}


def missed_plot(visit: Visit, incident: Incident, servers: Sequence[TargetKey]) -> Plot | None:
    """Requests that missed a target and the speed at equal load of its servers; None without rows.

    ``servers``: whom it concerns; none: every server of its pool.
    """
    store, pool = visit.store, incident.target.get("pool", "")
    until = min(visit.now, (incident.resolved_at or visit.now) + AFTER)
    span = (incident.started_at - BEFORE, until)
    if not servers:
        from driftwatch.web.database import WantedServers

        servers = [one.key for one in store.servers(WantedServers(pool=pool), _MOST_SERVERS, 0)[0]]
    rows = store.rows_of(servers[:_MOST_SERVERS], span, STORED_SCHEMA)
    rows = rows.filter(pl.col("scrapes") > 0)
    if not len(rows):
        return None
    slo = next((one.slo for one in visit.web.plan.pools if one.name == pool), None)
    width = _width(span, rows)
    events = [(incident.firing_at, "page sent")] if incident.firing_at else []
    return draw(rows, slo, width, incident, events)


def draw(
    rows: pl.DataFrame,
    slo: Slo | None,
    width: int,
    incident: Incident,
    sent: Sequence[tuple[datetime, str]],
) -> Plot | None:
    """The plot of :func:`missed_plot`; None where neither share nor speed is known.

    ``rows``: ``STORED_SCHEMA`` and ``seconds``; ``width``: seconds of a point.
    """
    first, last = rows["end"].min(), rows["end"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)  # noqa: S101 - has rows
    bins = binned(rows, width)
    x = [at.timestamp() - width / 2 for at in bins["end"]]
    missed = _missed(bins, slo)
    parts, findings = [], []
    for name, shares in missed.items():
        assert slo is not None  # noqa: S101 - of which there are shares
        target = f"{_LATENCIES[name]} {getattr(slo, f'{name}_seconds'):g} s"
        allowed = Series("level", "allowed", y=[100 * (1 - slo.share)], colour=2)
        line = Series("line", "requests", x, [None if v is None else 100 * v for v in shares])
        parts.append(Panel(Axis(f"requests that miss {target}, %", low=0.0), [allowed, line]))
        worst = max(one for one in shares if one is not None)
        findings.append(f"up to {percent(worst)} of requests missed {target}")
    speeds = bins["speed"].to_list()
    if any(one is not None for one in speeds):
        line = Series(
            "line", "slowest server", x, [None if v is None else 100 * v for v in speeds], colour=0
        )
        usual = Series("level", "its baseline", y=[100.0], colour=4)
        parts.append(Panel(Axis("speed at equal load, %"), [usual, line]))
        lowest = min(one for one in speeds if one is not None)
        findings.append(f"speed at equal load down to {percent(lowest)}")
    if not parts:
        return None
    ends = (first.timestamp() - 60, last.timestamp())
    spans = _span(incident, *ends)
    ticks = event_ticks(changes(rows), *ends, "restart or change", colour=3)
    pages = event_ticks(sent, *ends, "page sent", colour=1)
    title = "; ".join(findings)
    return panels(
        title[:1].upper() + title[1:],
        parts,
        Axis("", low=ends[0], high=ends[1], is_time=True),
        around=[spans, *ticks, *pages],
    )


def _span(incident: Incident, first: float, last: float) -> Series:
    end = last if incident.resolved_at is None else min(last, incident.resolved_at.timestamp())
    start = min(max(first, incident.started_at.timestamp()), end)
    return Series("hatch", "incident", [start], [end], colour=1)


def _width(span: tuple[datetime, datetime], rows: pl.DataFrame) -> int:
    longest = rows["seconds"].max()
    least = max((span[1] - span[0]).total_seconds() / _MOST_BINS, float(longest or 60.0))  # type: ignore[arg-type]
    return next((one for one in _WIDTHS if one >= least), _WIDTHS[-1])


def binned(rows: pl.DataFrame, width: int) -> pl.DataFrame:
    """One row of all servers for each stretch of so many seconds, with ``speed``: the lowest."""
    begins = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate(f"{width}s")
    at = (begins + pl.duration(seconds=width)).cast(TIME)
    rows = rows.with_columns(end=at).sort("end", maintain_order=True)
    speed = rows.group_by("end", maintain_order=True).agg(
        speed=pl.col("speed_at_equal_load_ratio").min()
    )
    total = added_up(rows.select(*STORED_SCHEMA), ["end"])
    return total.join(speed, on="end", how="left", maintain_order="left")


def _missed(bins: pl.DataFrame, slo: Slo | None) -> dict[str, list[float | None]]:
    """Latency → share of requests that missed its target, at most."""
    if slo is None:
        return {}
    serving = bins.select(
        *(
            pl.lit(getattr(slo, one), pl.Float64).alias(f"slo_{one}")
            for one in ("ttft_seconds", "tpot_seconds", "share")
        ),
        pl.first().is_null().alias("row"),
    )
    shares = slo_columns(bins, serving)
    missed = {}
    for name in _LATENCIES:
        values = (1 - shares[f"{name}_in_target_10m_ratio"]).to_list()
        if any(one is not None for one in values):
            missed[name] = values
    # of two only those that were missed more often than the target allows, where one was
    over = {
        name: values
        for name, values in missed.items()
        if max(one for one in values if one is not None) > 1 - slo.share
    }
    return over or missed

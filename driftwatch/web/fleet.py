"""The fleet: every target's newest minute, kept in memory, and what one word says of each.

A batch of minutes is decoded once, whoever looks; a thread looks for new ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl
import structlog

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.incidents.incident import Incident
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.signals.slo import slo_columns
from driftwatch.store.minute_columns import LAST, STORED_SCHEMA
from driftwatch.web.database import Batch, WebStore

# Worst first: the rank of a state is its place.
STATES = (
    *("firing", "no data", "taken", "silenced", "target missed", "slower", "limit full"),
    *("ticket", "pending", "not judged", "notice", "in target", "as its baseline"),
)
RANK = {state: rank for rank, state in enumerate(STATES)}
UNKNOWN = ("no data", "not judged")
# What a state is made of, and a list is sorted by.
SUMMARY = (
    *("end", "scrapes", "coverage_missing_inputs", "slo_missed", "slower_at_equal_load"),
    *("binding_limit", "speed_unknown_reason", "speed_at_equal_load_ratio"),
    *("ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio", "binding_margin_ratio"),
)
# Of these one minute says more than an incident that is milder.
_MILD = ("ticket", "pending", "notice")
STALE = "driftwatch run wrote no minute in the last 5 min"
_SILENT = "nothing scraped in the last 10 min"


class Entry(NamedTuple):
    """A target before it is drawn."""

    key: TargetKey
    target: Target
    state: str
    incident: Incident | None  # whose hands it is in, None = nobody's
    why: str | None  # why its state is unknown, None = it is not
    row: Mapping[str, Any]  # :data:`SUMMARY` of its newest minute
    at: int  # its place among the targets


def incident_state(incident: Incident) -> str:
    """The word of an open incident."""
    if incident.state == "pending":
        return "pending"
    if incident.severity != "page":
        return incident.severity
    if incident.acknowledged_at is not None:
        return "taken"
    return "silenced" if incident.is_quiet else "firing"


def worst_incidents(
    incidents: Iterable[Incident], by_text: Mapping[str, TargetKey]
) -> dict[TargetKey, Incident]:
    """Target → its worst open incident, its own or that of its pool; ``by_text``: every target."""
    every = list(incidents)
    speakers = {one.key: one for one in every}
    worst: dict[TargetKey, Incident] = {}
    for one in every:
        for key in _concerned(one, by_text):
            # what is part of a pool's incident is in the hands of who has that
            speaks = speakers.get(one.part_of or "", one)
            before = worst.get(key)
            if before is None or _order(speaks) < _order(before):
                worst[key] = speaks
    return worst


def _order(incident: Incident) -> tuple[int, str, str]:
    return RANK[incident_state(incident)], incident.started_at.isoformat(), incident.id


def _concerned(incident: Incident, by_text: Mapping[str, TargetKey]) -> Iterator[TargetKey]:
    instance = incident.target.get("instance")
    if instance is not None:
        yield TargetKey(instance, incident.target.get("engine", "0"))
        return
    named = () if incident.page is None else incident.page.servers.first
    yield from (by_text[text] for text in named if text in by_text)


def target_state(
    row: Mapping[str, Any], incident: Incident | None, *, is_stale: bool
) -> tuple[str, Incident | None, str | None]:
    """The state of one target, the incident in whose hands it is, and why it is unknown.

    ``row``: of :attr:`Fleet.rows`; ``is_stale``: its minute is old: what it says is not so now.
    """
    of_minute, reason = ("no data", STALE) if is_stale else _of_minute(row)
    if incident is None:
        return of_minute, None, reason
    of_incident = incident_state(incident)
    if of_incident in _MILD and RANK[of_minute] < RANK[of_incident]:
        return of_minute, incident, reason
    return of_incident, incident, None


def _of_minute(row: Mapping[str, Any]) -> tuple[str, str | None]:
    if row["end"] is None or not row["scrapes"]:
        missing = row["coverage_missing_inputs"]
        return "no data", f"gone: {missing}" if missing else _SILENT
    if row["slo_missed"]:
        return "target missed", None
    if row["slower_at_equal_load"]:
        return "slower", None
    if row["binding_limit"] not in (None, "none"):
        return "limit full", None
    if row["slo_missed"] is False:
        return "in target", None
    if row["slower_at_equal_load"] is False:
        return "as its baseline", None
    return "not judged", row["speed_unknown_reason"] or "neither targets nor a baseline"


LOOKED_BACK = timedelta(minutes=10)
EACH_SECONDS = 5.0
# the newest minute of a service that runs is younger
OLD_AFTER = timedelta(minutes=5)
_KEY = list(KEY_COLUMNS)
_HISTOGRAMS = ("ttft_seconds", "tpot_seconds")
_SUMMED = tuple(f"{name}_{part}" for name in _HISTOGRAMS for part in ("sum", "count"))
_LISTS = tuple(f"{name}_{part}" for name in _HISTOGRAMS for part in ("buckets", "edges"))
_TARGETS = ("slo_ttft_seconds", "slo_tpot_seconds", "slo_share")
_GAUGES = (
    *("pool", "scrapes", "restarted", "configuration_changed", "slo_missed"),
    *("running_requests", "waiting_requests", "kv_cache_usage_ratio", "max_num_seqs"),
    *("max_num_seqs_inferred", "max_num_batched_tokens", "gpu_count"),
    "limit_binding_share_10m_ratio",
)
# Of a minute what the fleet page may show.
SCHEMA = {
    name: dtype
    for name, dtype in STORED_SCHEMA.items()
    if name in (*_KEY, "end", *_GAUGES, *_SUMMED, *_LISTS) or name in LAST
}


@dataclass(frozen=True, eq=False)
class Fleet:
    """Every target's newest minute, and its latencies of the last ten."""

    end: datetime | None = None  # of the newest minute of any target, None = there is none
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)  # in order, with their pools
    # row for row with them: columns of a stored minute, `end` NULL where ten minutes have none,
    # and those of :func:`driftwatch.signals.slo.slo_columns`
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)

    def is_stale(self, now: datetime) -> bool:
        """Whether its newest minute is old, or there is none: it says nothing of now."""
        return self.end is None or now - self.end > OLD_AFTER

    @cached_property
    def by_text(self) -> Mapping[str, TargetKey]:
        """Text of a key → the key, in order."""
        return {key.text: key for key in self.targets}

    @cached_property
    def places(self) -> Mapping[TargetKey, int]:
        """Target → its place among the others."""
        return {key: at for at, key in enumerate(self.targets)}

    @cached_property
    def pools(self) -> Mapping[str, Sequence[int]]:
        """Pool, in order → places of its targets."""
        places: dict[str, list[int]] = {}
        for at, target in enumerate(self.targets.values()):
            places.setdefault(target.pool or "default", []).append(at)
        return dict(sorted(places.items()))

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Every target by its newest minute alone, as if there were no incident."""
        columns = [name for name in SUMMARY if name in self.rows.columns]
        rows: Iterable[dict[str, Any]] = [dict.fromkeys(SUMMARY)] * len(self.targets)
        if columns:
            rows = self.rows.select(columns).iter_rows(named=True)
        entries = []
        for at, ((key, target), row) in enumerate(zip(self.targets.items(), rows, strict=True)):
            state, _, why = target_state(row, None, is_stale=False)
            entries.append(Entry(key, target, state, None, why, row, at))
        return entries

    def warm(self) -> Fleet:
        """The same, with what is made of it once made now: nobody who looks waits for it."""
        _ = self.by_text, self.places, self.pools, self.entries
        return self


class FleetMinutes:
    """The fleet of one database, read anew where there are new minutes."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._fleet = Fleet()
        self._frames: dict[tuple[int, datetime], pl.DataFrame] = {}
        self._reading = threading.Lock()
        self._is_kept = threading.Event()

    def old_end(self, now: datetime) -> datetime | None:
        """End of the newest minute, where that is old; as it was read last, None = not or never."""
        fleet = self._fleet
        return fleet.end if fleet.is_stale(now) else None

    def current(self, store: WebStore) -> Fleet:
        """The fleet; at most :data:`EACH_SECONDS` old where a thread keeps it, else as stored."""
        if not self._is_kept.is_set():
            self.refresh(store)
        return self._fleet

    def refresh(self, store: WebStore) -> None:
        """Read the minutes that are new.

        Raises StoreError: the database does not serve.
        """
        with self._reading:
            frames = store.newest_minutes(LOOKED_BACK, SCHEMA, self._frames)
            if not frames or frames.keys() != self._frames.keys():
                targets = self._plan.assign(stored_targets(store))
                self._frames, self._fleet = frames, fleet_of(frames, targets, self._plan).warm()

    @contextmanager
    def kept_fresh(self, opened: Callable[[], WebStore]) -> Iterator[None]:
        """Refresh in a thread while the context lasts."""
        ending = threading.Event()

        def keep_once() -> None:
            try:
                self.refresh(opened())
                self._is_kept.set()
            except Exception as error:  # noqa: BLE001 - the thread goes on, whatever it was
                # who asks for a page reads by themselves, and is told
                self._is_kept.clear()
                reason = getattr(error, "message", None) or repr(error)[:200]
                structlog.get_logger().warning("fleet not read", reason=reason)

        def keep() -> None:
            try:
                keep_once()
                while not ending.wait(EACH_SECONDS):
                    keep_once()
            finally:
                self._is_kept.clear()

        thread = threading.Thread(target=keep, name="driftwatch-fleet", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join(EACH_SECONDS)


def fleet_of(
    frames: Mapping[Batch, pl.DataFrame], targets: Mapping[TargetKey, Target], plan: Plan
) -> Fleet:
    """The newest minute of each target in these frames, with its latencies of ten."""
    if not frames or not targets:
        return Fleet(targets=targets)
    minutes = pl.concat(frames.values()).sort([*_KEY, "end"])
    end = minutes["end"].max()
    assert isinstance(end, datetime)  # noqa: S101 - a frame has rows
    minutes = minutes.filter(pl.col("end") > end - LOOKED_BACK)
    newest = minutes.unique(_KEY, keep="last", maintain_order=True)
    newest = newest.drop(*_SUMMED, *_LISTS)
    keys = [tuple(key) for key in targets]
    rows = pl.DataFrame(keys, dict.fromkeys(_KEY, pl.String), orient="row")
    for frame in (newest, _latencies(minutes, newest)):
        rows = rows.join(frame, on=_KEY, how="left", maintain_order="left")
    serving = plan.serving_frame(targets.values())
    judged = slo_columns(rows, serving)
    rows = rows.drop(*_SUMMED, *_LISTS).with_columns(*judged, *serving.select(_TARGETS))
    return Fleet(end.astimezone(UTC), targets, rows)


def _latencies(rows: pl.DataFrame, newest: pl.DataFrame) -> pl.DataFrame:
    """Ten minutes of each target added up, cut at restarts and where bucket edges changed."""
    changed = pl.col("restarted").fill_null(False) | pl.col("configuration_changed").fill_null(
        False
    )
    last = pl.col("end").filter(changed).max().over(_KEY)
    rows = rows.filter(last.is_null() | (pl.col("end") >= last))
    out = newest.select(*_KEY)
    for name in _HISTOGRAMS:
        edges, buckets = f"{name}_edges", f"{name}_buckets"
        own = rows.filter(pl.col(buckets).list.len() > 0)
        own = own.filter(pl.col(edges) == pl.col(edges).last().over(_KEY))
        whole = own.group_by(_KEY, maintain_order=True).agg(
            pl.col(edges).last(), pl.col(f"{name}_sum").sum(), pl.col(f"{name}_count").sum()
        )
        cells = own.select(*_KEY, buckets, cell=pl.int_ranges(pl.col(buckets).list.len()))
        added = (
            cells.explode(buckets, "cell")
            .group_by(*_KEY, "cell")
            .agg(pl.col(buckets).sum())
            .sort(*_KEY, "cell")
            .group_by(_KEY, maintain_order=True)
            .agg(pl.col(buckets))
        )
        both = whole.join(added, on=_KEY, how="left", maintain_order="left")
        out = out.join(both, on=_KEY, how="left", maintain_order="left")
    return out

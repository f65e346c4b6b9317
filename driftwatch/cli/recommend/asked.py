"""What ``driftwatch recommend`` is asked about: a target, its minutes and its evidence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli.past import Asked
    from driftwatch.model import Finding, Target, TargetKey
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan

_EVIDENCE = timedelta(minutes=10)  # as ``explain`` looks back
_LISTED = 8


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """A target in a window.

    Attributes:
        target: which one.
        at: end of the window.
        minutes: of the target: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, with
            ``cache_config`` and ``model_name``.
        found: what ``explain`` says of the last ten minutes; None = not even one usable scrape.
        gpus: GPU readings.
        replicas: targets of its pool.
        beside: minutes of its peers.
    """

    target: Target
    at: datetime
    minutes: pl.DataFrame
    found: Finding | None
    gpus: pl.DataFrame
    replicas: int | None
    beside: pl.DataFrame

    @property
    def row(self) -> dict[str, Any]:
        """Evidence with the reference's histograms, and "slower" as it was last known."""
        from driftwatch.pipeline.minutes import with_last_speed

        if self.found is None:
            return {}
        return with_last_speed({**self.found.evidence, **self.found.histograms}, self.minutes)


def of_store(
    name: str | None,
    where: Asked,
    length: timedelta,
) -> Looked:
    """From the service's database, as far back as its minutes go.

    Raises:
        NoVerdict: the store holds nothing, or nothing of the target before ``at``.
        UsageError: no target, or more than one, answers to the name; ``at`` lies after the end.
    """
    from driftwatch.cli.database import last_scraped, named_store
    from driftwatch.cli.recorded import print_other_servers
    from driftwatch.pipeline.explain import window_ending
    from driftwatch.pipeline.past_windows import (
        detected_from_store,
        explain_past,
        is_past,
        reference_from_store,
    )
    from driftwatch.pipeline.question import peers_of
    from driftwatch.pipeline.stored import stored_targets

    at, plan, baseline = where.at, where.plan, where.baseline
    with named_store(where.db, where.config) as store:
        last = last_scraped(store)
        end = _end(at, last, f"the last scrape is of {last:%Y-%m-%dT%H:%MZ}")
        targets = plan.assign(stored_targets(store))
        # what an inferred max_num_seqs was learnt from may lie well before the window
        since, until = end - length - timedelta(hours=1), last + timedelta(seconds=1)
        if baseline is not None:
            since = min(since, baseline.start)
        scrapes, gpus = store.scrapes(since, until), store.gpus(since, until)
        print_other_servers(scrapes)
        chosen = chosen_target(name, targets, scrapes, end)
        measured = reference_from_store(store, scrapes, gpus, baseline, targets, plan)
        window = window_ending(end, _EVIDENCE)
        try:
            if is_past(store, scrapes, chosen.key, window):
                found, _ = explain_past(store, chosen, window, plan, measured)
            else:
                detected = detected_from_store(store, chosen.key, end)
                found = _explained(scrapes, gpus, chosen, targets, plan, window, measured, detected)
        except NoVerdict:
            found = None  # what is said of the server now may be gone; its minutes may be not
        minutes = store.past(end - length, end, [chosen.key])
        beside = store.past(end - length, end, peers_of(chosen, targets, plan))
    return Looked(chosen, end, minutes, found, gpus, _of_pool(chosen, targets), beside)


def of_recording(
    name: str | None,
    where: Asked,
    length: timedelta,
    recording: Path,
) -> Looked:
    """From a recording: the whole pipeline runs over it up to ``at``, as ``replay`` does.

    Raises:
        RecordingError: it cannot be read.
        NoVerdict: it holds nothing of the target before ``at``.
        UsageError: no target, or more than one, answers to the name; ``at`` lies after the end.
    """
    from driftwatch.cli.proposed import pins_from
    from driftwatch.cli.recorded import found_in, from_recording, labelled_at
    from driftwatch.pipeline.explain import Window, window_ending

    at, plan, baseline = where.at, where.plan, where.baseline
    scrapes, gpus, targets, whole = from_recording(recording, plan)
    reach = f"scrapes reach from {whole.start:%Y-%m-%dT%H:%MZ} to {whole.end:%Y-%m-%dT%H:%MZ}"
    end = _end(at, whole.end, reach)
    before = targets if baseline is None else labelled_at(recording, plan, baseline.end, targets)
    targets = labelled_at(recording, plan, end, targets)
    chosen = chosen_target(name, targets, scrapes, end)
    seen = found_in(
        scrapes,
        gpus,
        chosen,
        targets,
        plan,
        Window(end - length, end),
        pins=pins_from(where.pins),
        baseline=baseline,
        pinned_of=before,
    )
    detected = seen.detected
    if detected.is_empty():
        raise NoVerdict(
            f"{chosen.key.text}: no minute before {end:%Y-%m-%d %H:%M} UTC is known",
            help_text=reach,
        )
    window = window_ending(end, _EVIDENCE)
    found: Finding | None
    try:
        found = _explained(scrapes, gpus, chosen, targets, plan, window, seen.reference, detected)
    except NoVerdict:
        found = None
    return Looked(chosen, end, seen.minutes, found, gpus, _of_pool(chosen, targets), seen.beside)


def check_scraped(at: datetime | None, last: datetime, length: timedelta, reach: str) -> None:
    """Whether any of the window that ends at ``at`` was scraped.

    Raises:
        UsageError: it begins after the last scrape; ``reach`` says up to when there are any.
    """
    if at is not None and at >= last + length:
        raise UsageError(f"--at {at:%Y-%m-%dT%H:%MZ}: nothing was scraped then", help_text=reach)


def _end(at: datetime | None, last: datetime, reach: str) -> datetime:
    """The end of the window: the time that is asked for, at the last scrape at most.

    Raises:
        UsageError: no minute of the evidence of that time was scraped.
    """
    check_scraped(at, last, _EVIDENCE, reach)
    return min(at or last, last)


def chosen_target(
    name: str | None, targets: Mapping[TargetKey, Target], scrapes: pl.DataFrame, end: datetime
) -> Target:
    """The target that is named; of a pool of several the one with the longest queue at the end.

    Raises:
        UsageError: no target, or more than one that is no pool, answers to the name.
    """
    import polars as pl

    from driftwatch.model import TargetKey
    from driftwatch.pipeline.explain import target_named

    members = {key: one for key, one in targets.items() if name is not None and one.pool == name}
    if len(members) > 1:
        recent = scrapes.filter(
            pl.col("ok")
            & pl.col("waiting_requests").is_not_null()
            & pl.col("time").is_between(end - _EVIDENCE, end)
        )
        queues = recent.group_by("instance", "engine").agg(pl.col("waiting_requests").mean())
        waiting = {TargetKey(one, engine): mean for one, engine, mean in queues.iter_rows()}
        if seen := [key for key in sorted(members) if key in waiting]:
            return members[max(seen, key=lambda key: waiting[key])]
    return target_named(name, targets, _LISTED if sys.stderr.isatty() else None)


def _explained(
    scrapes: pl.DataFrame,
    gpus: pl.DataFrame,
    chosen: Target,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    window: Window,
    measured: pl.DataFrame,
    detected: pl.DataFrame,
) -> Finding:
    from driftwatch.pipeline.explain import explain

    return explain(scrapes, chosen, window, targets, plan, measured, gpus, detected=detected)


def _of_pool(chosen: Target, targets: Mapping[TargetKey, Target]) -> int | None:
    """Engines of the target's pool; None where it is in no pool."""
    if chosen.pool is None:
        return None
    return sum(one.pool == chosen.pool for one in targets.values())

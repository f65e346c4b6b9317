"""``driftwatch explain``: what is known of a target, and the path through the tree."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.options import (
    Duration,
    Progress,
    Span,
    Time,
    plan_from,
    serving_options,
)
from driftwatch.cli.proposed import pins_from, pins_option
from driftwatch.cli.recorded import from_recording, labelled_at
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from driftwatch.detect.pins import Pins
    from driftwatch.model import Finding, Incident, Target, TargetKey
    from driftwatch.service.explain import Window
    from driftwatch.service.plan import Plan

_EXIT_NO_VERDICT = 4
_REPLAYED = timedelta(hours=1)  # of traffic, at most, for the advice
_LISTED = 8  # targets that are named on a terminal; piped all are


@click.command(name="explain")
@click.argument("target", required=False)
@click.option("--at", type=Time(), help="End of the window (default: the newest scrape).")
@click.option(
    "--window",
    "length",
    type=Duration(),
    default="10m",
    show_default=True,
    help="Length of the window.",
)
@click.option(
    "--recording", type=click.Path(path_type=Path), help="Read a recording, not the store."
)
@click.option(
    "--baseline", type=Span(), help="Window whose lengths, rates and speed are the reference."
)
@pins_option
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The store (default: as for driftwatch incidents).",
)
@click.option(
    "--symptom",
    type=click.Choice(["batch", "latency", "throughput", "gpu-idle"]),
    default="batch",
    show_default=True,
    help="What was seen first: the tree that begins there (all end in the same causes).",
)
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@serving_options
def command(
    target: str | None,
    at: datetime | None,
    length: timedelta,
    recording: Path | None,
    baseline: Window | None,
    pins: Path | None,
    db: Path | None,
    symptom: str,
    as_json: bool,
    **serving: Any,
) -> None:
    """Explain TARGET (host:8000, host:8000/1, or a pool of one): evidence, path, limits, advice.

    TARGET may be left out where there is only one. Without --recording, ./driftwatch.yaml is read
    where there is one. Exit code 0: answered; 4: no verdict, what is missing is named.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.clock import SystemClock
    from driftwatch.diagnose.walk import UNDETERMINED
    from driftwatch.service.explain import SYMPTOMS, explain, target_named, window_ending
    from driftwatch.service.last_seen import last_seen

    if recording is None and pins is not None:
        raise UsageError(
            "--pins needs --recording: the database has its own pins",
            help_text=f"driftwatch baseline import {pins}",
        )
    if recording is None and serving["config"] is None:
        serving["config"] = config_here()
    plan = plan_from(**serving)
    if recording is not None:
        scrapes, gpus, targets, whole = from_recording(recording, plan)
        end = whole.end
        targets = labelled_at(recording, plan, at or end, targets)
        incidents: list[Incident] = []
        origins: Mapping[TargetKey, str] = {}
    else:
        scrapes, gpus, targets, end, incidents, origins = _from_store(
            db, serving["config"], at, length, baseline, plan
        )
    chosen = target_named(target, targets, _LISTED if sys.stderr.isatty() else None)
    window = window_ending(at or end, length)
    today, source = SystemClock().now().date(), origins.get(chosen.key)
    firing = [] if at is not None else list(_firing(incidents, chosen))
    if not as_json:  # above "no verdict" as well
        _print_firing(firing, chosen, today)
    pinned = pins_from(pins)
    past = None
    if recording is None:
        past, measured, detected, minutes = _stored(
            db,
            serving["config"],
            scrapes,
            gpus,
            chosen,
            targets,
            plan,
            window,
            baseline,
            today,
            tree=SYMPTOMS[symptom],
        )
    else:
        then = None if baseline is None else baseline.end
        measured, detected, minutes = _detected(
            scrapes,
            gpus,
            chosen,
            targets,
            plan,
            window,
            baseline,
            pinned,
            pinned_of=targets if then is None else labelled_at(recording, plan, then, targets),
        )
    if past is not None:
        found, window = past
    else:
        found = explain(
            scrapes,
            chosen,
            window,
            targets,
            plan,
            measured,
            gpus,
            source=source,
            today=today,
            detected=detected,
            tree=SYMPTOMS[symptom],
        )
    found = _advised(found, minutes, plan, window.end, targets)
    if as_json:
        from driftwatch.notify.explained import explained_json

        click.echo(explained_json(found, window.start, window.end))
    else:
        from driftwatch.cli.following import following
        from driftwatch.notify.explained import render_explained
        from driftwatch.notify.stdout import needs_ascii, wants_colour

        if (silent := last_seen(scrapes, chosen.key, window.end, source)) is not None:
            _print_wrapped(f"NO DATA {chosen.key.text}: {silent.text(today)}")
        click.echo(
            render_explained(
                found,
                window.start,
                window.end,
                incidents=[incident for incident in firing if _is_own(incident, chosen)],
                today=today,
                colour=wants_colour(sys.stdout),
                ascii=needs_ascii(sys.stdout),
                where=following(
                    click.get_current_context(), at=at or (window.end if recording else None)
                ),
            )
        )
    undetermined = found.diagnosis is not None and found.diagnosis.leaf == UNDETERMINED
    click.get_current_context().exit(_EXIT_NO_VERDICT if undetermined else 0)


def _stored(
    db: Path | None,
    config: Path | None,
    scrapes: pl.DataFrame,
    gpus: pl.DataFrame,
    chosen: Target,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    window: Window,
    baseline: Window | None,
    today: date,
    *,
    tree: str,
) -> tuple[tuple[Finding, Window] | None, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The answer from stored minutes where the window's scrapes are gone, else None; reference
    rows; what the detectors said of the window's last minute; the last hour's minutes.
    """
    from driftwatch.cli.database import open_store
    from driftwatch.service.past_windows import (
        detected_from_store,
        explain_past,
        is_past,
        reference_from_store,
    )

    with open_store(*_database(db, config)) as store:
        measured = reference_from_store(store, scrapes, gpus, baseline, targets, plan)
        detected = detected_from_store(store, chosen.key, window.end)
        past = None
        if is_past(store, scrapes, chosen.key, window):
            past = explain_past(store, chosen, window, plan, measured, today=today, tree=tree)
        minutes = store.past(window.end - _REPLAYED, window.end, [chosen.key])
        return past, measured, detected, minutes


def _database(db: Path | None, config: Path | None) -> tuple[str | None, str | None]:
    """What names the store; with both, the configuration brings the pools and --db the data."""
    from driftwatch.cli.database import config_here

    named = None if config is None or config == config_here() else str(config)
    return None if db is None else str(db), named


def _detected(
    scrapes: pl.DataFrame,
    gpus: pl.DataFrame,
    chosen: Target,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    window: Window,
    baseline: Window | None,
    pins: Pins | None,
    *,
    pinned_of: Mapping[TargetKey, Target],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Reference rows, what the detectors say of the window's last minute, the last hour's minutes.

    ``pinned_of`` are the targets as they were labelled in the baseline window.
    """
    from driftwatch.cli.proposed import Taken, with_proposals
    from driftwatch.cli.recent import Recent
    from driftwatch.detect.pins import Pins
    from driftwatch.detect.reference import combined, no_reference
    from driftwatch.service.folded import detected_until
    from driftwatch.service.pin_making import with_more
    from driftwatch.service.pinned import pinned
    from driftwatch.service.replay import of_baseline

    held, measured = pins or Pins(), no_reference()
    if baseline is not None:
        measured, more = of_baseline(scrapes, gpus, baseline, pinned_of, plan)
        held = with_more(more, held)
    progress, taken = Progress("replaying"), Taken()
    recent = Recent(window.end - _REPLAYED, taken.note)
    try:
        detected = detected_until(
            scrapes,
            gpus,
            chosen,
            targets,
            replace(with_proposals(plan), replays=0),
            window.end,
            pins=held,
            reference=measured,
            progress=progress,
            seen=recent.note,
        )
    finally:
        progress.close()
    taken.tell()
    reference = combined(measured, pinned(held, targets, plan, gpus).reference)
    return reference, detected, recent.minutes()


def _advised(
    found: Finding,
    minutes: pl.DataFrame,
    plan: Plan,
    end: datetime,
    targets: Mapping[TargetKey, Target],
) -> Finding:
    """The finding with what a replay of its traffic says, where its leaf asks for one."""
    from driftwatch.service.last_speed import with_last_speed
    from driftwatch.service.page_advice import explained

    pool = found.target.pool
    replicas = None if pool is None else sum(one.pool == pool for one in targets.values())
    row = with_last_speed({**found.evidence, **found.histograms}, minutes)
    return explained(found, row, minutes, plan, end, replicas)


def _from_store(
    db: Path | None,
    config: Path | None,
    at: datetime | None,
    length: timedelta,
    baseline: Window | None,
    plan: Plan,
) -> tuple[
    pl.DataFrame,
    pl.DataFrame,
    Mapping[TargetKey, Target],
    datetime,
    list[Incident],
    Mapping[TargetKey, str],
]:
    """Stored scrapes and GPU readings around the window (and the baseline), targets, up to when,
    open incidents, and the source of each target.
    """
    from driftwatch.cli.database import open_store
    from driftwatch.service.stored import newest, stored_origins, stored_targets

    with open_store(*_database(db, config)) as store:
        last = newest(store)
        if last is None:
            raise NoVerdict(
                "the store holds no scrape yet", help_text="driftwatch run -c driftwatch.yaml"
            )
        end = at or last
        # what an inferred max_num_seqs was learnt from may lie well before the window
        first = min(end - length - timedelta(hours=1), datetime.max.replace(tzinfo=UTC))
        if baseline is not None:
            first = min(first, baseline.start)
        until = max(end, last) + timedelta(seconds=1)
        scrapes, gpus = store.scrapes(first, until), store.gpus(first, until)
        targets = plan.assign(stored_targets(store))
        incidents = list(store.open_incidents().values())
        origins = stored_origins(store)
    return scrapes, gpus, targets, end, incidents, origins


def _is_own(incident: Incident, target: Target) -> bool:
    named = (incident.target.get("instance"), incident.target.get("engine"))
    return named == tuple(target.key)


def _firing(incidents: Sequence[Incident], target: Target) -> Iterator[Incident]:
    """The target's own firing incidents, then those of its whole pool."""
    firing = [incident for incident in incidents if incident.state == "firing"]
    yield from (incident for incident in firing if _is_own(incident, target))
    for incident in firing:
        whole = incident.target.get("instance") is None
        if whole and target.pool and incident.target.get("pool") == target.pool:
            yield incident


def _print_firing(incidents: Sequence[Incident], target: Target, today: date) -> None:
    """``FIRING BatchLimitBinding since 02:45 UTC``, a line each."""
    from driftwatch.notify.numbers import moment

    for incident in incidents:
        whose = "" if _is_own(incident, target) else f" of pool {target.pool}"
        taken = f", taken by {incident.acknowledged_by}" if incident.acknowledged_by else ""
        began = moment(incident.started_at, today)
        _print_wrapped(f"FIRING {incident.alert}{whose} since {began}{taken}")


def _print_wrapped(text: str) -> None:
    from driftwatch.notify.layout import spell, wrap
    from driftwatch.notify.numbers import clean
    from driftwatch.notify.stdout import needs_ascii

    for line in wrap(spell(clean(text), needs_ascii(sys.stdout)), 80, "  "):
        click.echo(line)

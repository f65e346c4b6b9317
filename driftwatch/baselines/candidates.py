"""What can be pinned: minutes of the store or of a recording, proposals, refusals, who arms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import in_force
from driftwatch.baselines.rows import baselines_from_store
from driftwatch.baselines.windows import (
    Acceptance,
    Measured,
    baseline_id,
    baseline_of_pool,
    baseline_of_target,
    what_ran,
)
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.schema import KEY_COLUMNS, Source
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.proposals import (
    BEFORE_SLOW,
    LONGEST,
    NOT_SEEN,
    SLOW,
    LeftOut,
    Proposal,
    Trouble,
    left_out_of,
    marked,
    propose,
)
from driftwatch.detect.proposals import described as stretch
from driftwatch.detect.speed import columns as speed
from driftwatch.detect.speed.load_model import TooLittle, fit
from driftwatch.model import Fingerprint, Incident, Target, TargetKey
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.replay import replay
from driftwatch.pipeline.server_reports import stored_reports
from driftwatch.pipeline.stored_state import newest, stored_targets
from driftwatch.signals.minutes import MINUTE_SCHEMA, minutes
from driftwatch.store.store import Store

_KEY = list(KEY_COLUMNS)
_JUDGED = ("slower_at_equal_load", "slower_than_pool", "speed_unknown_reason", "cache_config")
_RECENT = timedelta(minutes=10)
# Reasons that no baseline gets over without somebody saying why: what a pin must not hold.
_CHANGES = ("restart", "knobs changed", "release changed")
_GRAVE = ("incident ", *_CHANGES)


@dataclass(frozen=True, slots=True)
class Material:
    """What baselines can be pinned from."""

    # target keys → their minutes (:data:`driftwatch.signals.minutes.MINUTE_SCHEMA`) with what
    # detectors said, the page's ``cache_config``, and ``left_out``
    load: Callable[[Sequence[TargetKey]], pl.DataFrame]
    targets: Mapping[TargetKey, Target]  # with their pools
    plan: Plan  # settings, and what the servers said of themselves
    until: datetime | None = None  # end of the newest minute; None where there is none
    gpus: pl.DataFrame = field(default_factory=empty_gpus)  # recent GPU readings
    # target → what is known of what runs there now
    ran: Mapping[TargetKey, Fingerprint] = field(default_factory=dict)
    baselines: Baselines = field(default_factory=Baselines)  # in force

    def of(self, members: Iterable[Target]) -> pl.DataFrame:
        """The minutes of some targets."""
        return self.load([target.key for target in members])


@dataclass(frozen=True, slots=True)
class Subject:
    """What a pin is about."""

    scope: str  # ``target`` or ``pool``
    members: tuple[Target, ...]  # the target, or the pool's targets

    @property
    def name(self) -> str:
        """``host:8000``, or the pool's name."""
        one = self.members[0]
        return one.key.text if self.scope == "target" else one.pool or ""

    def id_of(self, window: Window) -> str:
        """The id of its pin of a window."""
        one = self.members[0]
        if self.scope == "pool":
            return baseline_id("pool", one.pool or "", "", window)
        return baseline_id("target", one.key.instance, one.key.engine, window)


@dataclass(frozen=True, slots=True)
class Offer:
    """A subject with its proposal."""

    subject: Subject  # what it is about
    proposal: Proposal | None  # None where no minute is fit for a baseline
    arming: str | None  # what its minutes lack for a load model; None = nothing
    left_out: tuple[LeftOut, ...]  # what was looked at and is no baseline


def material_of_store(store: Store, plan: Plan) -> Material:
    """What the store has: minutes are kept as such for two days, which is the longest pin.

    Minutes are read target by target, so that memory does not grow with the fleet.

    ``store``: of a service; ``plan``: pools.
    """
    plan = replace(plan, reported=stored_reports(store))
    targets, until, baselines = (
        plan.assign(stored_targets(store)),
        newest(store),
        baselines_from_store(store),
    )
    path = store.path
    if until is None:
        return Material(lambda _: _no_rows(), targets, plan, baselines=baselines)
    since = until - LONGEST - timedelta(hours=1)
    troubles = troubles_of(store.incidents(since=since, limit=100_000))

    def load(keys: Sequence[TargetKey]) -> pl.DataFrame:
        with Store.open(path, migrate=False) as again:
            rows = again.past(since, until, keys)
        of_minutes = rows.filter(pl.col("seconds") == 60).select(*MINUTE_SCHEMA, *_JUDGED)
        return marked(judged(of_minutes, plan), troubles)

    recent = store.past(until - _RECENT, until)
    gpus = store.gpus(until - _RECENT, until)
    ran = what_ran(recent, targets, plan, gpus)
    return Material(load, targets, plan, until, gpus, ran, baselines)


def judged(rows: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Minutes with ``slower_at_equal_load`` where nobody has said it: against their own past.

    Without a pin nothing is called slow, and a slow stretch would be proposed as the first pin.

    ``rows``: minutes with that column, by instance, engine and end; ``plan``: what a person set
    about detection.
    """
    if not rows["slower_at_equal_load"].null_count():
        return rows
    settings = replace(plan.detection, accepts_proposals=True)
    speeds, _ = speed.columns(
        rows.select(list(MINUTE_SCHEMA)), speed.Memory(), Baselines(), settings
    )
    return rows.with_columns(
        slower_at_equal_load=pl.coalesce("slower_at_equal_load", speeds["slower_at_equal_load"])
    )


def material_of_recording(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    baselines: Baselines,
    progress: Callable[[datetime], None] | None = None,
) -> Material:
    """What recordings have: all of it goes through the tick, which knows incidents.

    ``sources``: recordings; ``span``: from, to; ``plan``: pools; ``pins``: in force; ``progress``:
    told how far it has come.
    """
    rows: list[pl.DataFrame] = []
    open_at: dict[str, Incident] = {}
    troubles: list[Incident] = []
    for outcome in replay(sources, span, plan, baselines=baselines, progress=progress):
        if len(outcome.rows):
            verdicts = outcome.rows.select(*_JUDGED)
            rows.append(minutes(outcome.rows).hstack(verdicts))
        for transition in outcome.transitions:
            incident = transition.incident
            if transition.event == "firing":
                open_at[incident.id] = incident
            else:
                open_at.pop(incident.id, None)
                troubles.append(incident)
    gathered = pl.concat(rows) if rows else _no_rows()
    done = marked(gathered, troubles_of([*troubles, *open_at.values()]))
    collected = [s.collect(*span) for s in sources]
    targets = plan.assign({key: t for c in collected for key, t in c.targets.items()})
    gpus = pl.concat(c.gpus for c in collected)

    def load(keys: Sequence[TargetKey]) -> pl.DataFrame:
        frame = pl.DataFrame(
            [tuple(key) for key in keys], schema=dict.fromkeys(_KEY, pl.String), orient="row"
        )
        return done.join(frame, on=_KEY, how="semi", maintain_order="left")

    newest_end = done["end"].max()
    until = newest_end if isinstance(newest_end, datetime) else None
    ran = what_ran(done, targets, plan, gpus)
    return Material(load, targets, plan, until, gpus, ran, baselines)


def troubles_of(incidents: Iterable[Incident]) -> list[Trouble]:
    """Incidents that paged: what only informs does not spoil a baseline."""
    return [
        Trouble(
            incident.alert,
            incident.started_at,
            incident.resolved_at,
            incident.target.get("instance"),
            incident.target.get("engine", "0") if incident.target.get("instance") else None,
            incident.target.get("pool"),
        )
        for incident in incidents
        if incident.severity == "page" and incident.firing_at is not None
    ]


def subjects(material: Material, name: str | None) -> list[Subject]:
    """Targets that a person means, or a pool of several; every target where nothing is named."""
    every = [material.targets[key] for key in sorted(material.targets)]
    if name is None:
        return [Subject("target", (target,)) for target in every]
    exact = [t for t in every if name in (t.key.text, f"{t.key.instance}/{t.key.engine}")]
    if exact:
        return [Subject("target", (exact[0],))]
    pool = tuple(t for t in every if t.pool == name)
    if len(pool) > 1:
        return [Subject("pool", pool)]
    members = pool or tuple(t for t in every if t.key.instance == name)
    return [Subject("target", (target,)) for target in members]


def offer(material: Material, subject: Subject) -> Offer:
    """The best stretch of a subject, with what it lacks."""
    rows = material.of(subject.members)
    proposal = propose(rows) if len(rows) else None
    lacking = None
    if proposal is not None:
        inside = rows.filter(
            (pl.col("end") > proposal.since) & (pl.col("end") <= proposal.until)
        ).filter(pl.col("left_out").is_null())
        model = fit(inside.select(list(MINUTE_SCHEMA)))
        lacking = model.reason if isinstance(model, TooLittle) else None
    return Offer(subject, proposal, lacking, left_out_of(rows))


def refused(material: Material, subject: Subject, window: Window) -> tuple[str, ...]:
    """Why a window should not be pinned; nothing where it may."""
    inside = _inside(material.of(subject.members), window)
    scraped = inside.filter(pl.col("scrapes") > 0)
    if scraped.is_empty():
        return (f"no minute of {subject.name} lies in the window",)
    problems = [
        f"{one.why} ({one.since:%Y-%m-%d %H:%M}-{one.until:%H:%M} UTC)"
        for one in left_out_of(inside)
        if one.why.startswith(_GRAVE)
    ]
    model = fit(_good(inside))
    if isinstance(model, TooLittle):
        problems.append(f"too little for a load model: {model.reason}")
    return tuple(problems)


def described(material: Material, subject: Subject, window: Window) -> Proposal | None:
    """What a window shows of a subject; None where no minute of it lies inside."""
    inside = _inside(material.of(subject.members), window)
    first, last = inside["end"].min(), inside["end"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return None
    return stretch(inside, first, last)


def accepted_window(
    material: Material,
    subject: Subject,
    window: Window,
    accepted: Acceptance,
    *,
    anyway: bool = False,
) -> Baselines | None:
    """The pin of a subject; minutes that are no baseline are left out of what it remembers.

    ``material``: minutes and what ran; ``subject``: what is pinned; ``window``: which span;
    ``accepted``: who accepts it; ``anyway``: a person knows better than the incidents: then only
    minutes around restarts and changes are left out.
    """
    inside = _inside(material.of(subject.members), window)
    if anyway:
        technical = pl.col("left_out").str.contains("|".join((NOT_SEEN, *_CHANGES)))
        inside = inside.with_columns(left_out=pl.when(technical).then("left_out"))
    members = {target.key: target for target in subject.members}
    measured = Measured(_good(inside), what_ran(inside, members, material.plan, material.gpus))
    if subject.scope == "pool":
        baseline = baseline_of_pool(measured, window, subject.members, accepted)
    else:
        baseline = baseline_of_target(measured, window, subject.members[0], accepted)
    return None if baseline is None else Baselines((baseline,))


@dataclass(frozen=True, slots=True)
class ArmingTarget:
    """A target without a pin in force."""

    target: Target  # which one
    # what its minutes lack for a load model; None = nothing, a proposal can be had
    lacking: str | None
    # no verdict before this; None where only another load helps, or nothing lacks
    earliest: datetime | None = None

    @property
    def text(self) -> str:
        """``arming: 15 of 20 minutes, load spread 1.1x of 1.5x, no verdict before 11:34 UTC``."""
        if self.lacking is None:
            return "no pin: driftwatch baseline propose has one"
        soonest = "" if self.earliest is None else f", no verdict before {self.earliest:%H:%M} UTC"
        return f"arming: {self.lacking}{soonest}"


def without_baseline(material: Material) -> list[Target]:
    """Targets for which no pin is in force, by key."""
    baselines = in_force(
        material.baselines, material.targets, material.plan, material.gpus
    ).baselines
    return [
        target
        for key, target in sorted(material.targets.items())
        if baselines.of_target(key.instance, key.engine, target.pool or "") is None
    ]


def arming(material: Material, targets: Iterable[Target]) -> list[ArmingTarget]:
    """Targets without a pin, with what is missing for a load model and the earliest time.

    The time is a lower bound: nobody knows when load will spread.

    ``material``: their minutes; ``targets``: which ones (:func:`without_baseline`).
    """
    return [_arming(material, target) for target in targets]


def _arming(material: Material, target: Target) -> ArmingTarget:
    rows = _good(material.of([target]))
    if rows.is_empty():
        return ArmingTarget(target, "no minute of it is stored")
    model = fit(rows)
    if isinstance(model, TooLittle):
        return ArmingTarget(target, model.reason, model.earliest)
    return ArmingTarget(target, None)


def _inside(rows: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Whole minutes of a window.

    Minutes are suspect where a loss is told soon after. A window that ends before that has been
    called good by somebody, so they are.
    """
    start = pl.col("end") - timedelta(minutes=1)
    inside = rows.filter((start >= window.start) & (pl.col("end") <= window.end))
    reached = (pl.col("left_out") == SLOW).fill_null(False).any().over(_KEY)
    called_good = (pl.col("left_out") == BEFORE_SLOW) & ~reached
    return inside.with_columns(left_out=pl.when(~called_good.fill_null(False)).then("left_out"))


def _good(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("left_out").is_null()).select(list(MINUTE_SCHEMA))


def _no_rows() -> pl.DataFrame:
    booleans = dict.fromkeys(("slower_at_equal_load", "slower_than_pool"), pl.Boolean)
    texts = dict.fromkeys(("speed_unknown_reason", "cache_config"), pl.String)
    return pl.DataFrame(schema={**MINUTE_SCHEMA, **booleans, **texts})

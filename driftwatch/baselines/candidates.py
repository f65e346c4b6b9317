"""A window that can become a baseline: its subject, its minutes, and the reasons against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import in_force
from driftwatch.baselines.proposals import (
    BEFORE_SLOW,
    LONGEST,
    NOT_SEEN,
    SLOW,
    LeftOut,
    Proposal,
    left_out_of,
    marked,
    proposal_of,
    propose,
)
from driftwatch.baselines.windows import (
    Acceptance,
    WindowMinutes,
    accepted_baseline,
    fingerprints_of,
)
from driftwatch.collect.schema import KEY, keys_frame
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.reference import no_reference
from driftwatch.detect.speed.model import MIN_MINUTES, TooFewMinutes, fit
from driftwatch.incidents.incident import Incident
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.numbers import duration
from driftwatch.pipeline.detection import Detection, detect
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.stored_state import last_collected, stored_reports, stored_targets
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.store import Store

_JUDGED = {
    "slower_at_equal_load": pl.Boolean,
    "slower_than_pool": pl.Boolean,
    "cache_config": pl.String,
    "gpu_model": pl.String,
}
_MINUTE, _RECENT = timedelta(minutes=1), timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Material:
    """Minutes, targets and settings that baselines are made from."""

    # target keys → their minutes (:data:`driftwatch.signals.minutes.MINUTE_SCHEMA`) with the
    # detectors' verdicts, ``cache_config``, ``gpu_model`` and ``left_out``
    load: Callable[[Sequence[TargetKey]], pl.DataFrame]
    targets: Mapping[TargetKey, Target]  # with their pools
    plan: Plan  # settings, with those that the servers reported
    until: datetime | None = None  # end of the newest minute; None where there is none
    ran: Mapping[TargetKey, Fingerprint] = field(default_factory=dict)  # of what runs now
    baselines: Baselines = field(default_factory=Baselines)  # in force


def material_of_store(store: Store, plan: Plan) -> Material:
    """The minutes of a store, which keeps them for two days: the longest baseline.

    ``load`` reads some targets at a time, so that memory does not grow with the fleet.
    """
    plan = replace(plan, reported=stored_reports(store))
    targets, until = plan.assign(stored_targets(store)), last_collected(store)
    place, baselines = store.place, store.baselines()
    if until is None:
        return Material(lambda _: _no_rows(), targets, plan, baselines=baselines)
    since = until - LONGEST - timedelta(hours=1)
    incidents = _troubles(store, plan, since)

    def load(keys: Sequence[TargetKey]) -> pl.DataFrame:
        with Store.open(place, migrate=False) as again:
            rows = again.past(since, until, keys)
        of_minutes = rows.filter(pl.col("seconds") == 60).select(*MINUTE_SCHEMA, *_JUDGED)
        near = {key.instance for key in keys}
        own = [one for one in incidents if any(s.instance in near for s in one.servers)]
        return marked(_judged(of_minutes), own)

    ran = fingerprints_of(store.past(until - _RECENT, until), targets, plan)
    return Material(load, targets, plan, until, ran, baselines)


def _judged(rows: pl.DataFrame) -> pl.DataFrame:
    """Minutes with ``slower_at_equal_load``: where no baseline gave it, against their own past."""
    if rows.is_empty() or not rows["slower_at_equal_load"].null_count():
        return rows
    first, last = rows["end"].min(), rows["end"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)  # noqa: S101
    inputs = (Detection(), rows, (first - _MINUTE, last), Baselines(), no_reference())
    columns, _ = detect(*inputs, None, accepts=True)
    verdicts = columns["slower_at_equal_load"]
    return rows.with_columns(slower_at_equal_load=pl.coalesce("slower_at_equal_load", verdicts))


def material_of_replayed(store: Store, plan: Plan) -> Material:
    """All minutes of a store that holds a replayed recording."""
    targets, reach = plan.assign(stored_targets(store)), store.minutes_reach()
    if reach is None:
        return Material(lambda _: _no_rows(), targets, plan)
    first, last = reach
    rows = store.past(first, last).select(*MINUTE_SCHEMA, *_JUDGED)
    done = marked(rows, _troubles(store, plan))

    def load(keys: Sequence[TargetKey]) -> pl.DataFrame:
        return done.join(keys_frame(keys), on=KEY, how="semi", maintain_order="left")

    return Material(load, targets, plan, last, fingerprints_of(done, targets, plan))


def _troubles(store: Store, plan: Plan, since: datetime | None = None) -> list[Incident]:
    """Incidents that fired, of any severity, pages last.

    Without those about lengths that moved: a new baseline is what ends them, and they would bar it.
    What longer requests cost bars it by itself: a missed target, a full limit's page.
    """
    of_lengths = {rule.id for rule in plan.rules if rule.page.family == "retune"}
    found = store.incidents(since=since, limit=100_000, pages=False)
    fired = [one for one in found if one.firing_at is not None and one.rule not in of_lengths]
    return sorted(fired, key=lambda one: one.severity == "page")


def _no_rows() -> pl.DataFrame:
    return pl.DataFrame(schema={**MINUTE_SCHEMA, **_JUDGED})


_CHANGES = ("restart", "knobs changed", "release changed")
# A window with one of these is refused until a person gives a reason (--anyway --why).
_REFUSED = ("incident ", *_CHANGES)
_LONGEST_WHY = 1000  # characters


@dataclass(frozen=True, slots=True)
class Subject:
    """The target or pool of a baseline."""

    scope: str  # ``target`` or ``pool``
    members: tuple[Target, ...]  # the target, or the pool's targets

    @property
    def name(self) -> str:
        """``host:8000``, or the pool's name."""
        one = self.members[0]
        return one.key.text if self.scope == "target" else one.pool or ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A window that may become a subject's baseline."""

    material: Material
    subject: Subject
    window: Window
    rows: pl.DataFrame  # its whole minutes, marked

    @property
    def refusals(self) -> tuple[str, ...]:
        """The reasons not to accept it; empty = none."""
        if self.rows.filter(pl.col("scrapes") > 0).is_empty():
            return (f"no minute of {self.subject.name} lies in the window",)
        problems = [
            f"{one.why} ({one.since:%Y-%m-%d %H:%M}-{one.until:%H:%M} UTC)"
            for one in left_out_of(self.rows)
            if one.why.startswith(_REFUSED)
        ]
        if (lacking := _lacking(self.rows, _good(self.rows))) is not None:
            problems.append(f"too little for a load model: {lacking}")
        return tuple(problems)

    @property
    def proposal(self) -> Proposal | None:
        """The window as a proposal; None where no minute lies in it."""
        first, last = self.rows["end"].min(), self.rows["end"].max()
        if not isinstance(first, datetime) or not isinstance(last, datetime):
            return None
        return proposal_of(self.rows, first, last)


@dataclass(frozen=True, slots=True)
class Offer:
    """A subject with its proposal."""

    subject: Subject
    proposal: Proposal | None  # None where no minute is fit for a baseline
    lacking: str | None  # what its minutes lack for a load model; None = nothing
    left_out: tuple[LeftOut, ...]  # minutes that are unfit for a baseline

    @property
    def is_fit(self) -> bool:
        """It can be accepted."""
        return self.proposal is not None and self.lacking is None


def subjects(material: Material, name: str | None) -> list[Subject]:
    """The targets, or the pool of several, with this name; None = every target.

    Where each server of a pool has a baseline of its own, the pool's would hold for none: then the
    servers.
    """
    every = [material.targets[key] for key in sorted(material.targets)]
    if name is None:
        return [Subject("target", (target,)) for target in every]
    exact = [t for t in every if name in (t.key.text, f"{t.key.instance}/{t.key.engine}")]
    if exact:
        return [Subject("target", (exact[0],))]
    pool = tuple(t for t in every if t.pool == name)
    if len(pool) > 1 and not each_has_own(material, pool):
        return [Subject("pool", pool)]
    members = pool or tuple(t for t in every if t.key.instance == name)
    return [Subject("target", (target,)) for target in members]


def each_has_own(material: Material, members: Iterable[Target]) -> bool:
    """Whether each of them has a baseline of its own, which goes before the pool's."""
    own = {(one.instance, one.engine) for one in material.baselines.every if one.scope == "target"}
    return own.issuperset(tuple(one.key) for one in members)


def offer(material: Material, subject: Subject) -> Offer:
    """The best stretch of a subject, with what it lacks."""
    rows = _rows(material, subject.members)
    if rows.is_empty():
        return Offer(subject, None, "no minute of it is stored", ())
    proposal, good = propose(rows), _good(rows)
    if proposal is not None:
        ends = pl.col("end").is_between(proposal.since, proposal.until, closed="right")
        good = good.filter(ends)
    return Offer(subject, proposal, _lacking(rows, good), left_out_of(rows))


def _lacking(rows: pl.DataFrame, good: pl.DataFrame) -> str | None:
    """What minutes lack for a load model; None = nothing.

    ``rows``: marked; ``good``: those of them that are fit.
    """
    model = fit(good)
    if not isinstance(model, TooFewMinutes):
        return None
    bad = rows.join(good, on="end", how="anti").drop_nulls("left_out").unique(["end", "left_out"])
    text = model.reason
    if not bad.is_empty():
        minutes, why = max((len(each), str(why)) for (why,), each in bad.group_by("left_out"))
        text = f"{model.minutes} of {MIN_MINUTES} minutes fit: {why} in {minutes}"
    return text + ("" if model.earliest is None else f", earliest {model.earliest:%H:%M} UTC")


def candidate(material: Material, subject: Subject, window: Window) -> Candidate:
    """The whole minutes of a window.

    Minutes shortly before a loss of speed are left out, unless a person's window ends before it.
    """
    rows = _rows(material, subject.members)
    start = pl.col("end") - timedelta(minutes=1)
    inside = rows.filter((start >= window.start) & (pl.col("end") <= window.end))
    reached = (pl.col("left_out") == SLOW).fill_null(False).any().over(KEY)
    is_chosen = (pl.col("left_out") == BEFORE_SLOW) & ~reached
    inside = inside.with_columns(left_out=pl.when(~is_chosen.fill_null(False)).then("left_out"))
    return Candidate(material, subject, window, inside)


def without_baseline(material: Material) -> list[Target]:
    """Targets for which no baseline is in force, by key."""
    ran = ((key.instance, one.identity.get("gpu")) for key, one in material.ran.items())
    gpu_of = {instance: gpu for instance, gpu in ran if gpu}
    now = in_force(material.baselines, material.targets, material.plan, gpu_of).baselines
    return [
        target
        for key, target in sorted(material.targets.items())
        if now.of_target(key.instance, key.engine, target.pool or "") is None
    ]


def _rows(material: Material, members: Iterable[Target]) -> pl.DataFrame:
    return material.load([target.key for target in members])


def _good(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("left_out").is_null()).select(list(MINUTE_SCHEMA))


def proposal_text(proposal: Proposal) -> str:
    """Why a stretch is good, in one line; the baseline stores it."""
    parts = [duration(proposal.length.total_seconds()), "no restart, no incident"]
    if proposal.slo_kept_ratio is not None:
        parts.append(f"SLO kept in {100 * proposal.slo_kept_ratio:.3g} % of its minutes")
    parts.append(f"{proposal.finished_requests:,} requests finished")
    return ", ".join(parts)


def accepted(
    window: Candidate, by: str, at: datetime, why: str, *, anyway: bool = False
) -> Baseline | None:
    """The baseline of a window that a person accepts, without the minutes that are left out.

    None where there are refusals, or no minutes. ``anyway``: refuse nothing, and leave out only
    minutes around restarts and changes.
    """
    reasons, rows = window.refusals, window.rows
    if reasons and not anyway:
        return None
    if anyway:
        is_change = pl.col("left_out").str.contains("|".join((NOT_SEEN, *_CHANGES)))
        rows = rows.with_columns(left_out=pl.when(is_change).then("left_out"))
    proposal = window.proposal
    good = why or ("" if proposal is None else proposal_text(proposal))
    texts = (good, *(f"accepted although {reason}" for reason in reasons))
    because = "; ".join(filter(None, texts))[:_LONGEST_WHY]
    members = {target.key: target for target in window.subject.members}
    measured = WindowMinutes(_good(rows), fingerprints_of(rows, members, window.material.plan))
    return accepted_baseline(
        *(measured, window.window, window.subject.members),
        *(Acceptance(by, at, because), window.subject.scope),
    )

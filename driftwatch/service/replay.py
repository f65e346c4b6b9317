"""History through the whole pipeline, at its own times, into a store as the service writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl

from driftwatch.baselines.windows import Acceptance, baselines_of, measured
from driftwatch.collect.schema import Collected, Recording, Source, in_order
from driftwatch.detect.baselines import Baselines
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.explain import Window, no_baseline, whole_minutes
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import CATCH_UP
from driftwatch.service.batches import Batch, TickContext
from driftwatch.signals.one_process import fail_foreign_scrapes
from driftwatch.store.store import Store
from driftwatch.verify.before_after import judge_at

# As much as is evaluated in one go; the result does not depend on it (a test holds it to that). A
# tick takes half a second before its first target (hundreds of small tables), and every scrape of
# it some 20 KB while it is evaluated.
MOST_SCRAPES = 5000
SHORTEST, LONGEST = timedelta(minutes=10), timedelta(days=1)
# An API's labels (pod, image) are those at the end of one question.
LONGEST_OF_API = timedelta(hours=4)
# While no target is known, the stride doubles up to this.
LONGEST_EMPTY = timedelta(hours=1)
# After a long gap, evaluate this much of it before the first new scrape.
EVALUATED_GAP = timedelta(hours=2)
DAY = timedelta(days=1)


def stride_of(state: State, sources: Sequence[Source]) -> timedelta:
    """How much history of these targets is evaluated at once; of none yet the shortest."""
    interval = _interval(state.minutes)
    if not state.targets or interval is None:
        return SHORTEST
    recorded = all(isinstance(source, Recording) for source in sources)
    most = interval * MOST_SCRAPES / len(state.targets)
    stride = max(SHORTEST, min(LONGEST if recorded else LONGEST_OF_API, most))
    return timedelta(minutes=stride // timedelta(minutes=1))


def _interval(minutes: pl.DataFrame) -> timedelta | None:
    """How often a target is scraped; None where none was."""
    usual = minutes["scrapes"].filter(minutes["scrapes"] > 0).median()
    return timedelta(minutes=1) / usual if isinstance(usual, float) else None


def replay(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    *,
    store: Store | None = None,
    baseline: Window | None = None,
    stride: timedelta | None = None,
    progress: Callable[[datetime], None] | None = None,
) -> Iterator[Outcome]:
    """Outcomes of every whole minute in the span, in order.

    Args:
        store: an empty one, in which minutes, incidents, advice and verifications are written;
            None = one in memory.
        baseline: window with whose lengths, rates and speed all of the span is compared.
        stride: how much is collected and evaluated at once; None = by how many targets there are.

    Raises:
        UsageError: the baseline holds no minute with a scrape.
    """
    start, end = span
    with ExitStack() as opened:
        kept = opened.enter_context(Store.in_memory()) if store is None else store
        if baseline is not None:
            every = baseline_of(sources, baseline, plan).every
            at = [min(one.accepted_at, start) for one in every]
            kept.add_baselines(
                one.model_copy(update={"accepted_at": when})
                for one, when in zip(every, at, strict=True)
            )
        ticks = Ticks(sources, plan, kept, start)
        targets: dict[TargetKey, Target] = {}
        for now, outcome in ticks.over(start, end, stride):
            targets |= outcome.targets
            if progress is not None:
                progress(now)
            yield outcome
        _judge_open(kept, plan, targets)


def _judge_open(store: Store, plan: Plan, targets: Mapping[TargetKey, Target]) -> None:
    """No minute follows: what is open gets the verdict that all there is allows, or none."""
    reach, judged = store.minutes_reach(), []
    for opened in store.open_verifications() if reach is not None else ():
        assert reach is not None  # noqa: S101 - for mypy
        target = targets[TargetKey(opened.instance, opened.engine)]
        past = PastMinutes(store)
        judged.append(judge_at(opened, past.minutes, reach[1], plan.slo_of(target)))
    for one in judged:
        store.write_verification(one)


class Ticks:
    """Ticks over sources, each as the service makes it, but that nobody is sent anything.

    Args:
        start: sources answer for what comes after it.
        simulates: how far back from a tick questions are simulated; None = all are.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        plan: Plan,
        store: Store,
        start: datetime,
        simulates: timedelta | None = None,
    ) -> None:
        self._sources = sources
        self._context = TickContext(plan, (), simulates=simulates)
        self.batch = Batch(store, start)
        until = {source.name: start for source in sources} | dict(self.state.collected_until)
        self.state = replace(self.state, collected_until=until)

    @property
    def state(self) -> State:
        """From which the next tick continues."""
        return self.batch.state

    @state.setter
    def state(self, state: State) -> None:
        self.batch.state = state

    def tick(self, now: datetime, since: datetime | None = None) -> Outcome:
        """Collect up to ``now``, evaluate what has become complete, commit it.

        Args:
            since: minutes before it stay without a verdict; None = those before the last six hours.
        """
        until = dict(self.state.collected_until)
        answers: dict[str, Collected] = {}
        for source in self._sources:
            edge = now - timedelta(seconds=source.settle_seconds)
            if edge > until[source.name]:
                answers[source.name] = source.collect(until[source.name], edge)
                until[source.name] = edge
        complete = min((until[s.name] for s in self._sources), default=now)
        given = TickInput.of(self._sources, answers, complete, until, since=since)
        return self.batch.tick(given, now, self._context).outcome

    def over(
        self, start: datetime, end: datetime, stride: timedelta | None = None
    ) -> Iterator[tuple[datetime, Outcome]]:
        """How far it is, and the outcome of each stretch from ``start`` to ``end``.

        A stretch ends with the UTC day, so that a state of midnight can be gone on with.

        Args:
            stride: how much is collected and evaluated at once; None = by how much there is of it.
        """
        sources = self._sources
        # a tick has one set of labels: where they change, another one begins
        labels = _relabelled(sources)
        settled = timedelta(seconds=max(s.settle_seconds for s in sources))
        now, empty = start, SHORTEST
        while now < end:
            state = self.state
            ahead = stride or (stride_of(state, sources) if state.targets else empty)
            empty = min(2 * empty, LONGEST_EMPTY)
            here = _skipped(sources, now)
            if here >= end:
                return
            now = min(here + ahead, midnight(here) + DAY, end, *(at for at in labels if at > here))
            yield now, self.tick(now + settled, max(here - EVALUATED_GAP, midnight(here)))


def midnight(at: datetime) -> datetime:
    """The start of its UTC day."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _relabelled(sources: Sequence[Source]) -> list[datetime]:
    """When labels of targets changed, where a source knows."""
    changes = (getattr(source, "relabelled_at", tuple) for source in sources)
    return sorted(at for times in changes for at in times())


def _skipped(sources: Sequence[Source], now: datetime) -> datetime:
    """Where to go on: here, or at the next scrape when there is none for longer than is caught up.

    One odd timestamp in a recording must not make a replay walk through the years between.
    """
    upcoming = [after for s in sources if isinstance(s, Recording) and (after := s.next_after(now))]
    recorded = all(isinstance(s, Recording) for s in sources)
    if not recorded or not upcoming or min(upcoming) - now <= CATCH_UP:
        return now
    return min(upcoming)


def baseline_of(sources: Sequence[Source], window: Window, plan: Plan) -> Baselines:
    """What the whole minutes of a window measured, read from the sources.

    Raises:
        UsageError: they hold no scrape.
    """
    whole = Window(*whole_minutes(window))
    # the first minute counts on from the scrape before it
    before = whole.start - timedelta(minutes=1)
    collected = [s.collect(before, whole.end + timedelta(seconds=1)) for s in sources]
    targets = plan.assign({key: t for c in collected for key, t in c.targets.items()})
    scrapes = fail_foreign_scrapes(in_order(pl.concat(c.scrapes for c in collected)))
    gpus = pl.concat(c.gpus for c in collected)
    baseline = measured(scrapes, whole, targets, plan, gpus)
    accepted = Acceptance("--baseline", whole.end, "named on the command line")
    found = baselines_of(baseline, whole, targets.values(), accepted)
    if not found.every:
        raise no_baseline(window, reach_of(sources))
    return found


def reach_of(sources: Sequence[Source]) -> tuple[datetime, datetime] | None:
    """From when to when the recordings among the sources reach; None without one."""
    spans = [source.span() for source in sources if isinstance(source, Recording)]
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

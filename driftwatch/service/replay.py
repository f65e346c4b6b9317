"""History through the whole pipeline, at its own times, into a store as the service writes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import polars as pl

from driftwatch.baselines.rows import row_of
from driftwatch.baselines.windows import Acceptance, baselines_of, measured, with_more
from driftwatch.collect.schema import KEY_COLUMNS, Collected, Recording, Source, in_order
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.reference import no_reference, swings, with_swings
from driftwatch.model import Target
from driftwatch.pipeline.explain import Window, measured_reference
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import CATCH_UP
from driftwatch.service.watch import Brought, Deciding, Watch
from driftwatch.signals.one_process import of_one_process
from driftwatch.store.store import Store

_KEY = list(KEY_COLUMNS)
# As much as is evaluated in one go; the result does not depend on it (a test holds it to that). A
# tick takes half a second before its first target (hundreds of small tables), and every scrape of
# it some 20 KB while it is evaluated.
MOST_SCRAPES = 5000
SHORTEST, LONGEST = timedelta(minutes=10), timedelta(days=1)
# An API's labels (pod, image) are those at the end of what is asked for at once.
LONGEST_OF_API = timedelta(hours=4)
# Nobody knows yet how many targets come; with each stretch that has none it is less likely now.
LONGEST_EMPTY = timedelta(hours=1)
# Of the time without a scrape before the first one that comes back, so much has verdicts.
AWAY = timedelta(hours=2)
# A server-month takes half a minute: for one moment so much of its past is replayed.
SERVER_DAYS, AT_LEAST = 40.0, timedelta(days=1)
DAY = timedelta(days=1)


def stride_of(state: State, sources: Sequence[Source]) -> timedelta:
    """How much history of these targets is evaluated at once; of none yet the shortest."""
    interval = _interval(state.scrapes)
    if not state.targets or interval is None:
        return SHORTEST
    recorded = all(isinstance(source, Recording | HeldSource) for source in sources)
    most = interval * MOST_SCRAPES / len(state.targets)
    stride = max(SHORTEST, min(LONGEST if recorded else LONGEST_OF_API, most))
    return timedelta(minutes=stride // timedelta(minutes=1))


def _interval(scrapes: pl.DataFrame) -> timedelta | None:
    """How often a target is scraped; None where none was scraped twice."""
    spacing = pl.col("time").diff().over(_KEY)
    usual = scrapes.select(spacing.filter(spacing > timedelta(0)).median()).item()
    return usual if isinstance(usual, timedelta) else None


def replay(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    *,
    store: Store | None = None,
    baseline: Window | None = None,
    baselines: Baselines | None = None,
    reference: pl.DataFrame | None = None,
    stride: timedelta | None = None,
    progress: Callable[[datetime], None] | None = None,
) -> Iterator[Outcome]:
    """Outcomes of every whole minute in the span, in order.

    Args:
        store: an empty one, in which minutes, incidents, advice and verifications are written;
            None = one in memory.
        baseline: window whose lengths, rates and speed are the reference: it holds where
            the others say nothing of a target.
        baselines: in force in all of the span, whenever they were accepted.
        reference: measured reference rows, instead of those of a baseline.
        stride: how much is collected and evaluated at once; None = by how many targets there are.

    Raises:
        UsageError: the baseline holds no two scrapes.
    """
    start, end = span
    every = baselines or Baselines()
    if baseline is not None:
        reference, measured_baselines = baseline_of(sources, baseline, plan)
        every = with_more(measured_baselines, every)
    with ExitStack() as opened:
        kept = opened.enter_context(Store.in_memory()) if store is None else store
        if every.every:
            early = (replace(b, accepted_at=min(b.accepted_at, start)) for b in every.every)
            kept.add_baselines([row_of(one) for one in early])
        ticks = Ticks(sources, plan, kept, start, reference)
        for now, outcome in ticks.over(start, end, stride):
            if progress is not None:
                progress(now)
            yield outcome


class Ticks:
    """Ticks over sources, each as the service makes it, but that nobody is sent anything.

    Args:
        start: sources are asked for what comes after it.
        reference: measured reference rows beside those of baselines.
        simulates: how far back from a tick questions are simulated; None = all are.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        plan: Plan,
        store: Store,
        start: datetime,
        reference: pl.DataFrame | None = None,
        simulates: timedelta | None = None,
    ) -> None:
        self._sources, self._store = sources, store
        self._deciding = Deciding(plan, (), simulates=simulates)
        self.watch = Watch(store, plan, start, threading.Lock(), goes_on=False)
        until = {source.name: start for source in sources} | dict(self.state.collected_until)
        self.state = replace(
            self.state,
            collected_until=until,
            reference=no_reference() if reference is None else reference,
        )

    @property
    def state(self) -> State:
        """What the next tick goes on from."""
        return self.watch.state

    @state.setter
    def state(self, state: State) -> None:
        self.watch.state = state

    def tick(self, now: datetime, since: datetime | None = None) -> Outcome:
        """Collect up to ``now``, evaluate what has become complete, commit it.

        Args:
            since: minutes before it stay without a verdict; None = those before the last six hours.
        """
        collected: list[Collected] = []
        names: list[str] = []
        until = dict(self.state.collected_until)
        for source in self._sources:
            begins = until[source.name]
            edge = now - timedelta(seconds=source.settle_seconds)
            if edge <= begins:
                continue
            collected.append(source.collect(begins, edge))
            names.append(source.name)
            until[source.name] = edge
        complete = min((until[s.name] for s in self._sources), default=now)
        listing = Sources.of(self._sources, names)
        brought = Brought(collected, until, complete, listing, since)
        return self.watch.tick(brought, now, self._deciding).outcome

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
            yield now, self.tick(now + settled, max(here - AWAY, midnight(here)))


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


def baseline_of(
    sources: Sequence[Source], window: Window, plan: Plan
) -> tuple[pl.DataFrame, Baselines]:
    """What a baseline window measured, read from the sources: reference rows and baselines.

    Raises:
        UsageError: the window holds no two scrapes.
    """
    collected = [s.collect(window.start, window.end + timedelta(seconds=1)) for s in sources]
    targets = plan.assign({key: t for c in collected for key, t in c.targets.items()})
    scrapes = of_one_process(in_order(pl.concat(c.scrapes for c in collected)))
    gpus = pl.concat(c.gpus for c in collected)
    return of_baseline(Collected(scrapes, targets, gpus=gpus), window, plan)


def of_baseline(history: Collected, window: Window, plan: Plan) -> tuple[pl.DataFrame, Baselines]:
    """The same of scrapes that are at hand; errors as of :func:`baseline_of`."""
    targets = history.targets
    rows = measured_reference(history, window, plan)
    baseline = measured(history.scrapes, window, targets, plan, history.gpus)
    rows = with_swings(rows, swings(baseline.minutes))
    accepted = Acceptance("--baseline", window.end, "named on the command line")
    return rows, baselines_of(baseline, window, targets.values(), accepted)


@dataclass(slots=True)
class HeldSource:
    """Scrapes and GPU readings that are already there, handed out by time."""

    history: Collected
    name: str = "held"
    settle_seconds: float = 0.0

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Those with since <= time < until."""
        inside = pl.col("time").is_between(since, until, closed="left")
        scrapes, gpus = self.history.scrapes.filter(inside), self.history.gpus.filter(inside)
        return Collected(scrapes, self.history.targets, gpus=gpus)

    def close(self) -> None:
        """There is nothing to give back."""


def detected_until(
    history: Collected,
    target: Target,
    plan: Plan,
    at: datetime,
    *,
    baselines: Baselines | None = None,
    reference: pl.DataFrame | None = None,
    progress: Callable[[float, float], None] | None = None,
    on_rows: Callable[[pl.DataFrame], None] | None = None,
) -> pl.DataFrame:
    """The last whole minute before ``at`` of a target, with the detectors' columns.

    The tick itself goes over what is there of the target's pool: all of it, or at least
    :data:`AT_LEAST` and :data:`SERVER_DAYS` in all where that is less.

    Args:
        progress: told how many seconds of how many are done.
        on_rows: given the evidence rows of the target's pool, minute by minute in order.

    Returns:
        One evidence row; none where no whole minute lies before ``at``.
    """
    pool = {key: one for key, one in history.targets.items() if one.pool == target.pool}
    keys = pl.DataFrame(
        [tuple(k) for k in pool], schema=dict.fromkeys(_KEY, pl.String), orient="row"
    )
    mine = history.scrapes.filter(pl.col("time") < at).join(
        keys, on=_KEY, how="semi", maintain_order="left"
    )
    first = mine["time"].min()
    end = at.replace(second=0, microsecond=0)
    if not isinstance(first, datetime):
        return pl.DataFrame()
    back = max(AT_LEAST, timedelta(days=SERVER_DAYS / len(pool)))
    start = max(first.replace(second=0, microsecond=0), end - back)
    if start >= end:
        return pl.DataFrame()
    whole = (end - start).total_seconds()

    def on_minute(now: datetime) -> None:
        if progress is not None:
            progress((now - start).total_seconds(), whole)

    scrapes = mine.filter(pl.col("time") >= start)
    source = HeldSource(Collected(scrapes, pool, gpus=history.gpus))
    own = (pl.col("instance") == target.key.instance) & (pl.col("engine") == target.key.engine)
    last: Outcome | None = None
    for outcome in replay(
        [source], (start, end), plan, baselines=baselines, reference=reference, progress=on_minute
    ):
        last = outcome if len(outcome.rows) else last
        if on_rows is not None and len(outcome.rows):
            on_rows(outcome.rows)
    return pl.DataFrame() if last is None else last.rows.filter(own).tail(1)

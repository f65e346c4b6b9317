"""History through the whole pipeline, at its own times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.making import Acceptance, measured, pins_of, with_more
from driftwatch.collect.schema import Recording, Source, in_order
from driftwatch.detect.pins import Pins
from driftwatch.detect.reference import no_reference, swings, with_swings
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.explain import Window, measured_reference
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import CATCH_UP, tick
from driftwatch.signals.one_process import of_one_process

# As much as is evaluated in one go; the result does not depend on it (a test holds it to that). A
# tick takes 0.1 s before its first target (hundreds of small tables), and every scrape of it some
# 20 KB while it is evaluated: one target gets four hours at once, forty get 36 minutes. Less than
# CATCH_UP, or minutes between two ticks would be left out; and an API's labels (pod, image) are
# those at the end of what is asked for at once.
TARGET_HOURS = 24.0
SHORTEST, LONGEST = timedelta(minutes=10), timedelta(hours=4)


def stride_of(targets: int) -> timedelta:
    """How much history of so many targets is evaluated at once; of none yet the shortest."""
    if not targets:
        return SHORTEST
    return max(SHORTEST, min(LONGEST, timedelta(minutes=int(60 * TARGET_HOURS / targets))))


def replay(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    *,
    baseline: Window | None = None,
    pins: Pins | None = None,
    reference: pl.DataFrame | None = None,
    stride: timedelta | None = None,
    progress: Callable[[datetime], None] | None = None,
) -> Iterator[Outcome]:
    """Outcomes of every whole minute in the span, in order.

    Args:
        sources: recordings or Prometheus APIs that hold the span.
        span: from, to.
        plan: rules, trees, pools.
        baseline: window whose lengths, rates and speed are the reference: a pin that holds where
            the others say nothing of a target.
        pins: in force.
        reference: measured reference rows, instead of those of a baseline.
        stride: how much is collected and evaluated at once; None = by how many targets there are.
        progress: told how far it has come.

    Raises:
        UsageError: the baseline holds no two scrapes.
    """
    start, end = span
    state = State(
        collected_until={source.name: start for source in sources},
        pins=pins or Pins(),
        reference=no_reference() if reference is None else reference,
    )
    if baseline is not None:
        rows, measured_pins = baseline_of(sources, baseline, plan)
        state = replace(state, reference=rows, pins=with_more(measured_pins, state.pins))
    # a tick has one set of labels: where they change, another one begins
    labels = _relabelled(sources)
    now = start
    while now < end:
        ahead = stride or stride_of(len(state.targets))
        here = _skipped(sources, now)
        now = min(here + ahead, end, *(at for at in labels if at > here))
        edge = now + timedelta(seconds=max(s.settle_seconds for s in sources))
        state, outcome = tick(sources, state, edge, plan)
        if progress is not None:
            progress(now)
        yield outcome


def _relabelled(sources: Sequence[Source]) -> list[datetime]:
    """When labels of targets changed, where a source knows."""
    told = (getattr(source, "relabelled_at", tuple) for source in sources)
    return sorted(at for times in told for at in times())


def _skipped(sources: Sequence[Source], now: datetime) -> datetime:
    """Where to go on: here, or at the next scrape when there is none for longer than is caught up.

    One odd timestamp in a recording must not make a replay walk through the years between.
    """
    upcoming = [after for s in sources if isinstance(s, Recording) and (after := s.next_after(now))]
    recorded = all(isinstance(s, Recording) for s in sources)
    if not recorded or not upcoming or min(upcoming) - now <= CATCH_UP:
        return now
    return min(upcoming)


def baseline_of(sources: Sequence[Source], window: Window, plan: Plan) -> tuple[pl.DataFrame, Pins]:
    """What a baseline window measured, read from the sources themselves: reference rows and pins.

    Raises:
        UsageError: the window holds no two scrapes.
    """
    collected = [s.collect(window.start, window.end + timedelta(seconds=1)) for s in sources]
    targets = plan.assign({key: t for c in collected for key, t in c.targets.items()})
    scrapes = of_one_process(in_order(pl.concat(c.scrapes for c in collected)))
    gpus = pl.concat(c.gpus for c in collected)
    return of_baseline(scrapes, gpus, window, targets, plan)


def of_baseline(
    scrapes: pl.DataFrame,
    gpus: pl.DataFrame,
    window: Window,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
) -> tuple[pl.DataFrame, Pins]:
    """The same of scrapes that are at hand; errors as of :func:`baseline_of`."""
    rows = measured_reference(scrapes, window, targets, plan, gpus)
    found = measured(scrapes, window, targets, plan, gpus)
    rows = with_swings(rows, swings(found.minutes))
    accepted = Acceptance("--baseline", window.end, "named on the command line")
    return rows, pins_of(found, window, targets.values(), accepted)

"""History through the whole pipeline, at its own times, into a store as the service writes it.

Stores that a recording or a history was replayed into are kept, so that the next question is quick.
Each is a SQLite file named by what it was made of: the recording's bytes or an API's address and
span, the settings and rules, the version of driftwatch. The folder may be deleted at any time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

import driftwatch
from driftwatch import __version__
from driftwatch.baselines.windows import Acceptance, baselines_of, measured
from driftwatch.collect.schema import Collected, Recording, Source, in_order
from driftwatch.detect.baselines import Baselines
from driftwatch.errors import StoreError
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.explain import Window, no_baseline, whole_minutes
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import CATCH_UP
from driftwatch.service.batches import Batch, TickContext, TickInput
from driftwatch.signals.one_process import fail_foreign_scrapes
from driftwatch.store.store import Store
from driftwatch.verify.before_after import judged_at

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
# The oldest go where there are more, or more bytes: a server-day takes 0.2 MB.
MOST_FILES, MOST_BYTES = 20, 2 << 30
_NOT_STORED = {"external_url"}  # no stored row depends on it


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
    baselines: Baselines | None = None,
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
        stride: how much is collected and evaluated at once; None = by how many targets there are.

    Raises:
        UsageError: the baseline holds no minute with a scrape.
    """
    start, end = span
    every = (baselines or Baselines()).every
    if baseline is not None:
        every = (*baseline_of(sources, baseline, plan).every, *every)
    with ExitStack() as opened:
        kept = opened.enter_context(Store.in_memory()) if store is None else store
        early = [b.model_copy(update={"accepted_at": min(b.accepted_at, start)}) for b in every]
        if early:
            kept.add_baselines(early)
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
        judged.append(judged_at(opened, past.minutes, reach[1], plan.slo_of(target)))
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
        self.batch = Batch(store, start, is_replay=True)
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
        collected: dict[str, Collected] = {}
        for source in self._sources:
            edge = now - timedelta(seconds=source.settle_seconds)
            if edge > until[source.name]:
                collected[source.name] = source.collect(until[source.name], edge)
                until[source.name] = edge
        complete = min((until[s.name] for s in self._sources), default=now)
        listing = Sources.of(self._sources, tuple(collected))
        given = TickInput(tuple(collected.values()), until, complete, listing, since)
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


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/driftwatch/replays``, else below ``~/.cache``."""
    cache_home = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache_home) if cache_home else Path.home() / ".cache"
    return base / "driftwatch" / "replays"


@contextmanager
def replayed_store(
    made_of: Mapping[str, Any] | None, fill: Callable[[Store], None]
) -> Iterator[Store]:
    """The store that ``fill`` filled; from the cache where it was filled before.

    Args:
        made_of: what decides what is in it, as JSON values; None = it is kept nowhere.
        fill: replays into an empty store.
    """
    kept = None if made_of is None else _writable(cache_folder())
    if kept is None:
        with Store.in_memory() as store:
            fill(store)
            yield store
        return
    text = json.dumps({**(made_of or {}), "driftwatch": _program()}, sort_keys=True)
    path = kept / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.db"
    store = _opened(path) or _filled(path, fill)
    try:
        yield store
    finally:
        store.close()


def _opened(path: Path) -> Store | None:
    """The store of a file; None where it is missing or damaged."""
    if not path.exists():
        return None
    try:
        store = Store.open(path, migrate=False)
    except StoreError:
        path.unlink(missing_ok=True)
        return None
    with suppress(OSError):
        os.utime(path)  # it is the one that was used last
    return store


def _filled(path: Path, fill: Callable[[Store], None]) -> Store:
    beside = path.with_suffix(f".{os.getpid()}.new")
    try:
        with Store.open(beside, durable=False) as store:
            fill(store)
        beside.replace(path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            beside.with_name(beside.name + suffix).unlink(missing_ok=True)
    _bound(path.parent, path)
    return Store.open(path, migrate=False)


def _bound(folder: Path, newest: Path) -> None:
    """Delete what was not used for longest, and what a process that was killed left."""
    files = sorted(folder.glob("*.db"), key=lambda one: -one.stat().st_mtime)
    size = 0
    for number, one in enumerate(files):
        size += one.stat().st_size
        if one != newest and (number >= MOST_FILES or size > MOST_BYTES):
            one.unlink(missing_ok=True)
    day_ago = newest.stat().st_mtime - 86_400
    for left in folder.glob("*.new*"):
        with suppress(OSError):
            if left.stat().st_mtime < day_ago:
                left.unlink()


def _writable(folder: Path) -> Path | None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def of_files(paths: Iterable[Path]) -> list[str]:
    """A digest of the bytes of each file, or of all files of a folder with their names."""
    return [_digest(path) for path in paths]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
        digest.update(str(file.relative_to(path)).encode())
    return digest.hexdigest()


def of_plan(plan: Plan) -> dict[str, Any]:
    """What of a plan stored rows depend on, as JSON; no secret is in it."""
    settings = {
        field.name: _plain(getattr(plan, field.name))
        for field in dataclasses.fields(plan)
        if field.name not in _NOT_STORED
    }
    return {**settings, "inputs": list(plan.inputs)}


def _plain(value: Any) -> Any:
    """The same in every process: sets in order, of a condition its text."""
    if dataclasses.is_dataclass(value):
        fields = (one for one in dataclasses.fields(value) if one.repr)
        return {one.name: _plain(getattr(value, one.name)) for one in fields}
    if isinstance(value, Mapping):
        return [[str(key), _plain(one)] for key, one in value.items()]
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    return [*map(_plain, value)] if isinstance(value, tuple | list) else repr(value)


@cache
def _program() -> str:
    """The version; of a checkout that is edited also when each file was."""
    package = Path(driftwatch.__file__).parent
    files = sorted(p for p in package.rglob("*") if p.suffix in (".py", ".toml", ".yaml", ".json"))
    states = (f"{p.relative_to(package)} {(s := p.stat()).st_mtime_ns} {s.st_size}" for p in files)
    return f"{__version__} {hashlib.sha256(chr(10).join(states).encode()).hexdigest()[:12]}"

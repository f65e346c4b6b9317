"""What an API holds of a span of time, as a compact recording: read once, part by part.

However long the span is, no more than one part of it is in memory. What needs the whole past of a
fleet (``recommend``, ``explain``, ``baseline``) then reads the recording as any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.recordings.compact import Part, Relabelled, write_manifest, write_part
from driftwatch.collect.schema import Collected, Source, SourceProblem, empty_scrapes
from driftwatch.errors import Unavailable
from driftwatch.model import Target, TargetKey

PART = timedelta(hours=2)
# A database that restarts or is overloaded is back in seconds; one that is gone stays away.
PAUSES_SECONDS = (2.0, 8.0)

Pause = Callable[[float], None]


class RetryingSource:
    """A source whose past is read once: asked again where it does not answer, then it is an error.

    A service that is live goes on without a source that is silent, and says so of every target; a
    past must not take a database's absence for that of the servers.

    ``help_text``: what to check where it never answered; None = nothing is known to.
    """

    def __init__(
        self, source: Source, pause: Pause = time.sleep, help_text: str | None = None
    ) -> None:
        self._help_text = help_text
        self.name, self.settle_seconds = source.name, source.settle_seconds
        self._source, self._pause = source, pause
        self._answered = False

    def collect(self, since: datetime, until: datetime) -> Collected:
        """As the source.

        Raises Unavailable: it does not answer, where it did before not after :data:`PAUSES_SECONDS`
        either.
        """
        collected = self._source.collect(since, until)
        for seconds in PAUSES_SECONDS if self._answered else ():  # or the address is a wrong one
            if _has_answer(collected):
                break
            self._pause(seconds)
            collected = self._source.collect(since, until)
        if not _has_answer(collected):
            why = (collected.silent or "").removeprefix("Unavailable: ")
            raise Unavailable(
                f"{self.name} does not answer from {since:%Y-%m-%dT%H:%M:%SZ} on: {why}",
                help_text=None if self._answered else self._help_text,
            )
        self._answered = True
        return collected

    def identity(self) -> Mapping[str, object]:
        """That of the source; empty where it has none."""
        describe = getattr(self._source, "identity", dict)
        answer: Mapping[str, object] = describe()
        return answer

    def reach(self, now: datetime) -> tuple[datetime, datetime] | None:
        """From when to when it has scrapes; None = of none, or it does not know."""
        look = getattr(self._source, "reach", None)
        return None if look is None else look(now)

    def close(self) -> None:
        """Give back connections."""
        self._source.close()


def _has_answer(collected: Collected) -> bool:
    """It said something; what it left out is named in its problems."""
    return (
        collected.silent is None or not collected.was_asked or bool(collected.scrapes["ok"].any())
    )


def record_history(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    folder: Path,
    progress: Callable[[float, float], None] | None = None,
) -> None:
    """Write what the sources hold of the span as a compact recording.

    ``folder``: to write into; it must exist; ``progress``: told how many seconds of how many are
    read.
    Raises Unavailable: a source stopped answering.
    """
    first, last = span
    parts: list[Part] = []
    problems: list[SourceProblem] = []
    targets: dict[TargetKey, Target] = {}
    labels: dict[TargetKey, Mapping[str, str]] = {}  # as they are now
    relabelled: list[Relabelled] = []
    since = first
    while since < last:
        until = min(since + PART, last)
        brought = [source.collect(since, until) for source in sources]
        for one in brought:
            problems += one.problems
            relabelled += _changes(labels, one.targets, since)
            labels |= {key: target.labels for key, target in one.targets.items()}
            targets |= {key: new for key, new in one.targets.items() if key not in targets}
        parts += write_part(
            folder,
            f"{since:%Y%m%dT%H%M%S}",
            pl.concat([empty_scrapes(), *(one.scrapes for one in brought)]),
            pl.concat([empty_gpus(), *(one.gpus for one in brought)]),
        )
        since = until
        if progress is not None:
            progress((since - first).total_seconds(), (last - first).total_seconds())
    if parts:
        write_manifest(folder, parts, targets, problems, relabelled)


def _changes(
    labels: Mapping[TargetKey, Mapping[str, str]],
    targets: Mapping[TargetKey, Target],
    since: datetime,
) -> Iterator[Relabelled]:
    """Targets whose labels are others than before."""
    for key, target in targets.items():
        before = labels.get(key, target.labels)
        if changed := {k: v for k, v in target.labels.items() if before.get(k) != v}:
            yield Relabelled(
                instance=key.instance,
                engine=key.engine,
                since=since.timestamp(),
                labels=changed,
            )

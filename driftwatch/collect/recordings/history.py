"""What an API holds of a span of time, as a compact recording: read once, part by part.

However long the span is, no more than one part of it is in memory. What needs the whole past of a
fleet (``recommend``, ``explain``, ``baseline``) then reads the recording as any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


class Insistent:
    """A source whose past is read once: asked again where it does not answer, then it is an error.

    A service that is live goes on without a source that is silent, and says so of every target; a
    past must not take a database's absence for that of the servers.

    Args:
        help_text: what to check where it never answered; None = nothing is known to.
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

        Raises:
            Unavailable: it does not answer, where it did before not after
                :data:`PAUSES_SECONDS` either.
        """
        found = self._source.collect(since, until)
        for seconds in PAUSES_SECONDS if self._answered else ():  # or the address is a wrong one
            if _answered(found):
                break
            self._pause(seconds)
            found = self._source.collect(since, until)
        if not _answered(found):
            why = (found.silent or "").removeprefix("Unavailable: ")
            raise Unavailable(
                f"{self.name} does not answer from {since:%Y-%m-%dT%H:%M:%SZ} on: {why}",
                help_text=None if self._answered else self._help_text,
            )
        self._answered = True
        return found

    def close(self) -> None:
        """Give back connections."""
        self._source.close()


def _answered(found: Collected) -> bool:
    """It said something; what it left out is named in its problems."""
    return found.silent is None or not found.asked or bool(found.scrapes["ok"].any())


@dataclass(slots=True)
class _Recorded:
    """What stands in the manifest."""

    parts: list[Part] = field(default_factory=list)
    targets: dict[TargetKey, Target] = field(default_factory=dict)
    now: dict[TargetKey, Mapping[str, str]] = field(default_factory=dict)
    problems: list[SourceProblem] = field(default_factory=list)
    relabelled: list[Relabelled] = field(default_factory=list)

    def note(self, targets: Mapping[TargetKey, Target], since: datetime) -> None:
        """Targets of a part, and which of them have other labels than before."""
        for key, target in targets.items():
            before = self.now.get(key)
            self.now[key] = target.labels
            if before is None:
                self.targets[key] = target
            elif before != target.labels:
                changed = {k: v for k, v in target.labels.items() if before.get(k) != v}
                if changed:
                    self.relabelled.append(Relabelled(key, since.timestamp(), changed))


def record_history(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    folder: Path,
    progress: Callable[[float, float], None] | None = None,
) -> None:
    """Write what the sources hold of the span as a compact recording.

    Args:
        folder: to write into; it must exist.
        progress: told how many seconds of how many are read.

    Raises:
        Unavailable: a source stopped answering.
    """
    first, last = span
    kept, since = _Recorded(), first
    while since < last:
        until = min(since + PART, last)
        scrapes, gpus = [empty_scrapes()], [empty_gpus()]
        for source in sources:
            found = source.collect(since, until)
            scrapes.append(found.scrapes)
            gpus.append(found.gpus)
            kept.problems += found.problems
            kept.note(found.targets, since)
        stem = f"{since:%Y%m%dT%H%M%S}"
        kept.parts += write_part(folder, stem, pl.concat(scrapes), pl.concat(gpus))
        since = until
        if progress is not None:
            progress((since - first).total_seconds(), (last - first).total_seconds())
    if kept.parts:
        write_manifest(folder, kept.parts, kept.targets, kept.problems, kept.relabelled)

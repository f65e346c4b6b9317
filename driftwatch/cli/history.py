"""History to read: recordings, the past of a Prometheus, or the database of ``driftwatch run``."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwatch.cli.database import config_here, open_store
from driftwatch.cli.options import Progress, plan_from
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.collect.schema import Source
    from driftwatch.database_place import Place
    from driftwatch.detect.baselines import Baselines
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.store import Store


# Minutes of the database are kept 35 days.
STORED_SPAN = timedelta(days=30)


@dataclass(frozen=True)
class History:
    """What the options of ``history_options`` name.

    Attributes:
        recordings: to read; without them and ``prometheus`` the database.
        prometheus: address of an API.
        selector: LABEL=VALUE of its series.
        since, until: what to read of it.
        at: the moment to look at; None = the newest scrape.
        baseline: window whose lengths, rates and speed are the reference.
        pins: file of exported ones.
        serving: what the command line says of every server.
    """

    recordings: tuple[Path, ...] = ()
    prometheus: str | None = None
    selector: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    at: datetime | None = None
    baseline: Window | None = None
    pins: Path | None = None
    db: Place | None = None
    config: Path | None = None
    serving: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_stored(self) -> bool:
        """The database is read."""
        return not self.recordings and self.prometheus is None

    @cached_property
    def plan(self) -> Plan:
        """Rules, trees and pools; of the database ``./driftwatch.yaml`` is the default.

        Raises: as :func:`plan_from`.
        """
        return plan_from(self.config_file, **self.serving)

    @property
    def config_file(self) -> Path | None:
        """The configuration that is read."""
        return self.config or (config_here() if self.is_stored else None)

    def store(self) -> Store:
        """The database.

        Raises UsageError: ``--pins`` is given; StoreError: it is missing or does not serve.
        """
        if self.pins is not None:
            raise UsageError(
                "--pins needs --recording: the database has its own pins",
                help_text=f"driftwatch baseline import {self.pins}",
            )
        return open_store(self.db, self.config_file)

    def pins_of_file(self) -> Baselines | None:
        """The exported pins; None without ``--pins``.

        Raises ConfigError: the file is no export, or some of it is wrong.
        """
        if self.pins is None:
            return None
        from driftwatch.baselines.documents import baselines_of_file

        return baselines_of_file(self.pins)

    @contextmanager
    def sources(self, progress: Progress) -> Iterator[Sequence[Source]]:
        """The recordings or the API; at the end they are closed, and the progress is.

        Raises UsageError: neither or both are named.
        """
        if bool(self.recordings) == (self.prometheus is not None):
            raise UsageError(
                "give --recording, or --prometheus URL",
                help_text="driftwatch replay takes recordings without an option",
            )
        from driftwatch.collect.recordings import open_recording

        count = len(self.recordings)
        # a name for the server of a recording that names none
        names = ["host:8000"] if count == 1 else [f"host-{i + 1}:8000" for i in range(count)]
        opened = self._api_sources() or [
            open_recording(path, instance=name, progress=progress)
            for path, name in zip(self.recordings, names, strict=True)
        ]
        try:
            yield opened
        finally:
            progress.close()
            for source in opened:
                source.close()

    def _api_sources(self) -> list[Source]:
        """The servers and their GPUs; none without ``--prometheus``."""
        selector = labels_of(self.selector)
        if self.prometheus is None:
            return []
        from driftwatch.collect.dcgm.prometheus import DcgmPrometheusSource
        from driftwatch.collect.prometheus.client import PrometheusAsker
        from driftwatch.collect.prometheus.source import PrometheusSource
        from driftwatch.collect.recordings.history import RetryingSource

        servers = PrometheusSource(PrometheusAsker(self.prometheus), selector=selector)
        return [
            RetryingSource(servers, help_text=what_to_check(self.prometheus)),
            DcgmPrometheusSource(PrometheusAsker(self.prometheus)),
        ]

    def span(self, sources: Sequence[Source]) -> tuple[datetime, datetime]:
        """From ``--from`` to ``--to``, else what the recordings hold.

        Raises UsageError: an API without both, or the span ends before it begins.
        """
        if self.prometheus is not None and (self.since is None or self.until is None):
            raise UsageError("--prometheus needs --from and --to")
        first, last = self.since, self.until
        if first is None or last is None:
            reach = reach_of(sources)
            first, last = first or reach[0], last or reach[1]
        if first >= last:
            raise UsageError(
                f"--from {first:%Y-%m-%dT%H:%M:%SZ} is not before --to {last:%Y-%m-%dT%H:%M:%SZ}"
            )
        return first, last

    def stored_span(self, store: Store) -> tuple[datetime, datetime]:
        """From ``--from`` to ``--to``, else the 30 days before the newest scrape.

        Raises NoVerdict: the database holds no scrape; UsageError: it ends before it begins.
        """
        from driftwatch.cli.database import last_scraped

        last = self.until or last_scraped(store)
        return replace(self, since=self.since or last - STORED_SPAN, until=last).span(())

    @contextmanager
    def as_recording(self) -> Iterator[History]:
        """What an API holds of the span (nothing after ``at``) as a recording; else as it is.

        Raises:
            UsageError: options that do not go together, or no span.
            Unavailable: the API does not answer.
            NoVerdict: it holds no scrape of the span.
        """
        if self.prometheus is None:
            if self.since is not None or self.until is not None:
                raise UsageError("--from and --to need --prometheus")
            yield self
            return
        from driftwatch.collect.http import without_secrets
        from driftwatch.collect.recordings.compact import MANIFEST
        from driftwatch.collect.recordings.history import record_history

        progress = Progress("reading")
        with tempfile.TemporaryDirectory(prefix="driftwatch-") as name:
            folder = Path(name)
            with self.sources(progress) as sources:
                first, last = self.span(sources)
                if self.at is not None and self.at < last:
                    first, last = replace(self, until=self.at).span(sources)
                record_history(sources, (first, last + timedelta(microseconds=1)), folder, progress)
            if not (folder / MANIFEST).exists():
                raise NoVerdict(
                    f"{without_secrets(self.prometheus)}: no scrape of a vLLM server between "
                    f"{first:%Y-%m-%d %H:%M:%S} and {last:%Y-%m-%d %H:%M:%S} UTC",
                    help_text="driftwatch doctor, or another --match, --from and --to",
                )
            yield replace(self, recordings=(folder,), prometheus=None, since=None, until=None)


def reach_of(sources: Sequence[Source]) -> tuple[datetime, datetime]:
    """From when to when the recordings among the sources reach."""
    from driftwatch.collect.schema import Recording

    spans = [source.span() for source in sources if isinstance(source, Recording)]
    return min(first for first, _ in spans), max(last for _, last in spans)


def labels_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """``--match`` texts as label → values.

    Raises UsageError: one is not LABEL=VALUE.
    """
    labels: dict[str, list[str]] = {}
    for text in texts:
        label, equals, value = text.partition("=")
        if not equals or not label:
            raise UsageError(f"--match {text!r} is not LABEL=VALUE")
        labels.setdefault(label, []).append(value)
    return labels


def what_to_check(url: str) -> str:
    """Where a Prometheus-compatible API does not answer."""
    from driftwatch.collect.http import without_secrets

    query = f"{without_secrets(url).rstrip('/')}/api/v1/query?query=up"
    return (
        f"does it answer from this machine: curl {shlex.quote(query)}? --prometheus is the "
        "address that /api/v1 is under, with its port"
    )

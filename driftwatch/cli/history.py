"""History to read: recordings, the past of a Prometheus, or the database of ``driftwatch run``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwatch.cli.database import config_here, last_scraped, open_store
from driftwatch.cli.options import labels_of
from driftwatch.cli.printer import Progress, print_warning
from driftwatch.errors import UsageError
from driftwatch.knobs import KNOBS, refusal
from driftwatch.model import Serving, Setting

if TYPE_CHECKING:
    from driftwatch.cli.replay_summary import ScrapeCounts
    from driftwatch.collect.schema import Source
    from driftwatch.database_place import Place
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.pipeline.state import Outcome
    from driftwatch.settings import Settings
    from driftwatch.store.store import Store

# Minutes of the database are kept 35 days.
STORED_SPAN = timedelta(days=30)


@dataclass(frozen=True)
class History:
    """What the options of ``history_options`` name."""

    recordings: tuple[Path, ...] = ()  # without them and ``prometheus`` the database
    prometheus: str | None = None  # address of an API
    selector: tuple[str, ...] = ()  # LABEL=VALUE of its series
    since: datetime | None = None
    until: datetime | None = None
    at: datetime | None = None  # the moment to look at; None = the newest scrape
    baseline: Window | None = None  # with whose lengths, rates and speed is compared
    db: Place | None = None
    config: Path | None = None
    # settings of every server from the command line
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

    def plan_of(self, store: Store, at: datetime | None = None) -> Plan:
        """The plan; servers that no configured pool holds are in the pools of the database.

        ``at``: the moment whose settings count; None = the newest scrape.

        Raises: as :attr:`plan`.
        """
        from driftwatch.cli.target import with_stored_pools
        from driftwatch.pipeline.stored_state import last_collected

        at = at or last_collected(store)
        if at is None or not self.is_stored:
            return self.plan
        return with_stored_pools(self.plan, store, at)

    def plan_with(self, rules: Sequence[Path]) -> Plan:
        """The plan with the rules of these files, where some are named.

        Raises: as :func:`plan_from`.
        """
        from driftwatch.rulebook.book import load_rulebook

        if not rules:
            return self.plan
        book = load_rulebook(rules, configured=self.settings)
        return replace(self.plan, rules=book.rules, trees=book.every_tree)

    @property
    def settings(self) -> Settings | None:
        """The configuration; None without one.

        Raises ConfigError: it has problems.
        """
        from driftwatch.settings import load_settings

        return None if self.config_file is None else load_settings(self.config_file)

    @property
    def config_file(self) -> Path | None:
        """The configuration that is read."""
        return self.config or (config_here() if self.is_stored else None)

    @contextmanager
    def store(self, plan: Plan | None = None) -> Iterator[Store]:
        """The database, or one in memory that the recordings or the API's past are replayed into.

        It prints on stderr what it could not read of them.

        Args:
            plan: to replay with; None = that of the configuration, which simulates no page's advice
                and takes a proposed baseline where there is none.

        Raises:
            UsageError: options that do not go together.
            StoreError: the database is missing or does not serve.
            RecordingError: a recording cannot be read.
            Unavailable: the API does not answer.
            NoVerdict: there is no usable scrape.
        """
        if self.is_stored:
            with open_store(self.db, self.config_file) as store:
                yield store
            return
        from driftwatch.cli.replay_summary import ScrapeCounts, with_proposals
        from driftwatch.signals.one_process import ANOTHER_SERVER
        from driftwatch.store.store import Store

        plan, counts = plan or replace(with_proposals(self.plan), simulations=0), ScrapeCounts()
        with Store.in_memory() as store:
            for _ in self.outcomes(plan, store, counts):
                pass
            # a scrape that failed is a fact; one that another server answered is left out
            for warning in counts.warnings(self.where, only=ANOTHER_SERVER):
                print_warning(warning)
            counts.require_usable(self.where)
            yield store

    def outcomes(self, plan: Plan, store: Store | None, counts: ScrapeCounts) -> Iterator[Outcome]:
        """Replay the recordings or the API's past; what could not be read is counted. A store gets
        the last minute too.

        Raises: as :meth:`store`.
        """
        from driftwatch.service.replay import reach_of, replay

        progress = Progress("reading")
        with self.sources(progress) as sources:
            first, last = counts.span = self.span(sources)
            counts.reach = reach_of(sources)
            progress.begin("replaying")
            for outcome in replay(
                sources,
                counts.span if store is None else self._with_last_minute(counts.span),
                plan,
                store=store,
                baseline=self.baseline,
                progress=lambda now: progress((now - first) / (last - first), 1.0),
            ):
                counts.add(outcome)
                yield outcome

    @property
    def where(self) -> str:
        """What begins a message about the API; nothing of recordings."""
        from driftwatch.collect.http import without_secrets

        return "" if self.prometheus is None else f"{without_secrets(self.prometheus)}: "

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

        # a name for the server of each recording, where it names none
        count = len(self.recordings)
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
        from driftwatch.collect.dcgm_sources import DcgmPrometheusSource
        from driftwatch.collect.http import what_to_check
        from driftwatch.collect.prometheus.client import PrometheusAsker
        from driftwatch.collect.prometheus.source import AnsweringSource, PrometheusSource

        servers = PrometheusSource(PrometheusAsker(self.prometheus), selector=selector)
        return [
            AnsweringSource(servers, help_text=what_to_check(self.prometheus)),
            DcgmPrometheusSource(PrometheusAsker(self.prometheus)),
        ]

    def span(self, sources: Sequence[Source]) -> tuple[datetime, datetime]:
        """From ``--from`` to ``--to``, else what the recordings hold.

        Raises UsageError: an API without both, or the span ends before it begins.
        """
        if self.prometheus is not None and (self.since is None or self.until is None):
            raise UsageError("--prometheus needs --from and --to")
        from driftwatch.service.replay import reach_of

        first, last = self.since, self.until
        if first is None or last is None:
            reach = reach_of(sources)
            assert reach is not None  # noqa: S101 - without an API there are recordings
            first, last = first or reach[0], last or reach[1]
        if first >= last:
            raise UsageError(
                f"--from {first:%Y-%m-%dT%H:%M:%SZ} is not before --to {last:%Y-%m-%dT%H:%M:%SZ}"
            )
        return first, last

    def _with_last_minute(self, span: tuple[datetime, datetime]) -> tuple[datetime, datetime]:
        """The span of a recording to the end of its last minute: no scrape follows."""
        first, last = span
        if not self.recordings:
            return span
        minute = (last - timedelta(microseconds=1)).replace(second=0, microsecond=0)
        return first, minute + timedelta(minutes=1)

    def stored_span(self, store: Store) -> tuple[datetime, datetime]:
        """From ``--from`` to ``--to``, else the 30 days before the newest scrape.

        Raises NoVerdict: the database holds no scrape; UsageError: it ends before it begins.
        """
        last = self.until or last_scraped(store)
        return replace(self, since=self.since or last - STORED_SPAN, until=last).span(())


def plan_from(
    config: Path | None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    startup_log: Path | None = None,
) -> Plan:
    """Rules, trees and pools: of a configuration file, else the shipped rules and one pool.

    Settings of the command line win over the file.

    Raises:
        ConfigError: the configuration or a rule file has problems.
        UsageError: the start-up log cannot be read, or B < S.
    """
    from driftwatch.collect import startup
    from driftwatch.collect.fingerprint import merged
    from driftwatch.service import configuration

    plan = configuration.plan_of_rules(()) if config is None else configuration.plan_of(config)
    servings, reports = [Serving(_typed(max_num_seqs), _typed(max_num_batched_tokens))], []
    if startup_log is not None:
        try:
            text = startup_log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"{startup_log}: {error.strerror}") from error
        started = startup.from_startup_log(text, path=str(startup_log))
        servings.append(started.serving)
        reports.append(started.fingerprint)
    for sentence in startup.contradictions(*servings):
        print_warning(sentence)
    stated = startup.merge(*servings)
    values = {name: one.value for name in KNOBS if (one := stated.setting(name)) is not None}
    if (why := refusal(values)) is not None:
        raise UsageError(why)
    pools = tuple(
        replace(
            pool,
            serving=startup.merge(stated, pool.serving),
            reported=merged(*reports, pool.reported),
        )
        for pool in plan.pools
    )
    return replace(
        plan,
        pools=pools,
        default_serving=startup.merge(stated, plan.default_serving),
        default_reported=merged(*reports, plan.default_reported),
    )


def _typed(value: int | None) -> Setting | None:
    return None if value is None else Setting(float(value), "command line")

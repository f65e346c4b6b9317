"""``--prometheus``: the past of a Prometheus-compatible API, for every command that reads one."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driftwatch.cli.options import SERVING, Progress, Span, Time, plan_from, serving_options
from driftwatch.cli.proposal_notice import pins_option
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.collect.schema import Source
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = ("prometheus", "selector", "step_seconds", "since", "until")
_NEEDS = "--prometheus needs --from and --to"


@dataclass(frozen=True, slots=True)
class Api:
    """What ``--prometheus`` and its options ask for.

    Attributes:
        url: of the API.
        selector: label → values of which one.
        step_seconds: scrape interval.
    """

    url: str
    selector: Mapping[str, Sequence[str]]
    step_seconds: float

    def sources(self) -> list[Source]:
        """The servers and their GPUs."""
        from driftwatch.collect.dcgm.prometheus import DcgmPrometheusSource
        from driftwatch.collect.prometheus.client import PrometheusAsker
        from driftwatch.collect.prometheus.source import PrometheusSource
        from driftwatch.collect.recordings.history import RetryingSource

        servers = PrometheusSource(self.url, selector=self.selector, step_seconds=self.step_seconds)
        return [
            RetryingSource(servers, help_text=what_to_check(self.url)),
            DcgmPrometheusSource(PrometheusAsker(self.url)),
        ]

    def typed(self) -> str:
        """The options as they are typed."""
        words = ["--prometheus", self.url, "--step", f"{self.step_seconds:g}"]
        for label, values in self.selector.items():
            for value in values:
                words += ["--match", f"{label}={value}"]
        return shlex.join(words)


def what_to_check(url: str) -> str:
    """Where a Prometheus-compatible API does not answer."""
    from driftwatch.collect.http import without_secrets

    query = f"{without_secrets(url).rstrip('/')}/api/v1/query?query=up"
    return (
        f"does it answer from this machine: curl {shlex.quote(query)}? --prometheus is the "
        "address that /api/v1 is under, with its port"
    )


def api_options(command: Command) -> Command:
    """``--prometheus``, ``--match`` and ``--step``."""
    for option in (
        click.option(
            "--step",
            "step_seconds",
            type=click.FloatRange(min=1),
            default=15.0,
            show_default=True,
            help="With --prometheus: scrape interval in seconds.",
        ),
        click.option(
            "--match",
            "selector",
            multiple=True,
            metavar="LABEL=VALUE",
            help="With --prometheus: only series with this label value; given again with the "
            "same label, with one of these values.",
        ),
        click.option(
            "--prometheus", metavar="URL", help="Read history from a Prometheus API instead."
        ),
    ):
        command = option(command)
    return command


def past_options(command: Command) -> Command:
    """The same with ``--from`` and ``--to``."""
    until: Callable[[Command], Command] = click.option(
        "--to", "until", type=Time(), help="End (needed with --prometheus)."
    )
    since: Callable[[Command], Command] = click.option(
        "--from", "since", type=Time(), help="Start (needed with --prometheus)."
    )
    return api_options(since(until(command)))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where and when ``explain`` and ``recommend`` look.

    Attributes:
        at: end of the window; None = the newest scrape.
        recording: to read; None = the store.
        baseline: whose lengths, rates and speed are the reference.
        pins: file of exported ones.
        db: the store.
        config: the configuration that is read.
        plan: of it, and of what the command line says of every server.
    """

    at: datetime | None
    recording: Path | None
    baseline: Window | None
    pins: Path | None
    db: Path | None
    config: Path | None
    plan: Plan


_ORIGIN = ("recording", "at", "baseline", "pins", "db")


def origin_options(command: Command) -> Command:
    """Where and when to look, what to compare with, the server's settings, and ``--json``."""
    file = click.Path(path_type=Path, dir_okay=False)
    options: tuple[Callable[[Command], Command], ...] = (
        click.option("--at", type=Time(), help="End of the window (default: the newest scrape)."),
        click.option(
            "--recording", type=click.Path(path_type=Path), help="Read a recording, not the store."
        ),
        past_options,
        click.option(
            "--baseline",
            type=Span(),
            help="Window whose lengths, rates and speed are the reference.",
        ),
        pins_option,
        click.option("--db", type=file, help="The store (default: as for driftwatch incidents)."),
        click.option("--json", "as_json", is_flag=True, help="Everything, as JSON."),
        serving_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def take_origin(rest: dict[str, Any]) -> Iterator[Origin]:
    """Takes :func:`origin_options` out of the command's options, and reads an API's past.

    Raises:
        UsageError: options that do not go together.
        ConfigError: the configuration or a rule file has problems.
        Unavailable, NoVerdict: as :func:`past_of`.
    """
    from driftwatch.cli.database import config_here

    options = {name: rest.pop(name) for name in _ORIGIN}
    api = {name: rest.pop(name) for name in _OPTIONS}
    serving = {name: rest.pop(name) for name in SERVING}
    if (recording := options.pop("recording")) is None and api["prometheus"] is None:
        if (pins := options["pins"]) is not None:
            raise UsageError(
                "--pins needs --recording: the database has its own pins",
                help_text=f"driftwatch baseline import {pins}",
            )
        serving["config"] = serving["config"] or config_here()
    plan = plan_from(**serving)
    with past_of(recording, api, options["at"]) as source:
        yield Origin(recording=source, config=serving["config"], plan=plan, **options)


def api_of(prometheus: str | None, selector: Sequence[str], step_seconds: float) -> Api | None:
    """What is asked for; None without ``--prometheus``.

    Raises:
        UsageError: a --match is not LABEL=VALUE.
    """
    matchers: dict[str, list[str]] = {}
    for text in selector:
        label, equals, value = text.partition("=")
        if not equals or not label:
            raise UsageError(f"--match {text!r} is not LABEL=VALUE")
        matchers.setdefault(label, []).append(value)
    return None if prometheus is None else Api(prometheus, matchers, step_seconds)


def span_of(
    options: Mapping[str, Any], recordings: Sequence[Path]
) -> tuple[Api, tuple[datetime, datetime]] | None:
    """Which API and span are asked about; None without ``--prometheus``.

    Args:
        recordings: of ``--recording``.

    Raises:
        UsageError: a recording is given as well, or no span.
    """
    api = api_of(options["prometheus"], options["selector"], options["step_seconds"])
    if api is None:
        return None
    if recordings:
        raise UsageError("give --recording, or --prometheus URL")
    since, until = options["since"], options["until"]
    if since is None or until is None:
        raise UsageError(_NEEDS)
    return api, (since, until)


@contextmanager
def past_of(
    recording: Path | None, rest: dict[str, Any], at: datetime | None = None
) -> Iterator[Path | None]:
    """The recording that is asked about: the one that is named, or what an API holds of a span.

    Takes the options of :func:`past_options` out of ``rest``.

    Args:
        recording: of ``--recording``.
        at: of ``--at``: nothing after it is read.

    Yields:
        Its path; None where neither is asked for.

    Raises:
        UsageError: both are given, or no span.
        Unavailable: the API does not answer.
        NoVerdict: it holds no scrape of the span.
    """
    options = {name: rest.pop(name) for name in _OPTIONS}
    span = span_of(options, () if recording is None else (recording,))
    if span is None:
        if options["since"] is not None or options["until"] is not None:
            raise UsageError("--from and --to need --prometheus")
        yield recording
        return
    api, (since, until) = span
    with recorded(api, (since, min(until, at or until))) as folder:
        yield folder


@contextmanager
def recorded(api: Api, span: tuple[datetime, datetime]) -> Iterator[Path]:
    """What an API holds of a span, as a recording that is there as long as it is read.

    Raises:
        UsageError: the span ends before it begins.
        Unavailable: the API does not answer.
        NoVerdict: it holds no scrape of the span.
    """
    from driftwatch.collect.http import without_secrets
    from driftwatch.collect.recordings.compact import MANIFEST
    from driftwatch.collect.recordings.history import record_history

    first, last = span
    if first >= last:
        raise UsageError(
            f"--from {first:%Y-%m-%dT%H:%M:%SZ} is not before --to {last:%Y-%m-%dT%H:%M:%SZ}"
        )
    with tempfile.TemporaryDirectory(prefix="driftwatch-") as name:
        folder, progress, sources = Path(name), Progress("reading"), api.sources()
        try:
            record_history(sources, (first, last + timedelta(microseconds=1)), folder, progress)
        finally:
            progress.close()
            for source in sources:
                source.close()
        if not (folder / MANIFEST).exists():
            raise NoVerdict(
                f"{without_secrets(api.url)}: no scrape of a vLLM server between "
                f"{first:%Y-%m-%d %H:%M:%S} and {last:%Y-%m-%d %H:%M:%S} UTC",
                help_text="driftwatch doctor, or another --match, --from and --to",
            )
        yield folder

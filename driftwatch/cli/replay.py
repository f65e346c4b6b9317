"""``driftwatch replay``: history through the whole pipeline, at its own times."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.options import (
    Progress,
    Span,
    Time,
    plan_from,
    print_problems,
    serving_options,
)
from driftwatch.cli.proposed import Taken, pins_from, pins_option, with_proposals
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.collect.schema import Source
    from driftwatch.notify.delivery import Sender
    from driftwatch.service.explain import Window
    from driftwatch.service.state import Outcome


_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")


@click.command(name="replay")
@click.argument("recordings", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORDING]...")
@click.option("--prometheus", metavar="URL", help="Read history from a Prometheus API instead.")
@click.option(
    "--match",
    "selector",
    multiple=True,
    metavar="LABEL=VALUE",
    help="With --prometheus: only series with this label value.",
)
@click.option(
    "--step",
    "step_seconds",
    type=click.FloatRange(min=1),
    default=15.0,
    show_default=True,
    help="With --prometheus: scrape interval in seconds.",
)
@click.option("--from", "since", type=Time(), help="Start (needed with --prometheus).")
@click.option("--to", "until", type=Time(), help="End (needed with --prometheus).")
@click.option(
    "--baseline", type=Span(), help="Window whose lengths, rates and speed are the reference."
)
@pins_option
@click.option(
    "--evidence",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.parquet",
    help="Write the evidence table, a row per target and minute.",
)
@click.option("--json", "as_json", is_flag=True, help="Pages as JSON lines.")
@serving_options
def command(
    recordings: tuple[Path, ...],
    prometheus: str | None,
    selector: tuple[str, ...],
    step_seconds: float,
    since: datetime | None,
    until: datetime | None,
    baseline: Window | None,
    pins: Path | None,
    evidence: Path | None,
    as_json: bool,
    **serving: Any,
) -> None:
    """Run recorded scrapes, or a Prometheus' history, through the whole pipeline.

    Pages go to stdout as they would have been sent, oldest first; nothing is delivered and no
    database is touched. Exit code 0: the history was read; 1: parts of it could not be; 4: none of
    it could.
    """
    from driftwatch.cli.history import Tally
    from driftwatch.collect.fetch import without_secrets
    from driftwatch.notify.stdout import StdoutSender
    from driftwatch.service.replay import replay

    if evidence is not None:
        check_evidence(evidence)
    plan = with_proposals(plan_from(**serving))
    progress = Progress("reading")
    sources = sources_from(recordings, prometheus, selector, step_seconds, progress)
    pinned, taken = pins_from(pins), Taken()
    following = _explained(recordings, baseline, pins, serving)
    sender = StdoutSender(json=as_json, stored=False, next_command=following)
    rows: list[pl.DataFrame] = []
    read = Tally()
    told = 0
    never = {rule.id for rule in plan.enabled}
    try:
        span = _span(sources, since, until)
        for outcome in replay(sources, span, plan, baseline=baseline, pins=pinned):
            read.add(outcome)
            taken.note(outcome.rows)
            if evidence is not None and not outcome.rows.is_empty():
                rows.append(outcome.rows)
            told += _print_pages(outcome, sender)
            if len(outcome.verdicts):
                never -= {rule for rule in never if outcome.verdicts[rule].count()}
    except UsageError as error:
        if baseline is None or not recordings:
            raise
        raise UsageError(error.message, help_text=_reach(sources)) from error
    finally:
        progress.close()
        for source in sources:
            source.close()
    taken.tell()
    where = "" if prometheus is None else f"{without_secrets(prometheus)}: "
    print_problems([replace(p, where=f"{where}{p.where}") for p in read.problems])
    for warning in read.warnings():
        click.echo(f"warning: {where}{warning}", err=True)
    between = f"between {span[0]:%Y-%m-%d %H:%M:%S} and {span[1]:%Y-%m-%d %H:%M:%S} UTC"
    if not read.usable:
        raise NoVerdict(f"no usable scrape {between}: {where}{read.first_reason}")
    if evidence is not None:
        write_evidence(rows, evidence)
    if not told and not as_json:
        click.echo(f"no page {between}")
        for rule in sorted(never):
            text = f"{rule} could not fire: an input is missing (see doctor)"
            click.echo(textwrap.fill(text, 80, subsequent_indent="  ", break_on_hyphens=False))
    click.get_current_context().exit(1 if read.unreadable else 0)


def _explained(
    recordings: Sequence[Path],
    baseline: Window | None,
    pins: Path | None,
    serving: Mapping[str, Any],
) -> Callable[[Mapping[str, Any]], str | None]:
    """A page → the command that explains it from the same recording with the same options.

    None where the history is not in one file that ``explain`` could read.
    """
    words: list[str] = []
    for name, value in serving.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    if baseline is not None:
        words += ["--baseline", f"{_iso(baseline.start)}..{_iso(baseline.end)}"]
    if pins is not None:
        words += ["--pins", str(pins)]

    def command(page: Mapping[str, Any]) -> str | None:
        explain = page["links"]["explain"]
        if explain is None or len(recordings) != 1:
            return None
        return f"{explain} {shlex.join(['--recording', str(recordings[0]), *words])}"

    return command


def _iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _reach(sources: Sequence[Source]) -> str:
    """From when to when the recordings reach."""
    from driftwatch.collect.recordings import Recording

    spans = [s.span() for s in sources if isinstance(s, Recording)]
    first, last = min(s[0] for s in spans), max(s[1] for s in spans)
    return f"scrapes reach from {first:%Y-%m-%dT%H:%M:%SZ} to {last:%Y-%m-%dT%H:%M:%SZ}"


def sources_from(
    recordings: Sequence[Path],
    prometheus: str | None,
    selector: Sequence[str],
    step_seconds: float,
    progress: Progress,
) -> list[Source]:
    """Recordings, or one Prometheus.

    Raises:
        UsageError: neither or both are given, or a --match is not LABEL=VALUE.
    """
    if bool(recordings) == (prometheus is not None):
        raise UsageError(
            "give recordings, or --prometheus URL", help_text="driftwatch replay scrapes.jsonl.gz"
        )
    if prometheus is not None:
        from driftwatch.collect.dcgm_prometheus import DcgmPrometheusSource
        from driftwatch.collect.prometheus import PrometheusSource
        from driftwatch.collect.prometheus_ask import PrometheusAsker

        return [
            PrometheusSource(prometheus, selector=_matchers(selector), step_seconds=step_seconds),
            DcgmPrometheusSource(PrometheusAsker(prometheus)),
        ]
    from driftwatch.collect.recordings import open_recording

    return [
        open_recording(path, instance=_instance(i, len(recordings)), progress=progress)
        for i, path in enumerate(recordings)
    ]


def _instance(number: int, count: int) -> str:
    """A name for the server of a recording that names none."""
    return "host:8000" if count == 1 else f"host-{number + 1}:8000"


def _matchers(selector: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for text in selector:
        label, equals, value = text.partition("=")
        if not equals or not label:
            raise UsageError(f"--match {text!r} is not LABEL=VALUE")
        found[label] = value
    return found


def _span(
    sources: Sequence[Source], since: datetime | None, until: datetime | None
) -> tuple[datetime, datetime]:
    """What was asked for, else what the recordings hold."""
    from driftwatch.collect.recordings import Recording

    spans = [s.span() for s in sources if isinstance(s, Recording)]
    if not spans and (since is None or until is None):
        raise UsageError("--prometheus needs --from and --to")
    first = since or min(s[0] for s in spans)
    last = until or max(s[1] for s in spans)
    if first >= last:
        raise UsageError(
            f"--from {first:%Y-%m-%dT%H:%M:%SZ} is not before --to {last:%Y-%m-%dT%H:%M:%SZ}"
        )
    return first, last


def _print_pages(outcome: Outcome, sender: Sender) -> int:
    """Pages of one stretch; how many there were."""
    for transition in outcome.transitions:
        if transition.incident.page is not None:
            sender.send(transition.incident.page)
    return len(outcome.transitions)


def check_evidence(path: Path) -> None:
    """Whether the evidence can be written there; said before anything is read.

    Raises:
        UsageError: the suffix is none that is written, or the folder or file cannot be written.
    """
    if path.suffix not in _SUFFIXES:
        raise UsageError(f"{path}: give a name that ends in .parquet, .jsonl or .csv")
    if not path.parent.is_dir():
        raise UsageError(
            f"{path}: there is no folder {path.parent}", help_text=f"mkdir -p {path.parent}"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{path}: not writable for this user")


def write_evidence(rows: Sequence[pl.DataFrame], path: Path) -> None:
    """The evidence table as Parquet (or JSON lines, CSV by suffix), minutes in order."""
    import polars as pl

    from driftwatch.diagnose.evidence_order import evidence_only

    table = pl.concat(rows) if rows else pl.DataFrame()
    if not table.is_empty():
        table = evidence_only(table).sort("start", "instance", "engine")
    try:
        if path.suffix == ".parquet":
            table.write_parquet(path, compression="zstd", statistics=False)
        elif path.suffix == ".csv":
            table.write_csv(path)
        else:
            table.write_ndjson(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error

"""``driftwatch replay``: history through the whole pipeline, at its own times."""

from __future__ import annotations

import os
import shlex
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.main import EXIT_PROBLEM
from driftwatch.cli.options import (
    Progress,
    Span,
    plan_from,
    print_problems,
    serving_options,
)
from driftwatch.cli.past import Api, api_of, past_options
from driftwatch.cli.proposal_notice import TakenProposals, pins_from, pins_option, with_proposals
from driftwatch.cli.silent_rules import Unfired
from driftwatch.errors import NoVerdict, Unavailable, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli.history import Tally
    from driftwatch.collect.schema import Source
    from driftwatch.detect.baselines import Baselines
    from driftwatch.notify.delivery import Sender
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.pipeline.state import Outcome


_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")


@click.command(name="replay")
@click.argument("recordings", nargs=-1, type=click.Path(path_type=Path), metavar="[RECORDING]...")
@past_options
@click.option(
    "--baseline", type=Span(), help="Window whose lengths, rates and speed are the reference."
)
@click.option(
    "--write-pins",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --baseline: write what it measured as pins, for driftwatch baseline import.",
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
    write_pins: Path | None,
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
    from driftwatch.baselines.windows import with_more
    from driftwatch.cli.history import Tally
    from driftwatch.collect.http import without_secrets
    from driftwatch.detect.baselines import Baselines
    from driftwatch.notify.stdout import StdoutSender
    from driftwatch.pipeline.replay import replay

    _check_files(evidence, write_pins, baseline)
    plan = with_proposals(plan_from(**serving))
    progress = Progress("reading")
    sources = sources_from(recordings, api_of(prometheus, selector, step_seconds), progress)
    pinned, proposals = pins_from(pins), TakenProposals()
    following = _explained(recordings, baseline, pins, serving)
    sender = StdoutSender(json=as_json, stored=False, next_command=following)
    rows = None if evidence is None else EvidenceFile(evidence)
    tally = Tally()
    pages = 0
    unfired = Unfired(plan.enabled)
    lost: Unavailable | None = None
    try:
        span = _span(sources, since, until)
        reference = None
        if baseline is not None:
            reference, more = _baseline(sources, baseline, plan, recordings)
            pinned = with_more(more, pinned or Baselines())
            if write_pins is not None:
                _write_pins(write_pins, more)
        progress.begin("replaying")
        done = _share_of(span, progress)
        for outcome in replay(
            sources, span, plan, reference=reference, baselines=pinned, progress=done
        ):
            tally.add(outcome)
            proposals.note(outcome.rows)
            if rows is not None:
                rows.add(outcome.rows)
            pages += _print_pages(outcome, sender)
            unfired.note(outcome.rows, outcome.verdicts)
    except Unavailable as error:
        lost = error
    finally:
        progress.close()
        for source in sources:
            source.close()
    proposals.tell()
    where = "" if prometheus is None else f"{without_secrets(prometheus)}: "
    if rows is not None:
        rows.close()
    between = f"between {span[0]:%Y-%m-%d %H:%M:%S} and {span[1]:%Y-%m-%d %H:%M:%S} UTC"
    _print_read(tally, lost, where, between)
    if lost is not None:
        _print_lost(lost, tally, pages, evidence)
        click.get_current_context().exit(EXIT_PROBLEM)
    if not pages and not as_json:
        click.echo(f"no page {between}")
        _print_unfired(unfired)
    click.get_current_context().exit(1 if tally.unreadable else 0)


def _share_of(span: tuple[datetime, datetime], progress: Progress) -> Callable[[datetime], None]:
    return lambda now: progress((now - span[0]) / (span[1] - span[0]), 1.0)


def _check_files(evidence: Path | None, write_pins: Path | None, baseline: Window | None) -> None:
    if evidence is not None:
        check_evidence(evidence)
    if write_pins is not None and baseline is None:
        raise UsageError(
            "--write-pins needs --baseline, the window to pin",
            help_text="driftwatch baseline propose finds one",
        )


def _print_unfired(unfired: Unfired) -> None:
    for text in unfired.lines():
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        click.echo(textwrap.fill(text, 80, subsequent_indent=indent, break_on_hyphens=False))


def _print_read(tally: Tally, lost: Unavailable | None, where: str, between: str) -> None:
    """What of the history could not be read.

    Raises:
        NoVerdict: none of it could.
    """
    print_problems([replace(p, where=f"{where}{p.where}") for p in tally.problems])
    for warning in tally.warnings():
        click.echo(f"warning: {where}{warning}", err=True)
    if not tally.usable:
        why = f"{where}{tally.first_reason}" if lost is None else lost.message
        raise NoVerdict(
            f"no usable scrape {between}: {why}",
            help_text=None if lost is None else lost.help_text,
        )


def _baseline(
    sources: Sequence[Source], window: Window, plan: Plan, recordings: Sequence[Path]
) -> tuple[pl.DataFrame, Baselines]:
    """What ``--baseline`` measured: reference rows and pins.

    Raises:
        UsageError: the window holds no two scrapes.
    """
    from driftwatch.pipeline.replay import baseline_of

    try:
        return baseline_of(sources, window, plan)
    except UsageError as error:
        if not recordings:
            raise
        raise UsageError(error.message, help_text=_reach(sources)) from error


def _write_pins(path: Path, pins: Baselines) -> None:
    """The pins of ``--baseline``, as ``driftwatch baseline import`` takes them.

    Raises:
        UsageError: the file cannot be written.
    """
    from driftwatch.baselines.documents import exported

    try:
        path.write_text(exported(pins.every), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    armed = sum(pin.model is not None for pin in pins.every)
    click.echo(
        f"wrote {len(pins.every)} pins to {path}, {armed} of them with a load model; accept them "
        f"with: driftwatch baseline import {shlex.quote(str(path))}",
        err=True,
    )


def _print_lost(lost: Unavailable, tally: Tally, pages: int, evidence: Path | None) -> None:
    """That the database stopped answering: what was kept, and how to go on."""
    remains = f"{pages} pages above" if pages else "no page"
    if evidence is not None:
        remains += f", its minutes in {evidence}"
    click.echo(f"error: {lost.message}", err=True)
    click.echo(f"kept: what was replayed until then: {remains}", err=True)
    if tally.until is not None:
        click.echo(f"help: go on with the same command and --from {_iso(tally.until)}", err=True)


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
    from driftwatch.collect.schema import Recording

    spans = [s.span() for s in sources if isinstance(s, Recording)]
    first, last = min(s[0] for s in spans), max(s[1] for s in spans)
    return f"scrapes reach from {first:%Y-%m-%dT%H:%M:%SZ} to {last:%Y-%m-%dT%H:%M:%SZ}"


def sources_from(
    recordings: Sequence[Path], api: Api | None, progress: Progress
) -> Sequence[Source]:
    """Recordings, or one Prometheus.

    Raises:
        UsageError: neither or both are given.
    """
    if bool(recordings) == (api is not None):
        raise UsageError(
            "give recordings, or --prometheus URL", help_text="driftwatch replay scrapes.jsonl.gz"
        )
    if api is not None:
        return api.sources()
    from driftwatch.collect.recordings import open_recording

    return [
        open_recording(path, instance=_instance(i, len(recordings)), progress=progress)
        for i, path in enumerate(recordings)
    ]


def _instance(number: int, count: int) -> str:
    """A name for the server of a recording that names none."""
    return "host:8000" if count == 1 else f"host-{number + 1}:8000"


def _span(
    sources: Sequence[Source], since: datetime | None, until: datetime | None
) -> tuple[datetime, datetime]:
    """What was asked for, else what the recordings hold."""
    from driftwatch.collect.schema import Recording

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


class EvidenceFile:
    """The evidence table as Parquet (or JSON lines, CSV by suffix), minutes in order.

    Rows wait on disk beside each other until the end: those of weeks do not fit into memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory(prefix="driftwatch-")
        self._parts: list[Path] = []

    def add(self, rows: pl.DataFrame) -> None:
        """The minutes of one stretch; none of them before those of the last."""
        from driftwatch.diagnose.evidence_order import evidence_only

        if rows.is_empty():
            return
        part = Path(self._folder.name) / f"{len(self._parts):06}.parquet"
        evidence_only(rows).sort("start", "instance", "engine").write_parquet(part)
        self._parts.append(part)

    def close(self) -> None:
        """Write the file.

        Raises:
            UsageError: it cannot be written.
        """
        import polars as pl

        rows = pl.scan_parquet(self._parts) if self._parts else pl.LazyFrame()
        try:
            if self._path.suffix == ".parquet":
                rows.sink_parquet(self._path, compression="zstd", statistics=False)
            elif self._path.suffix == ".csv":
                rows.sink_csv(self._path)
            else:
                rows.sink_ndjson(self._path)
        except OSError as error:
            raise UsageError(f"{self._path}: {error.strerror or error}") from error
        finally:
            self._folder.cleanup()

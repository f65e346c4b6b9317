"""``driftwatch watch``: watch vLLM /metrics pages now; no configuration needed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import Duration, plan_from, serving_options
from driftwatch.cli.proposal_notice import pins_from, pins_option, with_proposals
from driftwatch.knobs import COLUMN_KNOBS, flag_of

if TYPE_CHECKING:
    from driftwatch.clock import Clock
    from driftwatch.collect.schema import Source
    from driftwatch.pipeline.state import Outcome


@click.command(name="watch")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option(
    "--interval", type=Duration(), default="5s", show_default=True, help="Between two scrapes."
)
@click.option("--for", "length", type=Duration(), help="Stop after this long.")
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep scrapes and incidents here (default: nothing is kept).",
)
@pins_option
@click.option("--no-nvml", is_flag=True, help="Do not read the GPUs of this machine.")
@click.option("--json", "as_json", is_flag=True, help="Pages as JSON lines, minutes on stderr.")
@serving_options
def command(
    urls: tuple[str, ...],
    interval: timedelta,
    length: timedelta | None,
    db: Path | None,
    pins: Path | None,
    no_nvml: bool,
    as_json: bool,
    **serving: Any,
) -> None:
    """Scrape URL... (http://host:8000/metrics) and print each minute and each page.

    Where no pin is given for a server, driftwatch takes its own proposal, and says so.

    Where a URL is of this machine and NVIDIA's driver is there, its GPUs are read as well.

    Ends at Ctrl-C. Exit code 1: no page was ever read.
    """
    import tempfile

    from driftwatch.baselines.rows import row_of
    from driftwatch.cli.logs import configure_logs, until_signal
    from driftwatch.clock import SystemClock
    from driftwatch.collect.pages.source import PagesSource
    from driftwatch.detect.baselines import Baselines
    from driftwatch.notify.stdout import StdoutSender
    from driftwatch.service.run import Receiver, Service
    from driftwatch.store.store import Store

    configure_logs(quiet=True)
    labels = _named(urls)
    plan = with_proposals(plan_from(**serving))
    clock = SystemClock()
    source = PagesSource(labels, clock=clock)
    gpus, own_hosts = ([], frozenset()) if no_nvml else _gpus_here(urls, clock)
    plan = replace(plan, own_hosts=own_hosts)
    pins_in_force = pins_from(pins) or Baselines()
    screen = _Screen(source.version(), to_stderr=as_json)
    sender = StdoutSender(json=as_json, stored=db is not None)
    receivers = [Receiver("stdout", ("page", "ticket", "notice"), sender)]
    with tempfile.TemporaryDirectory(prefix="driftwatch-") as folder:
        path = db or Path(folder) / "watch.db"
        with Store.open(path) as store, store.tick_lock():
            store.add_baselines([row_of(pin) for pin in pins_in_force.every])
            service = Service(
                [source, *gpus],
                plan,
                store,
                receivers,
                clock,
                interval_seconds=interval.total_seconds(),
                on_outcome=screen.show,
            )
            service.start()
            try:
                until_signal(None if length is None else length.total_seconds())
            finally:
                service.stop()
                service.deliver_once()
    click.get_current_context().exit(EXIT_ANSWERED if screen.read else EXIT_PROBLEM)


def _named(urls: Sequence[str]) -> dict[str, dict[str, str]]:
    """URL → labels: pages of one host and port are called by their paths as well.

    Raises:
        UsageError: an address that is none, that has neither scheme nor port, or that holds a
            user or password.
    """
    from collections import Counter
    from urllib.parse import urlsplit

    from driftwatch.collect.http import Bounds, Endpoint
    from driftwatch.errors import UsageError

    pages = {url: Endpoint(url, Bounds()) for url in urls}
    for url, page in pages.items():
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.username is not None or parts.password is not None:
            raise UsageError(
                f"the address of {page.instance} holds a user or a password",
                help_text="a password on a command line is seen by everybody on this machine; put "
                "a proxy that adds it before the server",
            )
        if "://" not in url and parts.port is None:
            raise UsageError(
                f"{url!r} names no port", help_text=f"driftwatch watch http://{url}:8000/metrics"
            )
    shared = Counter(page.instance for page in pages.values())
    return {
        url: {"instance": f"{page.instance}{urlsplit(page.url).path}"}
        if shared[page.instance] > 1
        else {}
        for url, page in pages.items()
    }


def _gpus_here(urls: Sequence[str], clock: Clock) -> tuple[list[Source], frozenset[str]]:
    """NVML and this machine's names, where a URL is of this machine and it has a GPU.

    A machine without a GPU is no news, and looks up no name.
    """
    from driftwatch.collect.nvml.machine import host_of, is_address, own_hosts
    from driftwatch.collect.nvml.source import NvmlSource

    hosts = {host_of(url) for url in urls}
    if not any(host in own_hosts() or not is_address(host) for host in hosts):
        return [], frozenset()
    source = NvmlSource(clock)
    if source.is_here() and hosts & (here := own_hosts(urls)):
        return [source], here
    source.close()
    return [], frozenset()


class _Screen:
    """Prints what a tick found, once for every minute and target.

    Attributes:
        read: a page was read.
    """

    def __init__(self, versions: Mapping[str, str | None], *, to_stderr: bool) -> None:
        from driftwatch.cli.proposal_notice import TakenProposals
        from driftwatch.notify.stdout import needs_ascii
        from driftwatch.service.scrape_failures import ScrapeFailures

        self.read = False
        self._versions = versions
        self._err = to_stderr
        self._ascii = needs_ascii(sys.stderr if to_stderr else sys.stdout)
        self._known: set[tuple[str, str]] = set()
        self._answered: set[str] = set()
        self._taken = TakenProposals()
        self._failures = ScrapeFailures()

    def show(self, outcome: Outcome) -> None:
        """Failures at once, then the minutes."""
        self.read = self.read or bool(outcome.scrapes["ok"].any())
        self._first_answers(outcome)
        for change in self._failures.changes(outcome.scrapes):
            state = "answers again" if change.reason is None else f"NO DATA: {change.reason}"
            self._say(f"{change.time:%H:%M:%S} UTC  {change.instance}  {state}")
        for row in outcome.rows.iter_rows(named=True):
            self._minute(row)
        self._taken.note(outcome.rows)
        for line in self._taken.lines():
            self._say(line)

    def _first_answers(self, outcome: Outcome) -> None:
        """A line for each server when it answers first: the minutes come later."""
        good = outcome.scrapes.filter("ok").sort("time", maintain_order=True)
        for instance, time in good.select("instance", "time").iter_rows():
            if instance in self._answered:
                continue
            self._answered.add(instance)
            # the first whole minute, and a moment to evaluate it
            end = (time + timedelta(minutes=2)).replace(second=0, microsecond=0)
            text = f"answers; its first minute is complete at {end:%H:%M} UTC"
            self._say(f"{time:%H:%M:%S} UTC  {instance}  {text}")

    def _say(self, text: str) -> None:
        from driftwatch.notify.layout import spell, wrap

        for line in text.splitlines():
            for short in wrap(spell(line, self._ascii), 80, " " * 11):
                click.echo(short, err=self._err)

    def _minute(self, row: Mapping[str, Any]) -> None:
        from driftwatch.model import TargetKey
        from driftwatch.notify.minute_line import gpu_line, limit_line, minute_line, speed_line

        key = TargetKey(row["instance"], row["engine"])
        if key not in self._known and row["scrapes"]:
            self._known.add(key)
            kv = row["kv_cache_tokens"]
            size = "KV size unknown" if kv is None else f"KV {kv:,.0f} tokens"
            version = self._versions.get(key.instance) or "version unknown"
            self._say(f"{key.text}  vLLM {version}, engine {key.engine}, {size}")
            unknown = [n for n in COLUMN_KNOBS if row[n] is None]
            if unknown:
                self._say(f"UNKNOWN    {', '.join(unknown)}: not in /metrics")
                first, *rest = (f"{flag_of(name)} N" for name in unknown)
                self._say(f"           give --startup-log FILE or {first}")
                for flag in rest:  # both are too long for one line
                    self._say(f"           {flag}")
        name = f"{key.text}  " if len(self._known) > 1 else ""
        self._say(f"{name}{minute_line(row)}")
        if row["scrapes"]:
            self._say(f"  speed    {speed_line(row)}")
            self._say(f"  limits   {limit_line(row)}")
        if (gpus := gpu_line(row)) is not None:
            self._say(f"  gpus     {gpus}")

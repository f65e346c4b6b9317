"""``driftwatch watch``: watch vLLM /metrics pages now; no configuration needed."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from driftwatch.cli.history import History, plan_from
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import DATABASE, DURATION, flag, history_options, option, typed
from driftwatch.cli.printer import print_wrapped
from driftwatch.cli.replay_summary import TakenProposals, with_proposals
from driftwatch.errors import UsageError
from driftwatch.knobs import COLUMN_KNOBS, flag_of

if TYPE_CHECKING:
    from driftwatch.database_place import Place
    from driftwatch.model import Fingerprint, TargetKey
    from driftwatch.pipeline.state import Outcome


@click.command(name="watch")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@option("--interval", DURATION, "Time between two scrapes.", default="5s")
@option("--for length", DURATION, "Stop after this long.")
@option(
    "--db database",
    DATABASE,
    "Keep scrapes and incidents in this database; default: keep nothing.",
    metavar="DATABASE",
)
@flag("--no-nvml", "Do not read the GPUs of this machine.")
@flag("--json as_json", "Print pages as JSON lines, minutes on stderr.")
@history_options("pools", "serving")
def command(
    urls: tuple[str, ...],
    interval: timedelta,
    length: timedelta | None,
    database: Place | None,
    no_nvml: bool,
    as_json: bool,
    history: History,
) -> int:
    """Scrape URL... (http://host:8000/metrics) and print each minute and each page.

    Without a baseline for a server, driftwatch uses the one it would propose and prints that.

    If a URL is of this machine and NVIDIA's driver is there, driftwatch reads its GPUs as well.

    Ends at Ctrl-C. Exit code 1: no URL answered with metrics.
    """
    import tempfile

    from driftwatch.cli.process import configure_logs, until_signal
    from driftwatch.clock import SystemClock
    from driftwatch.collect.nvml import NvmlSource
    from driftwatch.collect.pages import PagesSource
    from driftwatch.receivers.registry import Receiver
    from driftwatch.receivers.stdout import StdoutSender
    from driftwatch.service.run import Service
    from driftwatch.store.store import Store

    configure_logs(quiet=True)
    clock = SystemClock()
    source = PagesSource(_named(urls), clock=clock)
    # never ./driftwatch.yaml: watch needs no configuration
    plan = with_proposals(plan_from(history.config, **history.serving))
    hosts = frozenset[str]() if no_nvml else hosts_with_own_gpus(urls)
    screen = _Screen(source.reports(), to_stderr=as_json)
    is_kept = database is not None
    words = f" --db {shlex.quote(typed(database))}" if is_kept else None
    sender = StdoutSender(json=as_json, stored=is_kept, options=lambda _: words)
    with tempfile.TemporaryDirectory(prefix="driftwatch-") as folder:
        path = database or Path(folder) / "watch.db"
        with Store.open(path) as store, store.tick_lock():
            service = Service(
                [source, NvmlSource(clock)] if hosts else [source],
                replace(plan, own_hosts=hosts),
                store,
                [Receiver("stdout", ("page", "ticket", "notice"), sender)],
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
    return EXIT_ANSWERED if screen.answered else EXIT_PROBLEM


def _named(urls: Sequence[str]) -> dict[str, dict[str, str]]:
    """URL → labels: pages of one host and port are called by their paths as well.

    Raises:
        UsageError: an address that is none, that has neither scheme nor port, or that holds a
            user or password.
    """
    from driftwatch.collect.http import address_of

    pages = {url: address_of(url) for url in urls}
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


def hosts_with_own_gpus(urls: Sequence[str]) -> frozenset[str]:
    """This machine's names, where a URL is of this machine and it has GPUs; else none.

    Without a GPU driftwatch looks up no name.
    """
    from driftwatch.collect.nvml import NvmlSource, host_of, own_hosts

    source = NvmlSource()
    try:
        here = own_hosts(urls) if source.is_here() else frozenset[str]()
    finally:
        source.close()
    return here if here & {host_of(url) for url in urls} else frozenset()


class _Screen:
    """Prints the result of a tick: failures at once, then a line for every minute and target.

    Attributes:
        answered: servers that answered with metrics.
    """

    def __init__(self, reports: Mapping[str, Fingerprint], *, to_stderr: bool) -> None:
        from driftwatch.service.notes import ScrapeFailures

        self.answered: set[str] = set()
        self._reports = reports
        self._err = to_stderr
        self._described: set[tuple[str, str]] = set()
        self._taken = TakenProposals()
        self._failures = ScrapeFailures()

    def show(self, outcome: Outcome) -> None:
        """Failures at once, then the minutes."""
        self._first_answers(outcome)
        for change in self._failures.changes(outcome.scrapes):
            state = "answers again" if change.reason is None else f"NO DATA: {change.reason}"
            self._print(f"{change.time:%H:%M:%S} UTC  {change.instance}  {state}")
        engines = Counter(outcome.rows["instance"]) if len(outcome.rows) else Counter[str]()
        for row in outcome.rows.iter_rows(named=True):
            self._minute(row, engines[row["instance"]])
        self._taken.note(outcome.rows)
        for line in self._taken.lines():
            self._print(line)

    def _first_answers(self, outcome: Outcome) -> None:
        """A line for each server when it answers first: the minutes come later."""
        good = outcome.scrapes.filter("ok").sort("time", maintain_order=True)
        for instance, time in good.select("instance", "time").iter_rows():
            if instance in self.answered:
                continue
            self.answered.add(instance)
            # the first whole minute, and a moment to evaluate it
            end = (time + timedelta(minutes=2)).replace(second=0, microsecond=0)
            text = f"answers; its first minute is complete at {end:%H:%M} UTC"
            self._print(f"{time:%H:%M:%S} UTC  {instance}  {text}")

    def _print(self, text: str) -> None:
        for line in text.splitlines():
            print_wrapped(line, " " * 11, err=self._err, piped_too=True)

    def _minute(self, row: Mapping[str, Any], engines: int) -> None:
        from driftwatch.model import TargetKey
        from driftwatch.notify.minute_line import gpu_line, limit_line, minute_line, speed_line

        key = TargetKey(row["instance"], row["engine"])
        if key not in self._described and row["scrapes"]:
            self._described.add(key)
            self._describe(key, row, engines)
        name = f"{key.text}  " if len(self._described) > 1 else ""
        self._print(f"{name}{minute_line(row)}")
        if row["scrapes"]:
            self._print(f"  speed    {speed_line(row)}")
            self._print(f"  limits   {limit_line(row)}")
        if (gpus := gpu_line(row)) is not None:
            self._print(f"  gpus     {gpus}")

    def _describe(self, key: TargetKey, row: Mapping[str, Any], engines: int) -> None:
        """What runs, and which settings are unknown, with the options that give them."""
        kv = row["kv_cache_tokens"]
        size = "KV size unknown" if kv is None else f"KV {kv:,.0f} tokens"
        told = self._reports.get(key.instance)
        version = (told.release.get("vllm") if told else None) or "version unknown"
        which = "1 engine" if engines == 1 else f"engine {key.engine} of {engines}"
        self._print(f"{key.text}  vLLM {version}, {which}, {size}")
        unknown = [name for name in COLUMN_KNOBS if row[name] is None]
        if unknown:
            self._print(f"UNKNOWN    {', '.join(unknown)}: not in /metrics")
            first, *rest = (f"{flag_of(name)} N" for name in unknown)
            self._print(f"           give --startup-log FILE or {first}")
            for flag in rest:  # both are too long for one line
                self._print(f"           {flag}")

"""``driftwatch replay``: history through the whole pipeline, at its own times."""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import DATABASE, PATH, flag, history_options, option, typed
from driftwatch.cli.printer import print_note, print_warning, print_wrapped
from driftwatch.cli.replay_summary import ScrapeCounts, with_proposals
from driftwatch.errors import Unavailable, UsageError
from driftwatch.notify.page import Page
from driftwatch.numbers import moment, plural
from driftwatch.receivers.sender import message_of
from driftwatch.receivers.stdout import StdoutSender

if TYPE_CHECKING:
    from driftwatch.database_place import Place
    from driftwatch.pipeline.state import Outcome
    from driftwatch.store.store import Store

_PAGES_IN_FULL = 3
_LINES = 12  # events, the pages in full among them


class ReplayScreen:
    """The events of one replay on standard output.

    ``sender``: prints a page whole; ``whole``: every page is printed so.
    """

    def __init__(self, sender: StdoutSender, *, whole: bool) -> None:
        self._sender, self._whole = sender, whole
        self._in_full = self._printed = self._left_out = 0
        self._after_line = False
        self._notices: Counter[str] = Counter()

    def show(self, outcome: Outcome) -> int:
        """Print or count the events of a stretch; how many there were."""
        for transition in outcome.transitions:
            if transition.incident.page is not None:
                self._show(transition.incident.page)
        return len(outcome.transitions)

    def _show(self, page: Page) -> None:
        if self._whole:
            self._sender.send(message_of(page))
        elif page.severity == "notice":
            self._notices[page.alert] += page.event == "firing"
        elif self._printed == _LINES:
            self._left_out += 1
        else:
            self._printed += 1
            if page.event == "firing" and self._in_full < _PAGES_IN_FULL:
                self._in_full += 1
                if self._after_line:
                    click.echo()
                self._sender.send(message_of(page))
                self._after_line = False
            else:
                self._after_line = True
                stamp = moment(page.times.evaluated_at, None)
                print_wrapped(f"{stamp}  {page.summary}", "  ", piped_too=True)

    def close(self) -> None:
        """Print what was left out."""
        notices = ", ".join(f"{number} {alert}" for alert, number in sorted(self._notices.items()))
        parts = []
        if self._left_out:
            parts.append(plural(self._left_out, "more event"))
        if notices:
            count = self._notices.total()
            parts.append(f"{plural(count, 'notice')} ({notices})")
        if parts:
            text = f"not printed: {', '.join(parts)}; --all prints them"
            print_wrapped(text, "  ", piped_too=True)


@click.command(name="replay")
@click.argument("recordings", nargs=-1, type=PATH, metavar="[RECORDING]...")
@history_options("prometheus", "span", "baseline", "pools", "serving")
@option(
    "--db database",
    DATABASE,
    "Keep minutes, incidents and advice in this new database; explain, report and web read it "
    "with --db.",
    metavar="FILE",
)
@flag(
    "--no-advice",
    "Simulate no advice: pages come without one, months of history in a fraction of the time.",
)
@flag("--all whole", "Print every page whole, notices too.")
@flag("--json as_json", "Print every page as a line of JSON.")
def command(
    history: History,
    database: Place | None,
    no_advice: bool,
    whole: bool,
    as_json: bool,
) -> int:
    """Run recorded scrapes, or a Prometheus' history, through the whole pipeline.

    Prints the pages as driftwatch run would have sent them, oldest first: three whole, then a line
    for each event, notices as a count. It delivers nothing. Exit code 0: the history was read;
    1: parts of it could not be; 2: a file is no recording; 4: there is no usable scrape.
    """
    counts = ScrapeCounts()
    kept = "" if database is None else f" --db {shlex.quote(typed(database))}"

    def options(page: Page) -> str:
        at = f" --at {page.times.evaluated_at:%Y-%m-%dT%H:%MZ}"
        return kept if page.event == "resolved" else f"{at}{kept}"

    sender = StdoutSender(json=as_json, stored=False, options=options)
    screen = ReplayScreen(sender, whole=whole or as_json)
    plan = with_proposals(history.plan)
    plan = replace(plan, simulations=0) if no_advice else plan
    pages, lost = 0, None
    with nullcontext() if database is None else _new_store(database) as store:
        try:
            for outcome in history.outcomes(plan, store, counts):
                pages += screen.show(outcome)
        except Unavailable as error:
            lost = error
    screen.close()
    if database is not None:
        print_note(f"{typed(database)} has the minutes, incidents and advice")
    elif pages and not as_json:
        print_wrapped(
            "Nothing is kept: give replay --db FILE, and a next: command --db FILE too.",
            piped_too=True,
        )
    if history.config_file is None and not as_json:
        print_note(
            "no latency target: -c FILE gives them, with "
            "pools: [{name: chat, slo: {ttft_seconds: 1.0, tpot_seconds: 0.05}}]"
        )
    counts.proposals.tell()
    for warning in counts.warnings(history.where):
        print_warning(warning)
    counts.require_usable(history.where, lost)
    if lost is not None:
        _print_lost(lost, counts.until, pages)
        return EXIT_PROBLEM
    if not pages and not as_json:
        print_wrapped(
            f"no page {counts.between}; driftwatch doctor names the rules that lack an input",
            piped_too=True,
        )
    return EXIT_PROBLEM if counts.unreadable else EXIT_ANSWERED


def _new_store(place: Place) -> Store:
    """A database that nothing was written into yet.

    Raises UsageError: it has minutes.
    """
    from driftwatch.store.store import Store

    store = Store.open(place, durable=False)
    if store.minutes_reach() is not None:
        store.close()
        raise UsageError(f"--db {place} holds minutes already", help_text="name a new file")
    return store


def _print_lost(lost: Unavailable, until: datetime | None, pages: int) -> None:
    """That the API stopped answering: what was kept, and how to go on."""
    from driftwatch.numbers import utc_text

    remains = f"{pages} pages above" if pages else "no page"
    click.echo(f"error: {lost.message}", err=True)
    click.echo(f"kept: what was replayed until then: {remains}", err=True)
    if until is not None:
        click.echo(f"help: go on with the same command and --from {utc_text(until)}", err=True)

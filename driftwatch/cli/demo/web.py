"""``driftwatch demo --web``: what was played, kept in a database, as pages in a browser."""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from driftwatch.cli.web_extra import has_web, require_web
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from socket import socket

    from driftwatch.collect.schema import Source
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.pipeline.state import Outcome, State
    from driftwatch.store import Store
    from driftwatch.web.context import Web

# the usual one of driftwatch web; where it is taken, any
_ADDRESSES = ("127.0.0.1:9096", "127.0.0.1:0")


def is_for_web(wanted: bool | None, output: TextIO) -> bool:
    """Whether pages are served at the end: as wanted, else where somebody sits at a terminal."""
    if wanted is not None:
        return wanted
    return output.isatty() and has_web() and not os.environ.get("CI")


@contextmanager
def kept_for_web(*, wanted: bool, until_resolved: bool = False) -> Iterator[KeptReplay | None]:
    """A replay that is kept until the end of the context; None where nobody wants it.

    ``until_resolved``: only what comes before the first page resolves.

    Raises UsageError: the web is not installed.
    """
    if not wanted:
        yield None
        return
    from driftwatch.store import Store

    require_web()
    with tempfile.TemporaryDirectory(prefix="driftwatch-web-") as name:
        folder = Path(name)
        with Store.open(folder / "driftwatch.db") as store:
            yield KeptReplay(folder, store, until_resolved)


class KeptReplay:
    """A replay whose outcomes are written to a database as the service writes its ticks."""

    def __init__(self, folder: Path, store: Store, until_resolved: bool) -> None:
        self._folder, self._store = folder, store
        self._until_resolved, self._is_over = until_resolved, False
        self._plan: Plan | None = None
        self._now: datetime | None = None
        self._incident: str | None = None  # the last that fired as a page

    def replay(
        self,
        sources: Sequence[Source],
        span: tuple[datetime, datetime],
        plan: Plan,
        *,
        baseline: Window | None = None,
        stride: timedelta | None = None,
        progress: Callable[[datetime], None] | None = None,
    ) -> Iterator[Outcome]:
        """As :func:`driftwatch.pipeline.replay.replay`."""
        from driftwatch.pipeline.replay import first_state, replayed

        state = first_state(sources, span[0], plan, baseline=baseline)
        since, self._plan = span[0], plan
        for now, after, outcome in replayed(sources, state, *span, plan, stride=stride):
            self._keep(since, now, after, outcome)
            since = now
            if progress is not None:
                progress(now)
            yield outcome

    def _keep(self, since: datetime, now: datetime, state: State, outcome: Outcome) -> None:
        from driftwatch.pipeline.stored_state import advice_rows, memory_of
        from driftwatch.store.minute_columns import stored_rows
        from driftwatch.store.store import TickRecord

        changes = outcome.transitions
        if self._until_resolved and self._incident is not None:
            self._is_over |= any(one.event == "resolved" for one in changes)
        if self._is_over:
            return
        record = TickRecord(
            since=since,
            until=now,
            incidents=list(state.incidents.values()),
            transitions=changes,
            minutes=stored_rows(outcome.rows),
            advices=advice_rows(outcome.advices),
            memory=memory_of(state),
        )
        self._store.commit_tick(record)
        self._now = now
        for one in outcome.transitions:
            if one.event == "firing" and (
                self._incident is None or one.incident.severity == "page"
            ):
                self._incident = one.incident.id

    def serve(self, seconds: float | None) -> None:
        """Serve the pages at the time when the replay ended, and print the incident's address.

        ``seconds``: how long; None = until Ctrl-C.
        """
        from driftwatch.cli.logs import configure_logs
        from driftwatch.web.server import server_of

        configure_logs(quiet=True)
        token = secrets.token_hex(8)
        for number in (signal.SIGTERM, signal.SIGINT):
            # uvicorn stops at both, and sends them on to whoever had them before
            signal.signal(number, lambda *_: None)
        with ExitStack() as stack:
            web, host, sockets = self._listening(stack, token)
            page = "/fleet" if self._incident is None else f"/incidents/{self._incident}"
            click.echo(f"open:    http://{host}{page}")
            click.echo(f"         as of {self._now:%H:%M} UTC; it is served until Ctrl-C")
            click.echo(f"         to act or to ask what if: sign in with the token {token}")
            server = server_of(web)
            if seconds is not None:
                timer = threading.Timer(seconds, setattr, (server, "should_exit", True))
                timer.daemon = True
                timer.start()
            server.run(sockets)

    def _listening(self, stack: ExitStack, token: str) -> tuple[Web, str, list[socket]]:
        """The web, its address and socket; another port where the usual one is taken."""
        from driftwatch.clock import ManualClock
        from driftwatch.settings.web import WebSettings
        from driftwatch.web.server import listening, web_of

        if self._plan is None or self._now is None:
            raise UsageError("nothing was played, so there is no page")
        file = self._folder / "web.token"
        file.touch(mode=0o600)
        file.write_text(token, encoding="utf-8")
        for number, address in enumerate(_ADDRESSES, 1):
            settings = WebSettings.model_validate({"listen": address, "token_file": str(file)})
            clock = ManualClock(self._now)
            web = web_of(None, self._plan, self._store.place, own=settings, clock=clock)
            try:
                host, sockets = stack.enter_context(listening(web))
            except UsageError:
                if number == len(_ADDRESSES):
                    raise
                continue
            return web, host, sockets
        raise AssertionError("one address is tried at least")

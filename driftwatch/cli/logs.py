"""Logs on stderr, and waiting for the signal to stop."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any

import structlog


def configure_logs(*, quiet: bool = False) -> Any:
    """State changes as one line each on stderr: for people on a terminal, logfmt elsewhere.

    Args:
        quiet: only errors (``watch`` prints the rest itself).
    """
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=False)
        if sys.stderr.isatty()
        else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.ERROR if quiet else logging.INFO
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # what they report is logged by us; their own lines would say everything twice
    for name in ("procrastinate", "psycopg.pool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return structlog.get_logger()


def until_signal(seconds: float | None = None) -> None:
    """Return at SIGTERM or SIGINT, or after so many seconds."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait(seconds)


class Hangups:
    """SIGHUP as a question of the loop that runs until SIGTERM or SIGINT."""

    def __init__(self) -> None:
        # the one queue whose put may interrupt its own get, as a handler does
        self._signals: SimpleQueue[int] = SimpleQueue()
        signal.signal(signal.SIGHUP, self._put)

    def listen(self) -> None:
        """SIGTERM and SIGINT end the loop from now on, and not the process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._put)

    def loop(self, reload: Callable[[], object]) -> None:
        """Call ``reload`` at SIGHUP, until SIGTERM or SIGINT."""
        self.listen()
        while self._signals.get() == signal.SIGHUP:
            reload()

    def end(self) -> None:
        """End the loop as a signal would; from any thread."""
        self._signals.put(signal.SIGTERM)

    def _put(self, number: int, _: FrameType | None) -> None:
        self._signals.put(number)

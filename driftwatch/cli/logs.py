"""Logs on stderr, and waiting for the signal to stop."""

from __future__ import annotations

import logging
import signal
import sys
import threading
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
    # APScheduler reports through listeners; its own lines would say everything twice
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
    return structlog.get_logger()


def until_signal(seconds: float | None = None) -> None:
    """Return at SIGTERM or SIGINT, or after so many seconds."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait(seconds)

"""What a process that runs on needs: logs, signals, memory that goes back to the system."""

from __future__ import annotations

import ctypes
import logging
import os
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
    for name in ("apscheduler", "procrastinate", "psycopg.pool"):
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


# jemalloc's, which Polars brings. As it comes, freed pages stay with the process for good: twice
# the memory of a service of 10,000 targets, for a seventh less processor time (performance.md).
ALLOCATOR = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
# The C library's, which NumPy and Python use. glibc raises the size from which an array has pages
# of its own with the sizes that are freed, up to 32 MiB; set once, it stays (man 3 mallopt).
_M_MMAP_THRESHOLD = -3
OWN_PAGES_BYTES = 2**20


def give_memory_back() -> None:
    """Set both allocators up; Polars' unless the environment does, to be called before its import.

    A C library without ``mallopt`` (musl, macOS) keeps its own way.
    """
    for name, value in ALLOCATOR.items():
        os.environ.setdefault(name, value)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, OWN_PAGES_BYTES)

"""NVML calls with a deadline: each runs in a thread that is left behind if the call hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import pynvml

T = TypeVar("T")

CALL_SECONDS = 2.0
# A library whose lock is held answers none: so many threads are left behind for one GPU, no more.
_MOST_HUNG: Final = 3


class Unread(Exception):
    """A call that gave no value.

    ``reason``: why, in NVML's words; the same for as long as the cause is; ``code``: NVML's error
    number, None where NVML said nothing; ``hangs``: the call was made and has not come back.
    """

    def __init__(self, reason: str, code: int | None = None, *, hangs: bool = False) -> None:
        self.reason = reason
        self.code = code
        self.hangs = hangs
        super().__init__(reason)


class _Job:
    """One call: what came of it, as soon as ``done`` is set."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self.value: Any = None
        self.error: Exception | None = None
        self._call = call

    def run(self) -> None:
        try:
            self.value = self._call()
        except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
            self.error = error
        self.done.set()


class Lane:
    """Calls one after the other, in a daemon thread of their own.

    A call that is overdue keeps its thread, the calls after it get another one, and it is not
    made anew until it has come back. Used by one thread at a time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] | None = None
        self._hung: dict[str, _Job] = {}
        self._until = 0.0

    @property
    def hangs(self) -> bool:
        """A call has not come back."""
        return any(not job.done.is_set() for job in self._hung.values())

    def begin(self, seconds: float) -> None:
        """From now on all calls together may take ``seconds``."""
        self._until = time.monotonic() + seconds

    def ask(self, key: str, call: Callable[[], T], seconds: float | None = None) -> T:
        """What the call answers.

        ``key``: what is called on what; a key that hangs is not called again; ``seconds``: its
        deadline, cut by :meth:`begin`; 2 s where none is given.
        Raises Unread: NVML's error, no answer in time, or not asked because others have not
        answered.
        """
        seconds = CALL_SECONDS if seconds is None else seconds
        self._hung = {k: job for k, job in self._hung.items() if not job.done.is_set()}
        if key in self._hung:
            raise Unread(f"no answer within {seconds:g} s", hangs=True)
        if len(self._hung) >= _MOST_HUNG:
            raise Unread(f"not asked: {_MOST_HUNG} calls have not answered")
        remaining_seconds = min(seconds, self._until - time.monotonic())
        if remaining_seconds <= 0:
            raise Unread("not asked: the calls before it took too long")
        if self._jobs is None:
            self._jobs = _worker(self._name)
        job = _Job(call)
        self._jobs.put(job)
        if not job.done.wait(remaining_seconds):
            self._hung[key] = job
            self.close()
            cut = remaining_seconds < 0.9 * seconds
            words = "in the time that was left" if cut else f"within {seconds:g} s"
            raise Unread(f"no answer {words}", hangs=True)
        if job.error is not None:
            raise unread(job.error) from job.error
        value: T = job.value
        return value

    def close(self) -> None:
        """Let the thread end, after the call it is in."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None


def _worker(name: str) -> SimpleQueue[_Job | None]:
    """A thread that makes the calls put into its queue, until None comes."""
    jobs: SimpleQueue[_Job | None] = SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job.run()

    # a daemon: a call that never comes back must not keep the process alive
    threading.Thread(target=work, name=name, daemon=True).start()
    return jobs


def function(name: str) -> Callable[..., Any]:
    """NVML's function of that name.

    Raises Unread: the binding has none of that name.
    """
    nvml_function: Callable[..., Any] | None = getattr(pynvml, name, None)
    if nvml_function is None:
        raise Unread("FunctionNotFound", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return nvml_function


def unread(error: Exception) -> Unread:
    """An error of the binding in NVML's words: ``NotSupported``, ``GpuIsLost``."""
    if isinstance(error, Unread):
        return error
    if isinstance(error, pynvml.NVMLLibraryMismatchError):
        return Unread("FunctionNotFound", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    if not isinstance(error, pynvml.NVMLError):
        return Unread(f"{type(error).__name__}: {error}")
    return of_code(error.value)


def of_code(code: int) -> Unread:
    """NVML's error number in its words."""
    kind = pynvml.NVMLError(code).__class__.__name__
    _, _, words = kind.partition("_")
    return Unread(words or f"NVML error {code}", code)

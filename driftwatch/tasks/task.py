"""What is to be done later: a task as data, who does it, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from driftwatch.store.store import Store

Queue = Literal["reports", "maintenance"]
QUEUES: tuple[Queue, ...] = get_args(Queue)
# of what waits the highest goes first
PRIORITIES: Mapping[Queue, int] = {
    "reports": 20,
    "maintenance": 10,
}
# a task that failed so often is dead
TRIES = 3
# of a reason that is kept
LONGEST_REASON = 500

Arguments = Mapping[str, Any]
# A function may be called twice with the same arguments, by two processes at once: what it writes
# has to be there once.
Function = Callable[[Store, Arguments], None]


@dataclass(frozen=True, slots=True)
class Task:
    """Something that is to be done once.

    Attributes:
        name: of its function.
        key: of two tasks with one key the second is not taken while the first one waits.
        arguments: JSON values.
    """

    name: str
    queue: Queue
    key: str
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What is in one queue."""

    waiting: int = 0
    running: int = 0
    oldest_waiting_seconds: float = 0.0


class Executor(Protocol):
    """Who does tasks. ``store``: the database that they are noted in and read from."""

    def defer(self, store: Store, task: Task) -> bool:
        """Have it done; within a transaction of the store only if that is committed.

        False: one with its key waits already.
        """

    def counts(self, store: Store) -> Mapping[Queue, QueueCounts]:
        """Each queue."""

    def close(self) -> None:
        """End what this process does for it."""


def reason_of(error: BaseException) -> str:
    """Why a task failed, on one line."""
    text = " ".join(str(getattr(error, "message", None) or error).split())
    name = type(error).__name__
    return f"{name}: {text}"[:LONGEST_REASON] if text else name

"""The kernel's lists: binary heaps, linked lists, and the queue of waiting requests.

A linked list is an array of LINKs, one for each possible member, and a last one, at index NONE,
that is both ends of the list. ``links[NONE].next`` is the first member, NONE in an empty list.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.tables import ENDLESS, NONE, PREEMPTED, WAITING


@compiled
def insert(links: Any, member: int, at: int) -> None:
    """Insert a member before another, or at the end (NONE)."""
    before = links[at].previous
    links[member].next = at
    links[member].previous = before
    links[before].next = member
    links[at].previous = member


@compiled
def remove(links: Any, member: int) -> None:
    """Remove a member."""
    before = links[member].previous
    after = links[member].next
    links[before].next = after
    links[after].previous = before


@compiled
def precedes(heap: Any, i: int, j: int) -> bool:
    """Whether one entry of a heap comes before another."""
    a, b = heap[i], heap[j]
    if a.first != b.first:
        return a.first < b.first
    if a.second != b.second:
        return a.second < b.second
    return a.id < b.id


@compiled
def swap(heap: Any, i: int, j: int) -> None:
    """Swap two entries."""
    a, b = heap[i], heap[j]
    a.first, b.first = b.first, a.first
    a.second, b.second = b.second, a.second
    a.id, b.id = b.id, a.id


@compiled
def heap_push(heap: Any, size: int, first: float, second: float, r: int) -> None:
    """Add (first, second, r) to a binary heap of ``size`` entries, least first."""
    at = size
    heap[at].first = first
    heap[at].second = second
    heap[at].id = r
    while at > 0 and precedes(heap, at, (at - 1) // 2):
        swap(heap, at, (at - 1) // 2)
        at = (at - 1) // 2


@compiled
def heap_drop(heap: Any, size: int) -> None:
    """Remove the least entry of a heap of ``size`` entries."""
    last = size - 1
    at = np.int64(0)
    swap(heap, at, last)
    while True:
        down = 2 * at + 1
        if down >= last:
            return
        if down + 1 < last and precedes(heap, down + 1, down):
            down += 1
        if not precedes(heap, down, at):
            return
        swap(heap, at, down)
        at = down


@compiled
def wait(e: Any, t: Any, r: int, at: int) -> None:
    """Put a request into the waiting queue: by priority, or before another (NONE = last)."""
    e.wait_count += 1
    if e.by_priority:
        request = t.requests[r]
        heap_push(t.waits, e.wait_size, float(request.priority), request.arrival, r)
        e.wait_size += 1
    else:
        insert(t.waiting, r, at)


@compiled
def stop_waiting(e: Any, t: Any, r: int) -> None:
    """Take a request out of the waiting queue (by priority its heap entry stays, but is dead)."""
    e.wait_count -= 1
    set_deferred(e, t, r, np.int64(0))
    if not e.by_priority:
        remove(t.waiting, r)


@compiled
def first_waiting(e: Any, t: Any) -> int:
    """The first request of the queue; NONE if it is empty."""
    if not e.by_priority:
        return t.waiting[NONE].next
    while e.wait_size > 0:
        r = t.waits[0].id
        status = t.requests[r].status
        if status in (WAITING, PREEMPTED):
            return r
        drop_first(e, t)
    return NONE


@compiled
def drop_first(e: Any, t: Any) -> None:
    """Take the first entry off the priority heap."""
    heap_drop(t.waits, e.wait_size)
    e.wait_size -= 1


@compiled
def set_deferred(e: Any, t: Any, r: int, deferred: int) -> None:
    """Set whether a waiting request is deferred for its adapter (1) or not (0)."""
    e.deferred_count += deferred - t.requests[r].deferred
    t.requests[r].deferred = deferred


@compiled
def over_loras(e: Any, t: Any, r: int) -> bool:
    """Whether a request's adapter would be one too many in the step being scheduled."""
    adapter = t.requests[r].adapter
    if e.max_loras == ENDLESS or adapter < 0 or e.adapters_in_step < e.max_loras:
        return False
    return t.adapters[adapter] != e.step


@compiled
def use_adapter(e: Any, t: Any, r: int) -> None:
    """Mark a request's adapter as used by the step being scheduled."""
    adapter = t.requests[r].adapter
    if e.max_loras < ENDLESS and adapter >= 0 and t.adapters[adapter] != e.step:
        t.adapters[adapter] = e.step
        e.adapters_in_step += 1

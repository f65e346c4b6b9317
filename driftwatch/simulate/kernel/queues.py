"""The kernel's queues: binary heaps, the waiting queue, the running list."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.tables import NONE, PREEMPTED, WAITING


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
    """Two entries change places."""
    a, b = heap[i], heap[j]
    a.first, b.first = b.first, a.first
    a.second, b.second = b.second, a.second
    a.id, b.id = b.id, a.id


@compiled
def heap_push(heap: Any, size: int, first: float, second: float, r: int) -> None:
    """Add (first, second, r) to a binary heap that holds ``size`` entries, least first."""
    at = size
    heap[at].first = first
    heap[at].second = second
    heap[at].id = r
    while at > 0 and precedes(heap, at, (at - 1) // 2):
        swap(heap, at, (at - 1) // 2)
        at = (at - 1) // 2


@compiled
def heap_drop(heap: Any, size: int) -> None:
    """Take the least entry out of a heap that holds ``size`` entries."""
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
def wait_by_priority(e: Any, t: Any, r: int) -> None:
    """Put a request into the priority queue."""
    request = t.requests[r]
    heap_push(t.waits, e.wait_size, float(request.priority), request.arrival, r)
    e.wait_size += 1


@compiled
def wait_last(e: Any, t: Any, r: int) -> None:
    """Put a request at the end of the waiting queue."""
    e.wait_count += 1
    if e.by_priority:
        wait_by_priority(e, t, r)
        return
    request = t.requests[r]
    request.wait_previous = e.wait_tail
    request.wait_next = NONE
    if e.wait_tail == NONE:
        e.wait_head = r
    else:
        t.requests[e.wait_tail].wait_next = r
    e.wait_tail = r


@compiled
def wait_first(e: Any, t: Any, r: int) -> None:
    """Put a (preempted) request at the front of the waiting queue."""
    e.wait_count += 1
    if e.by_priority:
        wait_by_priority(e, t, r)
        return
    request = t.requests[r]
    request.wait_previous = NONE
    request.wait_next = e.wait_head
    if e.wait_head == NONE:
        e.wait_tail = r
    else:
        t.requests[e.wait_head].wait_previous = r
    e.wait_head = r


@compiled
def stop_waiting(e: Any, t: Any, r: int) -> None:
    """Take a request out of the waiting queue (by priority its heap entry dies where it is)."""
    requests = t.requests
    e.wait_count -= 1
    recall(e, t, r)
    if e.by_priority:
        return
    before = requests[r].wait_previous
    after = requests[r].wait_next
    if before == NONE:
        e.wait_head = after
    else:
        requests[before].wait_next = after
    if after == NONE:
        e.wait_tail = before
    else:
        requests[after].wait_previous = before


@compiled
def first_waiting(e: Any, t: Any) -> int:
    """The request that would be looked at first; NONE where nothing waits."""
    if not e.by_priority:
        return e.wait_head
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
def defer(e: Any, t: Any, r: int) -> None:
    """A waiting request is set aside for its adapter."""
    e.deferred_count += 1 - t.requests[r].deferred
    t.requests[r].deferred = 1


@compiled
def recall(e: Any, t: Any, r: int) -> None:
    """A waiting request is not set aside any more."""
    e.deferred_count -= t.requests[r].deferred
    t.requests[r].deferred = 0


@compiled
def over_loras(e: Any, t: Any, r: int) -> bool:
    """Whether a request's adapter would be one too many in the step being scheduled."""
    adapter = t.requests[r].adapter
    if e.loras == 0 or adapter < 0 or e.adapters_in_step < e.loras:
        return False
    return t.adapters[adapter] != e.step


@compiled
def use_adapter(e: Any, t: Any, r: int) -> None:
    """A request's adapter is in use in the step being scheduled."""
    adapter = t.requests[r].adapter
    if e.loras > 0 and adapter >= 0 and t.adapters[adapter] != e.step:
        t.adapters[adapter] = e.step
        e.adapters_in_step += 1


@compiled
def run(e: Any, t: Any, r: int) -> None:
    """Put a request at the end of the running list."""
    requests = t.requests
    tail = e.run_tail
    requests[r].run_next = NONE
    requests[r].run_previous = tail
    if tail == NONE:
        e.run_head = r
    else:
        requests[tail].run_next = r
    e.run_tail = r
    e.run_count += 1


@compiled
def stop_running(e: Any, t: Any, r: int) -> None:
    """Take a request out of the running list."""
    requests = t.requests
    before = requests[r].run_previous
    after = requests[r].run_next
    if before == NONE:
        e.run_head = after
    else:
        requests[before].run_next = after
    if after == NONE:
        e.run_tail = before
    else:
        requests[after].run_previous = before
    e.run_count -= 1

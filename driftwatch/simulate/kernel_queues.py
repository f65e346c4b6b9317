"""The kernel's queues: binary heaps, the waiting queue, the running list.

Every function takes the engine's tables (``kernel_tables.Tables``) and is compiled by Numba or run
as it stands; so no exceptions, no objects, no library calls.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    ADAPTER,
    ARRIVAL,
    BY_PRIORITY,
    DEFERRED,
    DEFERRED_COUNT,
    LORAS,
    NONE,
    PREEMPTED,
    PRIORITY,
    RUN_COUNT,
    RUN_HEAD,
    RUN_NEXT,
    RUN_PREVIOUS,
    RUN_TAIL,
    STATUS,
    WAIT_COUNT,
    WAIT_HEAD,
    WAIT_NEXT,
    WAIT_PREVIOUS,
    WAIT_SIZE,
    WAIT_TAIL,
    WAITING,
)


def heap_push(first: Any, second: Any, ids: Any, size: int, a: float, b: float, i: int) -> None:
    """Add (a, b, i) to a binary heap that holds ``size`` entries, least first."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if first[up] < a or (
            first[up] == a and (second[up] < b or (second[up] == b and ids[up] < i))
        ):
            break
        first[at] = first[up]
        second[at] = second[up]
        ids[at] = ids[up]
        at = up
    first[at] = a
    second[at] = b
    ids[at] = i


def heap_drop(first: Any, second: Any, ids: Any, size: int) -> None:
    """Take the least entry out of a heap that holds ``size`` entries."""
    last = size - 1
    a = first[last]
    b = second[last]
    i = ids[last]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= last:
            break
        other = down + 1
        if other < last and (
            first[other] < first[down]
            or (
                first[other] == first[down]
                and (
                    second[other] < second[down]
                    or (second[other] == second[down] and ids[other] < ids[down])
                )
            )
        ):
            down = other
        if a < first[down] or (
            a == first[down] and (b < second[down] or (b == second[down] and i < ids[down]))
        ):
            break
        first[at] = first[down]
        second[at] = second[down]
        ids[at] = ids[down]
        at = down
    first[at] = a
    second[at] = b
    ids[at] = i


def wait(t: Any, r: int, front: bool) -> None:
    """Put a request into the waiting queue: at its end, or (preempted) at its front."""
    numbers = t.numbers
    numbers[WAIT_COUNT] += 1
    if t.settings[BY_PRIORITY]:
        heap_push(
            t.wait_first,
            t.wait_second,
            t.wait_ids,
            numbers[WAIT_SIZE],
            float(t.integers[PRIORITY][r]),
            t.floats[ARRIVAL][r],
            r,
        )
        numbers[WAIT_SIZE] += 1
        return
    following = t.integers[WAIT_NEXT]
    previous = t.integers[WAIT_PREVIOUS]
    if front:
        head = numbers[WAIT_HEAD]
        previous[r] = NONE
        following[r] = head
        if head == NONE:
            numbers[WAIT_TAIL] = r
        else:
            previous[head] = r
        numbers[WAIT_HEAD] = r
    else:
        tail = numbers[WAIT_TAIL]
        following[r] = NONE
        previous[r] = tail
        if tail == NONE:
            numbers[WAIT_HEAD] = r
        else:
            following[tail] = r
        numbers[WAIT_TAIL] = r


def stop_waiting(t: Any, r: int) -> None:
    """Take a request out of the waiting queue (by priority its heap entry dies where it is)."""
    numbers = t.numbers
    numbers[WAIT_COUNT] -= 1
    if t.integers[DEFERRED][r]:
        t.integers[DEFERRED][r] = 0
        numbers[DEFERRED_COUNT] -= 1
    if t.settings[BY_PRIORITY]:
        return
    following = t.integers[WAIT_NEXT]
    previous = t.integers[WAIT_PREVIOUS]
    before = previous[r]
    after = following[r]
    if before == NONE:
        numbers[WAIT_HEAD] = after
    else:
        following[before] = after
    if after == NONE:
        numbers[WAIT_TAIL] = before
    else:
        previous[after] = before


def first_waiting(t: Any) -> int:
    """The request that would be looked at first; NONE where nothing waits."""
    numbers = t.numbers
    if not t.settings[BY_PRIORITY]:
        return int(numbers[WAIT_HEAD])
    status = t.integers[STATUS]
    while numbers[WAIT_SIZE] > 0:
        r = t.wait_ids[0]
        if status[r] == WAITING or status[r] == PREEMPTED:
            return int(r)
        heap_drop(t.wait_first, t.wait_second, t.wait_ids, numbers[WAIT_SIZE])
        numbers[WAIT_SIZE] -= 1
    return NONE


def drop_first(t: Any) -> None:
    """Take the first entry off the priority heap."""
    heap_drop(t.wait_first, t.wait_second, t.wait_ids, t.numbers[WAIT_SIZE])
    t.numbers[WAIT_SIZE] -= 1


def defer(t: Any, r: int, deferred: int) -> None:
    """Note whether a waiting request is set aside for its adapter."""
    flags = t.integers[DEFERRED]
    if flags[r] != deferred:
        t.numbers[DEFERRED_COUNT] += deferred - flags[r]
        flags[r] = deferred


def over_loras(t: Any, r: int, adapters: int, stamp: int) -> bool:
    """Whether a request's adapter would be one too many in the step."""
    most = t.settings[LORAS]
    adapter = t.integers[ADAPTER][r]
    return bool(most > 0 and adapter >= 0 and adapters >= most and t.adapters[adapter] != stamp)


def run(t: Any, r: int) -> None:
    """Put a request at the end of the running list."""
    numbers = t.numbers
    tail = numbers[RUN_TAIL]
    t.integers[RUN_NEXT][r] = NONE
    t.integers[RUN_PREVIOUS][r] = tail
    if tail == NONE:
        numbers[RUN_HEAD] = r
    else:
        t.integers[RUN_NEXT][tail] = r
    numbers[RUN_TAIL] = r
    numbers[RUN_COUNT] += 1


def stop_running(t: Any, r: int) -> None:
    """Take a request out of the running list."""
    numbers = t.numbers
    before = t.integers[RUN_PREVIOUS][r]
    after = t.integers[RUN_NEXT][r]
    if before == NONE:
        numbers[RUN_HEAD] = after
    else:
        t.integers[RUN_NEXT][before] = after
    if after == NONE:
        numbers[RUN_TAIL] = before
    else:
        t.integers[RUN_PREVIOUS][after] = before
    numbers[RUN_COUNT] -= 1

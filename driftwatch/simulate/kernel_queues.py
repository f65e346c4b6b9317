"""The kernel's queues: binary heaps, the waiting queue, the running list.

Every function takes the engine's tables (``kernel_tables.Tables``) and is compiled by Numba or run
as it stands; so no exceptions, no objects, no library calls.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    ADAPTER,
    ADAPTERS,
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
    WAIT_FIRST,
    WAIT_HEAD,
    WAIT_IDS,
    WAIT_NEXT,
    WAIT_PREVIOUS,
    WAIT_SECOND,
    WAIT_SIZE,
    WAIT_TAIL,
    WAITING,
)


def heap_push(
    m: Any, f: Any, first: int, second: int, ids: int, size: int, a: float, b: float, i: int
) -> None:
    """Add (a, b, i) to a binary heap that holds ``size`` entries, least first."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if f[first + up] < a or (
            f[first + up] == a and (f[second + up] < b or (f[second + up] == b and m[ids + up] < i))
        ):
            break
        f[first + at] = f[first + up]
        f[second + at] = f[second + up]
        m[ids + at] = m[ids + up]
        at = up
    f[first + at] = a
    f[second + at] = b
    m[ids + at] = i


def heap_drop(m: Any, f: Any, first: int, second: int, ids: int, size: int) -> None:
    """Take the least entry out of a heap that holds ``size`` entries."""
    last = size - 1
    a = f[first + last]
    b = f[second + last]
    i = m[ids + last]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= last:
            break
        other = down + 1
        if other < last and (
            f[first + other] < f[first + down]
            or (
                f[first + other] == f[first + down]
                and (
                    f[second + other] < f[second + down]
                    or (f[second + other] == f[second + down] and m[ids + other] < m[ids + down])
                )
            )
        ):
            down = other
        if a < f[first + down] or (
            a == f[first + down]
            and (b < f[second + down] or (b == f[second + down] and i < m[ids + down]))
        ):
            break
        f[first + at] = f[first + down]
        f[second + at] = f[second + down]
        m[ids + at] = m[ids + down]
        at = down
    f[first + at] = a
    f[second + at] = b
    m[ids + at] = i


def wait(m: Any, f: Any, r: int, front: bool) -> None:
    """Put a request into the waiting queue: at its end, or (preempted) at its front."""
    m[WAIT_COUNT] += 1
    if m[BY_PRIORITY]:
        heap_push(
            m,
            f,
            m[WAIT_FIRST],
            m[WAIT_SECOND],
            m[WAIT_IDS],
            m[WAIT_SIZE],
            float(m[m[PRIORITY] + r]),
            f[m[ARRIVAL] + r],
            r,
        )
        m[WAIT_SIZE] += 1
        return
    following = m[WAIT_NEXT]
    previous = m[WAIT_PREVIOUS]
    if front:
        head = m[WAIT_HEAD]
        m[previous + r] = NONE
        m[following + r] = head
        if head == NONE:
            m[WAIT_TAIL] = r
        else:
            m[previous + head] = r
        m[WAIT_HEAD] = r
    else:
        tail = m[WAIT_TAIL]
        m[following + r] = NONE
        m[previous + r] = tail
        if tail == NONE:
            m[WAIT_HEAD] = r
        else:
            m[following + tail] = r
        m[WAIT_TAIL] = r


def stop_waiting(m: Any, f: Any, r: int) -> None:
    """Take a request out of the waiting queue (by priority its heap entry dies where it is)."""
    m[WAIT_COUNT] -= 1
    if m[m[DEFERRED] + r]:
        m[m[DEFERRED] + r] = 0
        m[DEFERRED_COUNT] -= 1
    if m[BY_PRIORITY]:
        return
    following = m[WAIT_NEXT]
    previous = m[WAIT_PREVIOUS]
    before = m[previous + r]
    after = m[following + r]
    if before == NONE:
        m[WAIT_HEAD] = after
    else:
        m[following + before] = after
    if after == NONE:
        m[WAIT_TAIL] = before
    else:
        m[previous + after] = before


def first_waiting(m: Any, f: Any) -> int:
    """The request that would be looked at first; NONE where nothing waits."""
    if not m[BY_PRIORITY]:
        return int(m[WAIT_HEAD])
    while m[WAIT_SIZE] > 0:
        r = m[m[WAIT_IDS]]
        if m[m[STATUS] + r] == WAITING or m[m[STATUS] + r] == PREEMPTED:
            return int(r)
        heap_drop(m, f, m[WAIT_FIRST], m[WAIT_SECOND], m[WAIT_IDS], m[WAIT_SIZE])
        m[WAIT_SIZE] -= 1
    return NONE


def drop_first(m: Any, f: Any) -> None:
    """Take the first entry off the priority heap."""
    heap_drop(m, f, m[WAIT_FIRST], m[WAIT_SECOND], m[WAIT_IDS], m[WAIT_SIZE])
    m[WAIT_SIZE] -= 1


def defer(m: Any, f: Any, r: int, deferred: int) -> None:
    """Note whether a waiting request is set aside for its adapter."""
    flags = m[DEFERRED]
    if m[flags + r] != deferred:
        m[DEFERRED_COUNT] += deferred - m[flags + r]
        m[flags + r] = deferred


def over_loras(m: Any, f: Any, r: int, adapters: int, stamp: int) -> bool:
    """Whether a request's adapter would be one too many in the step."""
    most = m[LORAS]
    adapter = m[m[ADAPTER] + r]
    return bool(
        most > 0 and adapter >= 0 and adapters >= most and m[m[ADAPTERS] + adapter] != stamp
    )


def run(m: Any, f: Any, r: int) -> None:
    """Put a request at the end of the running list."""
    tail = m[RUN_TAIL]
    m[m[RUN_NEXT] + r] = NONE
    m[m[RUN_PREVIOUS] + r] = tail
    if tail == NONE:
        m[RUN_HEAD] = r
    else:
        m[m[RUN_NEXT] + tail] = r
    m[RUN_TAIL] = r
    m[RUN_COUNT] += 1


def stop_running(m: Any, f: Any, r: int) -> None:
    """Take a request out of the running list."""
    before = m[m[RUN_PREVIOUS] + r]
    after = m[m[RUN_NEXT] + r]
    if before == NONE:
        m[RUN_HEAD] = after
    else:
        m[m[RUN_NEXT] + before] = after
    if after == NONE:
        m[RUN_TAIL] = before
    else:
        m[m[RUN_PREVIOUS] + after] = before
    m[RUN_COUNT] -= 1

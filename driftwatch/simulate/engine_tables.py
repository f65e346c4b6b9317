"""Requests into the kernel's tables, and ended ones out of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate import kernel_layout as layout
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.kernel_tables import Tables, integers, with_blocks
from driftwatch.simulate.requests import Requests


def cache_mode(requests: Requests, c: SchedulerConfiguration, identify_blocks: bool) -> int:
    """How blocks are modelled: counted, known one by one, or endless."""
    if not c.enable_prefix_caching:
        return layout.COUNT_BLOCKS
    if c.num_gpu_blocks is None:
        return layout.ENDLESS_BLOCKS
    given = requests.cached_tokens > requests.shared_prefix_tokens * (requests.prefix_group >= 0)
    if not identify_blocks or given.any():
        return layout.COUNT_BLOCKS
    return layout.IDENTIFY_BLOCKS


def offer_tables(
    t: Tables,
    requests: Requests,
    c: SchedulerConfiguration,
    *,
    groups: dict[int, int],
    first_index: int,
    concurrency: int | None,
    identify_blocks: bool,
) -> Tables:
    """Tables with more requests at their end; ``groups`` numbers the prefix groups as they come."""
    mode = cache_mode(requests, c, identify_blocks)
    if first_index == 0:
        t.head[layout.CACHE_MODE] = mode
        if mode == layout.IDENTIFY_BLOCKS:
            t = with_blocks(t, int(t.head[layout.TOTAL_BLOCKS]), c.max_num_seqs + 1)
    elif mode != t.head[layout.CACHE_MODE]:
        raise ValueError("cached_tokens are given in one offer and looked up in another")

    count = len(requests)
    before = t.integers.shape[1]
    added = np.zeros((layout.REQUEST_INTEGERS, count), dtype=np.int64)
    target = requests.prompt_tokens + requests.generation_tokens
    if c.max_model_len is not None:
        target = np.minimum(target, c.max_model_len)
    seen, which = np.unique(requests.prefix_group, return_inverse=True)
    for group in seen[seen >= 0].tolist():
        groups.setdefault(group, len(groups))
    owners = np.array([-1 - groups.get(g, -1) for g in seen.tolist()], np.int64)[which]
    grouped = requests.prefix_group >= 0
    shared = np.where(grouped, np.minimum(requests.shared_prefix_tokens, requests.prompt_tokens), 0)
    added[layout.PROMPT] = requests.prompt_tokens
    added[layout.TARGET] = target
    added[layout.PRIORITY] = requests.priority
    added[layout.OWNER] = owners
    added[layout.SERIAL] = np.arange(first_index, first_index + count)
    added[layout.SHARED_BLOCKS] = shared // c.block_size
    if c.enable_prefix_caching and mode != layout.IDENTIFY_BLOCKS:
        added[layout.GIVEN] = requests.cached_tokens
    else:
        added[layout.GIVEN] = layout.NONE
    added[layout.ADAPTER] = requests.adapter
    added[layout.CANCEL_STATUS] = layout.CANCELLED
    added[layout.CACHED] = layout.NONE
    floats = np.empty((layout.REQUEST_FLOATS, count))
    floats[layout.FIRST_SCHEDULED - layout.FIRST_FLOAT :] = layout.NEVER
    floats[layout.ARRIVAL - layout.FIRST_FLOAT] = requests.arrival_seconds
    floats[layout.CANCEL - layout.FIRST_FLOAT] = requests.cancel_seconds

    own = count if concurrency is None else max(0, min(count, concurrency - first_index))
    if first_index == 0 or concurrency is None:
        t.head[layout.NEXT_RELEASED] = t.head[layout.RELEASED] = before + own
        t.head[layout.CONCURRENCY] = before + own
    # Until one ends, nobody knows when these arrive; until then CANCEL holds their patience.
    floats[layout.CANCEL - layout.FIRST_FLOAT][own:] -= requests.arrival_seconds[own:]
    floats[layout.ARRIVAL - layout.FIRST_FLOAT][own:] = layout.NEVER

    total = before + count
    t = t._replace(
        integers=np.concatenate([t.integers, added], axis=1) if before else added,
        floats=np.concatenate([t.floats, floats], axis=1) if before else floats,
        group_blocks=grown(t.group_blocks, len(groups)),
        cancel_first=grown(t.cancel_first, total + 1),
        cancel_second=grown(t.cancel_second, total + 1),
        cancel_ids=grown(t.cancel_ids, total + 1),
    )
    if t.head[layout.BY_PRIORITY]:
        t = t._replace(
            wait_first=grown(t.wait_first, total + 1),
            wait_second=grown(t.wait_second, total + 1),
            wait_ids=grown(t.wait_ids, total + 1),
        )
    most = int(requests.adapter.max(initial=-1)) + 2
    if most > len(t.adapters):
        t = t._replace(adapters=integers(most, fill=layout.NONE))
        t.adapters[-1] = 0
    return with_table(t, c)


def grown(values: Any, size: int) -> Any:
    """The array with room for at least so many entries."""
    if len(values) >= size:
        return values
    return np.concatenate([values, np.zeros(size - len(values), dtype=values.dtype)])


def with_table(t: Tables, c: SchedulerConfiguration) -> Tables:
    """Tables whose block table is wide enough for every request."""
    if t.head[layout.CACHE_MODE] != layout.IDENTIFY_BLOCKS:
        return t
    width = int(t.integers[layout.TARGET].max(initial=1)) // c.block_size + 2
    old = int(t.head[layout.TABLE_WIDTH])
    if width <= old:
        return t
    slots = c.max_num_seqs + 1
    table = integers(slots, width)
    if old:
        table[:, :old] = t.table.reshape(slots, old)
    t.head[layout.TABLE_WIDTH] = width
    return t._replace(table=table.reshape(-1), hits=integers(width))


def compact(t: Tables, ended: Any) -> Tables:
    """Tables without the ended requests; everything that points at a request is renumbered."""
    if not ended.any():
        return t
    kept = ~ended
    place = np.cumsum(kept) - 1
    renumber = np.append(np.where(kept, place, layout.NONE), layout.NONE)  # NONE stays NONE
    rows = t.integers[:, kept]
    for pointer in (
        layout.RUN_NEXT,
        layout.RUN_PREVIOUS,
        layout.WAIT_NEXT,
        layout.WAIT_PREVIOUS,
        layout.CLASS_NEXT,
        layout.CLASS_PREVIOUS,
    ):
        stale = rows[pointer] >= len(ended)
        rows[pointer] = renumber[np.where(stale, layout.NONE, rows[pointer])]
    numbers = t.head
    for at in (layout.RUN_HEAD, layout.RUN_TAIL, layout.WAIT_HEAD, layout.WAIT_TAIL):
        numbers[at] = renumber[numbers[at]]
    unsent = np.append(np.cumsum(kept) - kept, np.count_nonzero(kept))  # kept ones before each
    for at in (layout.NEXT_DUE, layout.NEXT_RELEASED, layout.RELEASED):
        numbers[at] = unsent[numbers[at]]
    t.head[layout.CONCURRENCY] = unsent[t.head[layout.CONCURRENCY]]
    t.class_heads[:] = renumber[t.class_heads]
    count = int(numbers[layout.EXPLICITS])
    t.explicit_list[:count] = renumber[t.explicit_list[:count]]
    for record in range(2):
        for members, size in ((t.tokens, layout.S_TOKENS), (t.ends, layout.S_ENDS)):
            used = int(t.head[layout.RECORDS + record * layout.STEP_NUMBERS + size])
            left = renumber[members[record][:used]]
            left = left[left != layout.NONE]
            members[record][: len(left)] = left
            t.head[layout.RECORDS + record * layout.STEP_NUMBERS + size] = len(left)
    shrink_heap(t, renumber, "finish", layout.FINISH_SIZE)
    shrink_heap(t, renumber, "cancel", layout.CANCEL_SIZE)
    shrink_heap(t, renumber, "wait", layout.WAIT_SIZE)
    return t._replace(integers=np.ascontiguousarray(rows), floats=t.floats[:, kept].copy())


def shrink_heap(t: Tables, renumber: Any, name: str, size: int) -> None:
    """Drop the entries of requests that are gone; sorted entries are a heap."""
    used = int(t.head[size])
    first, second, ids = (getattr(t, f"{name}_{part}") for part in ("first", "second", "ids"))
    entries = (first[:used].copy(), second[:used].copy(), renumber[ids[:used]])
    alive = entries[2] != layout.NONE
    kept = [part[alive] for part in entries]
    order = np.lexsort((kept[2], kept[1], kept[0]))
    count = len(order)
    for target, part in zip((first, second, ids), kept, strict=True):
        target[:count] = part[order]
    t.head[size] = count

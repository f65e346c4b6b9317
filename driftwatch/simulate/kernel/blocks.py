"""KV blocks: the number of free ones and, with prefix caching, the text of each.

As in vLLM's ``v1/core/block_pool.py``, a free block with a text can be hit until it is handed out
(oldest first); blocks without a text are handed out before those. A text's key is (owner, index of
the block). The owner is a prefix group while the block lies within its common text, else the
request itself. Several blocks may have one text; a look-up finds the oldest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.lists import insert, remove
from driftwatch.simulate.kernel.tables import IDENTIFY_BLOCKS, NO_OWNER, NONE


@compiled
def blocks_of(tokens: int, block_size: int) -> int:
    """Blocks for this many tokens."""
    return (tokens + block_size - 1) // block_size


@compiled
def bucket_of(t: Any, owner: int, index: int) -> int:
    """Place of a text in the hash table."""
    return (owner * 40503 + index * 2654435 + (owner >> 16)) & (len(t.buckets) - 1)


@compiled
def owner_of(t: Any, r: int, index: int) -> int:
    """Owner of the text of a request's block."""
    request = t.requests[r]
    return request.owner if index < request.shared_blocks else request.serial


@compiled
def find_block(t: Any, owner: int, index: int) -> int:
    """The oldest block with this text; NONE = there is none."""
    oldest = NONE
    at = t.buckets[bucket_of(t, owner, index)]
    while at != NONE:
        block = t.blocks[at]
        if block.owner == owner and block.index == index:
            oldest = at  # newer ones come first in the chain
        at = block.chain
    return oldest


@compiled
def forget_block(t: Any, number: int) -> None:
    """Remove a block's text."""
    block = t.blocks[number]
    bucket = bucket_of(t, block.owner, block.index)
    at = t.buckets[bucket]
    if at == number:
        t.buckets[bucket] = block.chain
    else:
        while t.blocks[at].chain != number:
            at = t.blocks[at].chain
        t.blocks[at].chain = block.chain
    block.owner = NO_OWNER


@compiled
def pop_block(e: Any, t: Any) -> int:
    """Hand out a free block."""
    e.free -= 1
    if e.unkeyed > 0:
        e.unkeyed -= 1
        number = t.unkeyed[e.unkeyed]
    else:
        number = t.free_queue[NONE].next
        remove(t.free_queue, number)
        forget_block(t, number)
        t.counters[0].evicted_blocks += 1
    t.blocks[number].references = 1
    return number


@compiled
def grow(e: Any, t: Any, r: int, first: int, wanted: int) -> None:
    """Hand out blocks ``first`` up to ``wanted`` of a running request."""
    if e.cache_mode != IDENTIFY_BLOCKS:
        e.free -= wanted - first
        return
    slot = t.requests[r].slot
    for index in range(first, wanted):
        t.table[slot, index] = pop_block(e, t)


@compiled
def remember(e: Any, t: Any, r: int, tokens: int) -> None:
    """Let others hit the full blocks of a request's first ``tokens`` tokens."""
    request = t.requests[r]
    full = tokens // e.block_size
    if e.cache_mode != IDENTIFY_BLOCKS:
        return
    for index in range(request.keyed, full):
        number = t.table[request.slot, index]
        block = t.blocks[number]
        block.owner = owner_of(t, r, index)
        block.index = index
        bucket = bucket_of(t, block.owner, index)
        block.chain = t.buckets[bucket]
        t.buckets[bucket] = number
        request.keyed = index + 1


@compiled
def release(e: Any, t: Any, r: int, count: int) -> None:
    """Free a request's blocks, its last one first; those with a text are reused last."""
    if e.cache_mode != IDENTIFY_BLOCKS:
        e.free += count
        return
    request = t.requests[r]
    for back in range(count):
        number = t.table[request.slot, count - 1 - back]
        block = t.blocks[number]
        block.references -= 1
        if block.references > 0:
            continue
        e.free += 1
        if block.owner == NO_OWNER:
            t.unkeyed[e.unkeyed] = number
            e.unkeyed += 1
        else:
            insert(t.free_queue, number, np.int64(NONE))
    request.keyed = 0
    t.slots[e.free_slots] = request.slot
    e.free_slots += 1


@compiled
def look_up(e: Any, t: Any, r: int, tokens: int) -> tuple[int, int]:
    """Prefix hit of a waiting request: its blocks, and how many of them are free now."""
    request = t.requests[r]
    most = (tokens - 1) // e.block_size
    cached = request.given
    if cached >= 0:
        most = 0 if request.preemptions > 0 else min(most, cached // e.block_size)
    if e.cache_mode != IDENTIFY_BLOCKS:
        if cached >= 0:
            return most, most
        return 0, 0
    hits = np.int64(0)
    free = 0
    while hits < most:
        number = find_block(t, owner_of(t, r, hits), hits)
        if number == NONE:
            break
        t.hits[hits] = number
        if t.blocks[number].references == 0:
            free += 1
        hits += 1
    return hits, free


@compiled
def take_hits(e: Any, t: Any, r: int, hits: int, free: int) -> None:
    """Give an admitted request the blocks that ``look_up`` found."""
    e.free -= free
    if e.cache_mode != IDENTIFY_BLOCKS:
        return
    request = t.requests[r]
    e.free_slots -= 1
    request.slot = t.slots[e.free_slots]
    for index in range(hits):
        number = t.hits[index]
        if t.blocks[number].references == 0:
            remove(t.free_queue, number)
        t.blocks[number].references += 1
        t.table[request.slot, index] = number
    request.keyed = hits

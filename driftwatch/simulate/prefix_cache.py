"""KV blocks: how many are free and, with prefix caching, which text each one holds.

As vLLM's ``v1/core/block_pool.py``: a free block that holds a known text can be found again until
it is handed out (oldest first); blocks without a known text are handed out before those. A text is
known by (owner, index of the block): a prefix group while the block lies within its common text,
else the request itself. Copies of one text exist side by side; the oldest is found.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    B_CHAIN,
    B_INDEX,
    B_NEXT,
    B_OWNER,
    B_PREVIOUS,
    B_REFERENCES,
    BLOCK_SIZE,
    CACHE_MODE,
    ENDLESS_BLOCKS,
    EVICTED,
    FREE,
    FREE_SLOTS,
    GIVEN,
    IDENTIFY_BLOCKS,
    KEYED,
    NO_OWNER,
    NONE,
    OWNER,
    PREEMPTED_TIMES,
    SERIAL,
    SHARED_BLOCKS,
    SLOT,
    TABLE_WIDTH,
    TOTAL_BLOCKS,
    UNKEYED,
)


def blocks_of(tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + block_size - 1) // block_size


def bucket_of(t: Any, owner: int, index: int) -> int:
    """Place of a text in the hash table (its size is a power of two)."""
    return (owner * 40503 + index * 2654435 + (owner >> 16)) & (len(t.buckets) - 1)


def owner_of(t: Any, r: int, index: int) -> int:
    """Whose text a request's block is."""
    if index < t.integers[SHARED_BLOCKS][r]:
        return int(t.integers[OWNER][r])
    return int(t.integers[SERIAL][r])


def find_block(t: Any, owner: int, index: int) -> int:
    """The oldest block with this text; NONE."""
    chain = t.blocks[B_CHAIN]
    owners = t.blocks[B_OWNER]
    indices = t.blocks[B_INDEX]
    found = NONE
    block = t.buckets[bucket_of(t, owner, index)]
    while block != NONE:
        if owners[block] == owner and indices[block] == index:
            found = block  # newer ones come first in the chain
        block = chain[block]
    return int(found)


def forget_block(t: Any, block: int) -> None:
    """A block's text is overwritten."""
    chain = t.blocks[B_CHAIN]
    place = bucket_of(t, t.blocks[B_OWNER][block], t.blocks[B_INDEX][block])
    at = t.buckets[place]
    if at == block:
        t.buckets[place] = chain[block]
    else:
        while chain[at] != block:
            at = chain[at]
        chain[at] = chain[block]
    t.blocks[B_OWNER][block] = NO_OWNER


def unlink_block(t: Any, block: int) -> None:
    """Take a block with a text off the free queue."""
    following = t.blocks[B_NEXT]
    previous = t.blocks[B_PREVIOUS]
    following[previous[block]] = following[block]
    previous[following[block]] = previous[block]


def pop_block(t: Any) -> int:
    """Hand out a free block."""
    numbers = t.numbers
    numbers[FREE] -= 1
    if numbers[UNKEYED] > 0:
        numbers[UNKEYED] -= 1
        block = t.unkeyed[numbers[UNKEYED]]
    else:
        block = t.blocks[B_NEXT][t.settings[TOTAL_BLOCKS]]
        unlink_block(t, block)
        forget_block(t, block)
        numbers[EVICTED] += 1
    t.blocks[B_REFERENCES][block] = 1
    return int(block)


def grow(t: Any, r: int, held: int, wanted: int) -> None:
    """Blocks held..wanted of a running request are handed out."""
    if t.settings[CACHE_MODE] != IDENTIFY_BLOCKS:
        t.numbers[FREE] -= wanted - held
        return
    row = t.integers[SLOT][r] * t.settings[TABLE_WIDTH]
    for index in range(held, wanted):
        t.table[row + index] = pop_block(t)


def remember(t: Any, r: int, tokens: int) -> None:
    """The full blocks among a request's first ``tokens`` tokens can be found from now on."""
    mode = t.settings[CACHE_MODE]
    full = tokens // t.settings[BLOCK_SIZE]
    keyed = t.integers[KEYED]
    if mode == ENDLESS_BLOCKS:
        shared = min(full, t.integers[SHARED_BLOCKS][r])
        if shared > 0:
            group = -1 - t.integers[OWNER][r]
            t.group_blocks[group] = max(t.group_blocks[group], shared)
        return
    if mode != IDENTIFY_BLOCKS:
        return
    row = t.integers[SLOT][r] * t.settings[TABLE_WIDTH]
    for index in range(keyed[r], full):
        block = t.table[row + index]
        owner = owner_of(t, r, index)
        t.blocks[B_OWNER][block] = owner
        t.blocks[B_INDEX][block] = index
        place = bucket_of(t, owner, index)
        t.blocks[B_CHAIN][block] = t.buckets[place]
        t.buckets[place] = block
        keyed[r] = index + 1


def release(t: Any, r: int, held: int) -> None:
    """A request's blocks go back, its last one first; known texts are overwritten last."""
    numbers = t.numbers
    if t.settings[CACHE_MODE] != IDENTIFY_BLOCKS:
        numbers[FREE] += held
        return
    slot = t.integers[SLOT][r]
    row = slot * t.settings[TABLE_WIDTH]
    references = t.blocks[B_REFERENCES]
    following = t.blocks[B_NEXT]
    previous = t.blocks[B_PREVIOUS]
    end = t.settings[TOTAL_BLOCKS]
    for back in range(held):
        block = t.table[row + held - 1 - back]
        references[block] -= 1
        if references[block] > 0:
            continue
        numbers[FREE] += 1
        if t.blocks[B_OWNER][block] == NO_OWNER:
            t.unkeyed[numbers[UNKEYED]] = block
            numbers[UNKEYED] += 1
        else:
            last = previous[end]
            following[last] = block
            previous[block] = last
            following[block] = end
            previous[end] = block
    t.integers[KEYED][r] = 0
    t.slots[numbers[FREE_SLOTS]] = slot
    numbers[FREE_SLOTS] += 1


def look_up(t: Any, r: int, tokens: int) -> tuple[int, int]:
    """Prefix hit of a waiting request: (blocks found, how many of them are free now)."""
    mode = t.settings[CACHE_MODE]
    most = (tokens - 1) // t.settings[BLOCK_SIZE]
    given = t.integers[GIVEN][r]
    if given >= 0:
        again = t.integers[PREEMPTED_TIMES][r] > 0
        most = 0 if again else min(most, given // t.settings[BLOCK_SIZE])
    if mode == ENDLESS_BLOCKS:
        if given >= 0:
            return int(most), 0
        shared = t.integers[SHARED_BLOCKS][r]
        if shared == 0:
            return 0, 0
        return int(min(most, shared, t.group_blocks[-1 - t.integers[OWNER][r]])), 0
    if mode != IDENTIFY_BLOCKS:
        if given >= 0:
            return int(most), int(most)
        return 0, 0
    hits = 0
    free = 0
    while hits < most:
        block = find_block(t, owner_of(t, r, hits), hits)
        if block == NONE:
            break
        t.hits[hits] = block
        if t.blocks[B_REFERENCES][block] == 0:
            free += 1
        hits += 1
    return hits, free


def take_hits(t: Any, r: int, hits: int, free: int) -> None:
    """A request admitted with a prefix hit holds the blocks that ``look_up`` found."""
    numbers = t.numbers
    numbers[FREE] -= free
    if t.settings[CACHE_MODE] != IDENTIFY_BLOCKS:
        return
    numbers[FREE_SLOTS] -= 1
    slot = t.slots[numbers[FREE_SLOTS]]
    t.integers[SLOT][r] = slot
    row = slot * t.settings[TABLE_WIDTH]
    references = t.blocks[B_REFERENCES]
    for index in range(hits):
        block = t.hits[index]
        if references[block] == 0:
            unlink_block(t, block)
        references[block] += 1
        t.table[row + index] = block
    t.integers[KEYED][r] = hits

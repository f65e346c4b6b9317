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
    BUCKET_COUNT,
    BUCKETS,
    CACHE_MODE,
    ENDLESS_BLOCKS,
    EVICTED,
    FREE,
    FREE_SLOTS,
    GIVEN,
    GROUP_BLOCKS,
    HITS,
    IDENTIFY_BLOCKS,
    KEYED,
    NO_OWNER,
    NONE,
    OWNER,
    PREEMPTED_TIMES,
    SERIAL,
    SHARED_BLOCKS,
    SLOT,
    SLOTS,
    TABLE,
    TABLE_WIDTH,
    TOTAL_BLOCKS,
    UNKEYED,
    UNKEYED_BLOCKS,
)


def blocks_of(tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + block_size - 1) // block_size


def bucket_of(m: Any, f: Any, owner: int, index: int) -> int:
    """Place of a text in the hash table (its size is a power of two)."""
    return int((owner * 40503 + index * 2654435 + (owner >> 16)) & (m[BUCKET_COUNT] - 1))


def owner_of(m: Any, f: Any, r: int, index: int) -> int:
    """Whose text a request's block is."""
    if index < m[m[SHARED_BLOCKS] + r]:
        return int(m[m[OWNER] + r])
    return int(m[m[SERIAL] + r])


def find_block(m: Any, f: Any, owner: int, index: int) -> int:
    """The oldest block with this text; NONE."""
    chain = m[B_CHAIN]
    owners = m[B_OWNER]
    indices = m[B_INDEX]
    found = NONE
    block = m[m[BUCKETS] + bucket_of(m, f, owner, index)]
    while block != NONE:
        if m[owners + block] == owner and m[indices + block] == index:
            found = block  # newer ones come first in the chain
        block = m[chain + block]
    return int(found)


def forget_block(m: Any, f: Any, block: int) -> None:
    """A block's text is overwritten."""
    chain = m[B_CHAIN]
    place = bucket_of(m, f, m[m[B_OWNER] + block], m[m[B_INDEX] + block])
    at = m[m[BUCKETS] + place]
    if at == block:
        m[m[BUCKETS] + place] = m[chain + block]
    else:
        while m[chain + at] != block:
            at = m[chain + at]
        m[chain + at] = m[chain + block]
    m[m[B_OWNER] + block] = NO_OWNER


def unlink_block(m: Any, f: Any, block: int) -> None:
    """Take a block with a text off the free queue."""
    following = m[B_NEXT]
    previous = m[B_PREVIOUS]
    m[following + m[previous + block]] = m[following + block]
    m[previous + m[following + block]] = m[previous + block]


def pop_block(m: Any, f: Any) -> int:
    """Hand out a free block."""
    m[FREE] -= 1
    if m[UNKEYED] > 0:
        m[UNKEYED] -= 1
        block = m[m[UNKEYED_BLOCKS] + m[UNKEYED]]
    else:
        block = m[m[B_NEXT] + m[TOTAL_BLOCKS]]
        unlink_block(m, f, block)
        forget_block(m, f, block)
        m[EVICTED] += 1
    m[m[B_REFERENCES] + block] = 1
    return int(block)


def grow(m: Any, f: Any, r: int, held: int, wanted: int) -> None:
    """Blocks held..wanted of a running request are handed out."""
    if m[CACHE_MODE] != IDENTIFY_BLOCKS:
        m[FREE] -= wanted - held
        return
    row = m[m[SLOT] + r] * m[TABLE_WIDTH]
    for index in range(held, wanted):
        m[m[TABLE] + row + index] = pop_block(m, f)


def remember(m: Any, f: Any, r: int, tokens: int) -> None:
    """The full blocks among a request's first ``tokens`` tokens can be found from now on."""
    mode = m[CACHE_MODE]
    full = tokens // m[BLOCK_SIZE]
    keyed = m[KEYED]
    if mode == ENDLESS_BLOCKS:
        shared = min(full, m[m[SHARED_BLOCKS] + r])
        if shared > 0:
            group = -1 - m[m[OWNER] + r]
            m[m[GROUP_BLOCKS] + group] = max(m[m[GROUP_BLOCKS] + group], shared)
        return
    if mode != IDENTIFY_BLOCKS:
        return
    row = m[m[SLOT] + r] * m[TABLE_WIDTH]
    for index in range(m[keyed + r], full):
        block = m[m[TABLE] + row + index]
        owner = owner_of(m, f, r, index)
        m[m[B_OWNER] + block] = owner
        m[m[B_INDEX] + block] = index
        place = bucket_of(m, f, owner, index)
        m[m[B_CHAIN] + block] = m[m[BUCKETS] + place]
        m[m[BUCKETS] + place] = block
        m[keyed + r] = index + 1


def release(m: Any, f: Any, r: int, held: int) -> None:
    """A request's blocks go back, its last one first; known texts are overwritten last."""
    if m[CACHE_MODE] != IDENTIFY_BLOCKS:
        m[FREE] += held
        return
    slot = m[m[SLOT] + r]
    row = slot * m[TABLE_WIDTH]
    references = m[B_REFERENCES]
    following = m[B_NEXT]
    previous = m[B_PREVIOUS]
    end = m[TOTAL_BLOCKS]
    for back in range(held):
        block = m[m[TABLE] + row + held - 1 - back]
        m[references + block] -= 1
        if m[references + block] > 0:
            continue
        m[FREE] += 1
        if m[m[B_OWNER] + block] == NO_OWNER:
            m[m[UNKEYED_BLOCKS] + m[UNKEYED]] = block
            m[UNKEYED] += 1
        else:
            last = m[previous + end]
            m[following + last] = block
            m[previous + block] = last
            m[following + block] = end
            m[previous + end] = block
    m[m[KEYED] + r] = 0
    m[m[SLOTS] + m[FREE_SLOTS]] = slot
    m[FREE_SLOTS] += 1


def look_up(m: Any, f: Any, r: int, tokens: int) -> tuple[int, int]:
    """Prefix hit of a waiting request: (blocks found, how many of them are free now)."""
    mode = m[CACHE_MODE]
    most = (tokens - 1) // m[BLOCK_SIZE]
    given = m[m[GIVEN] + r]
    if given >= 0:
        again = m[m[PREEMPTED_TIMES] + r] > 0
        most = 0 if again else min(most, given // m[BLOCK_SIZE])
    if mode == ENDLESS_BLOCKS:
        if given >= 0:
            return int(most), 0
        shared = m[m[SHARED_BLOCKS] + r]
        if shared == 0:
            return 0, 0
        return int(min(most, shared, m[m[GROUP_BLOCKS] - 1 - m[m[OWNER] + r]])), 0
    if mode != IDENTIFY_BLOCKS:
        if given >= 0:
            return int(most), int(most)
        return 0, 0
    hits = 0
    free = 0
    while hits < most:
        block = find_block(m, f, owner_of(m, f, r, hits), hits)
        if block == NONE:
            break
        m[m[HITS] + hits] = block
        if m[m[B_REFERENCES] + block] == 0:
            free += 1
        hits += 1
    return hits, free


def take_hits(m: Any, f: Any, r: int, hits: int, free: int) -> None:
    """A request admitted with a prefix hit holds the blocks that ``look_up`` found."""
    m[FREE] -= free
    if m[CACHE_MODE] != IDENTIFY_BLOCKS:
        return
    m[FREE_SLOTS] -= 1
    slot = m[m[SLOTS] + m[FREE_SLOTS]]
    m[m[SLOT] + r] = slot
    row = slot * m[TABLE_WIDTH]
    references = m[B_REFERENCES]
    for index in range(hits):
        block = m[m[HITS] + index]
        if m[references + block] == 0:
            unlink_block(m, f, block)
        m[references + block] += 1
        m[m[TABLE] + row + index] = block
    m[m[KEYED] + r] = hits

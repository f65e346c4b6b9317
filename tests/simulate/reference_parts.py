"""What the plain scheduler of ``reference`` works on: requests, steps, and vLLM's block pool."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

WAITING, RUNNING, PREEMPTED = "waiting", "running", "preempted"
FINISHED, REJECTED, CANCELLED, TIMED_OUT = "finished", "rejected", "cancelled", "timed_out"


class NoProgress(Exception):
    """Requests wait that can never be admitted."""


@dataclass(eq=False)
class Block:
    ref_count: int = 0
    key: tuple[str, int, int] | None = None


class BlockPool:
    """Free blocks in the order of their reuse: without a key first, then the least recent key."""

    def __init__(self, count: int) -> None:
        self.free: OrderedDict[Block, None] = OrderedDict((Block(), None) for _ in range(count))
        self.cached: dict[tuple[str, int, int], list[Block]] = {}  # oldest copy first
        self.evicted = 0

    def pop(self) -> Block:
        block, _ = self.free.popitem(last=False)
        if block.key is not None:
            copies = self.cached[block.key]
            copies.remove(block)
            if not copies:
                del self.cached[block.key]
            block.key = None
            self.evicted += 1
        block.ref_count = 1
        return block

    def touch(self, block: Block) -> None:
        if block.ref_count == 0:
            del self.free[block]
        block.ref_count += 1

    def release(self, blocks: list[Block]) -> None:
        for block in reversed(blocks):
            block.ref_count -= 1
            if block.ref_count == 0:
                self.free[block] = None
                if block.key is None:
                    self.free.move_to_end(block, last=False)


@dataclass(eq=False)
class Request:
    index: int
    arrival: float
    prompt: int
    generation: int
    priority: int
    group: int
    shared: int
    given: int
    cancel: float
    cancel_status: str
    adapter: int
    status: str = "unsent"
    computed: int = 0
    output: int = 0
    placeholders: int = 0  # tokens that a step in flight will bring (async)
    in_flight: int = 0  # steps that hold it and have not ended
    stale: bool = False  # preempted while in flight: its token still counts
    blocks: list[Block] = field(default_factory=list)
    keyed: int = 0  # blocks of it that have a key
    preemptions: int = 0
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float = 0.0
    end: float | None = None
    cached: int | None = None
    rejected_for: str = ""  # the limit that turned it away

    @property
    def tokens(self) -> int:
        return self.prompt + self.output

    def key(self, index: int, block_size: int) -> tuple[str, int, int]:
        if self.group >= 0 and (index + 1) * block_size <= self.shared:
            return ("group", self.group, index)
        return ("request", self.index, index)


@dataclass(eq=False)
class Step:
    """What one schedule call chose: (request, tokens, whether a token comes of it)."""

    chosen: list[tuple[Request, int, bool]]
    prefill_tokens: int = 0
    decode_seqs: int = 0
    kv_tokens_read: int = 0
    prefill_pairs: float = 0.0
    row: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass
class Result:
    requests: list[Request]
    steps: list[dict[str, float]] = field(default_factory=list)
    outputs: list[list[tuple[int, bool, float]]] = field(default_factory=list)
    gauges: list[tuple[float, int, int]] = field(default_factory=list)
    empty_schedules: int = 0
    evicted: int = 0

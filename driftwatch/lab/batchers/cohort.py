"""Static and dynamic batching: a batch starts together and runs to its longest member.

What makes them slow can be switched off one at a time: waiting to fill (``max_wait_seconds``),
padding (``pad``), replies held until the batch ends (``hold``). What is left then is that nobody
joins a running batch.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.lab.batchers.clock import Batched, Fates, Load, step_seconds
from driftwatch.lab.padding import padded_lengths
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class CohortPolicy:
    """How batches form and what they cost."""

    size: int  # most requests of a batch
    # a batch that is not full starts once its oldest member waited so long; inf = static: it waits
    # until it is full (or nobody more can come)
    max_wait_seconds: float = FOREVER
    # prompts are computed at their padded length, and a finished member's slot is computed until
    # the batch ends; False: only what members need is computed
    pad: bool = True
    # replies leave together when the batch ends; False: each member's tokens leave as they are made
    hold: bool = True
    # prompts queue by padded length, a batch takes one bucket; empty = one queue, padded to the
    # longest member
    bucket_tokens: tuple[int, ...] = ()


def run_cohorts(load: Load, step_time: StepTime, policy: CohortPolicy) -> Batched:
    """Serve the requests batch after batch: a step over all prompts, then a step a token.

    Raises ValueError: buckets that do not rise.
    """
    return _Server(load, step_time, policy).run()


@dataclass(slots=True)
class _Batch:
    """Members that start together."""

    start: float
    members: Integers
    prompts: Integers
    padded_tokens: int


class _Server:
    """One server and its queues; everything known to arrive is queued, the future included."""

    def __init__(self, load: Load, step_time: StepTime, policy: CohortPolicy) -> None:
        self.fates, requests = Fates(load), load.requests
        self.step_time, self.policy, self.free = step_time, policy, load.free_given_up
        self.closed, count = self.fates.closed, len(requests)
        edges = padded_lengths(requests.prompt_tokens, policy.bucket_tokens) if count else ()
        names = np.unique(edges) if policy.bucket_tokens else np.zeros(1, dtype=np.int64)
        buckets = (
            np.searchsorted(names, edges) if policy.bucket_tokens else np.zeros(count, np.int64)
        )
        self.bucket: list[int] = buckets.tolist()
        self.queues: list[list[tuple[float, int]]] = [[] for _ in names]
        for index in range(self.fates.sent):
            self.queues[self.bucket[index]].append((float(self.fates.arrival[index]), index))
        self.rows: list[tuple[float, float, int, int, int, int, int]] = []
        self.steps, self.busy, self.prefill = 0, 0.0, 0.0

    def run(self) -> Batched:
        """Batch after batch until nobody waits."""
        free_at = 0.0
        while (batch := self.form(free_at)) is not None:
            free_at = self.serve(batch)
        columns = (
            *("start_seconds", "end_seconds", "size", "longest_generation_tokens"),
            *("generated_tokens", "prompt_tokens", "padded_prompt_tokens"),
        )
        table = pl.DataFrame(self.rows, schema=list(columns), orient="row")
        return Batched(self.fates.table(), table, self.steps, self.busy, self.prefill)

    def form(self, free_at: float) -> _Batch | None:
        """The next batch; None when nobody waits."""
        size = self.policy.size
        while True:
            waiting = [queue for queue in self.queues if queue]
            if not waiting:
                return None
            start, queue = min(
                ((self.ready(queue, free_at), queue) for queue in waiting),
                key=lambda pair: (pair[0], pair[1][0]),
            )
            if start == FOREVER:  # nobody more can come: the rest is taken as it is
                last = max(queue[-1][0] for queue in waiting)
                start, queue = max(free_at, last), min(waiting, key=lambda queue: queue[0])
            if not self.drop_who_left(start, queue):
                break
        members = [index for arrival, index in queue[:size] if arrival <= start]
        del queue[: len(members)]
        chosen = np.asarray(members, dtype=np.int64)
        prompts = self.fates.requests.prompt_tokens[chosen]
        if self.policy.bucket_tokens:
            longest = int(padded_lengths(prompts, self.policy.bucket_tokens).max())
        else:
            longest = int(prompts.max())
        padded = longest * len(members) if self.policy.pad else int(prompts.sum())
        return _Batch(start, chosen, prompts, padded)

    def ready(self, queue: list[tuple[float, int]], free_at: float) -> float:
        """When this queue's next batch could start."""
        full = queue[self.policy.size - 1][0] if len(queue) >= self.policy.size else FOREVER
        return max(free_at, min(full, queue[0][0] + self.policy.max_wait_seconds))

    def drop_who_left(self, start: float, queue: list[tuple[float, int]]) -> bool:
        """Take out who gave up before ``start``; whether there was anyone."""
        if not (self.free and self.fates.leavers):
            return False
        looked_at = self.queues if self.closed else [queue]
        any_left = False
        for one in looked_at:
            head = one if self.closed else one[: self.policy.size]
            leavers = [i for arrival, i in head if self.fates.gives_up(i) <= start]
            for index in leavers:
                since = max(self.fates.gives_up(index), float(self.fates.arrival[index]))
                one.remove((float(self.fates.arrival[index]), index))
                self.fates.leave(index, since)
                self.send_next(since)
                any_left = True
        return any_left

    def send_next(self, seconds: float) -> None:
        if (index := self.fates.send_next(seconds)) is not None:
            insort(self.queues[self.bucket[index]], (seconds, index))

    def serve(self, batch: _Batch) -> float:
        """Run one batch to its end; when that is."""
        fates, members, policy = self.fates, batch.members, self.policy
        wanted = fates.requests.generation_tokens[members]
        computed = wanted.copy()
        patience = np.array([fates.gives_up(int(i)) for i in members])
        times = self.times(batch, computed)
        if self.free and self.fates.leavers:
            for place in np.argsort(patience, kind="stable"):
                if patience[place] >= times[computed[place] - 1]:
                    continue  # it was complete before
                done = int(np.searchsorted(times, patience[place], side="right"))
                computed[place] = done + 1  # the step that runs is not broken off
                times = self.times(batch, computed)
        end = float(times[computed.max() - 1])
        leaves = np.full(len(members), end) if policy.hold else times[wanted.clip(max=computed) - 1]
        fates.first_scheduled[members] = batch.start
        for place, index in enumerate(members.tolist()):
            first = end if policy.hold else float(times[0])
            gave_up = float(patience[place])
            if gave_up < leaves[place]:
                done = int(np.searchsorted(times, gave_up, side="right"))
                fates.generated[index] = 0 if policy.hold else min(done, int(wanted[place]))
                fates.first_token[index] = first if first <= gave_up else np.nan
                fates.leave(index, gave_up)
            else:
                fates.generated[index] = wanted[place]
                fates.first_token[index] = first
                fates.end[index] = leaves[place]
        if self.closed:
            for ends_at in sorted(fates.end[members].tolist()):
                self.send_next(ends_at)
        longest, useful = int(computed.max()), int(computed.sum())
        row = (batch.start, end, len(members), longest, useful, int(batch.prompts.sum()))
        self.rows.append((*row, batch.padded_tokens))
        self.steps += longest
        self.busy += end - batch.start
        self.prefill += float(times[0]) - batch.start
        return end

    def times(self, batch: _Batch, generations: Integers) -> Floats:
        """When each token of the batch is out, seconds; the first comes from the prompts' step."""
        prompts, count = batch.prompts, len(batch.members)
        k = np.arange(1, int(generations.max()))
        if self.policy.pad:
            longest = batch.padded_tokens // count
            pairs = count * longest * (longest + 1) / 2
            decoding, context = np.full(len(k), count), count * (longest + k)
        else:
            pairs = float((prompts * (prompts + 1) / 2).sum())
            order = np.argsort(generations, kind="stable")
            ended = np.searchsorted(generations[order], k, side="right")
            remaining = np.append(np.cumsum(prompts[order][::-1])[::-1], 0)
            decoding = count - ended
            context = remaining[ended] + decoding * k
        first = step_seconds(self.step_time, [batch.padded_tokens], [0], [0], [pairs])
        rest = step_seconds(self.step_time, 0, decoding, context)
        return np.cumsum(np.concatenate(([batch.start], first, rest)))[1:]

"""Hybrid batching: steps are prefill only or decode only, each kind with its share of the time.

The opposite of chunked prefill, where one step holds both. A share binds only while both kinds
have work; the other kind may always use what is left over.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from driftwatch.lab.batchers.clock import Batched, Fates, Load
from driftwatch.simulate.step_time import StepTime


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """How the engine's time is split."""

    # share of the time of prefill steps while both kinds have work, 0 … 1
    prefill_share_ratio: float
    max_num_seqs: int  # most requests admitted
    max_num_batched_tokens: int  # most prompt tokens of a prefill step


def run_split(load: Load, step_time: StepTime, policy: SplitPolicy) -> Batched:
    """Serve the requests with prefill steps and decode steps apart."""
    return _Engine(load, step_time, policy).run()


class _Engine:
    """The state between two steps."""

    def __init__(self, load: Load, step_time: StepTime, policy: SplitPolicy) -> None:
        self.fates, requests = Fates(load), load.requests
        self.step_time, self.policy, self.free = step_time, policy, load.free_given_up
        self.prompts: list[int] = requests.prompt_tokens.tolist()
        self.asked: list[int] = requests.generation_tokens.tolist()
        arrival = self.fates.arrival
        self.coming = [(float(arrival[i]), i) for i in range(self.fates.sent)]  # sorted: a heap
        self.patience: list[tuple[float, int]] = []
        self.waiting: deque[int] = deque()
        self.computed: dict[int, int] = {}  # admitted, prompt not complete → tokens computed
        self.joined: dict[int, int] = {}  # decoding → number of the decode step before its first
        self.ends: list[tuple[int, int]] = []  # (decode step of its last token, request)
        self.context = 0  # Σ (prompt − joined): with the step's number it gives the context read
        self.now, self.steps, self.decodes, self.busy = 0.0, 0, 0, 0.0
        self.prefill_seconds, self.decoded_at = 0.0, 0.0
        self.spent = [0.0, 0.0]  # time of prefill and decode steps since both have had work

    def run(self) -> Batched:
        """Step after step until nothing is left."""
        while True:
            self.arrive()
            self.forget_who_left()
            room = len(self.computed) + len(self.joined) < self.policy.max_num_seqs
            prefill = bool(self.computed) or (bool(self.waiting) and room)
            if prefill and self.joined:
                share = self.policy.prefill_share_ratio
                turn = self.spent[0] * (1 - share) <= self.spent[1] * share
                self.spent[0 if turn else 1] += self.prefill() if turn else self.decode()
                continue
            self.spent = [0.0, 0.0]
            if prefill:
                self.prefill()
            elif self.joined:
                self.decode()
            elif self.coming:
                self.now = max(self.now, self.coming[0][0])
            elif not self.waiting:
                break
        table = self.fates.table()
        return Batched(table, None, self.steps, self.busy, self.prefill_seconds)

    def arrive(self) -> None:
        """Queue who has come."""
        while self.coming and self.coming[0][0] <= self.now:
            _, index = heapq.heappop(self.coming)
            self.waiting.append(index)
            if self.fates.leavers:
                heapq.heappush(self.patience, (self.fates.gives_up(index), index))

    def forget_who_left(self) -> None:
        """Clients that gave up by now; freed, their work ends too."""
        while self.patience and self.patience[0][0] <= self.now:
            seconds, index = heapq.heappop(self.patience)
            if not np.isnan(self.fates.end[index]):
                continue
            seconds = max(seconds, float(self.fates.arrival[index]))
            if index in self.joined:
                self.fates.generated[index] = self.tokens_by(seconds, index)
            self.fates.leave(index, seconds)
            self.send_next(seconds)
            if not self.free:
                continue
            if index in self.joined:
                self.context -= self.prompts[index] - self.joined.pop(index)
            elif self.computed.pop(index, None) is None:
                self.waiting.remove(index)

    def tokens_by(self, seconds: float, index: int) -> int:
        """Tokens of a decoding request that were out by then, within the last step."""
        steps = self.decodes - self.joined[index]
        if not steps:
            return int(not np.isnan(self.fates.first_token[index]))
        return steps + int(self.decoded_at <= seconds)

    def send_next(self, seconds: float) -> None:
        if (index := self.fates.send_next(seconds)) is not None:
            heapq.heappush(self.coming, (seconds, index))

    def prefill(self) -> float:
        """One step of prompts, first come first served; its seconds."""
        budget, pairs = self.policy.max_num_batched_tokens, 0.0
        complete: list[int] = []
        for index in list(self.computed):
            took, cost = self.chunk(index, budget, complete)
            budget, pairs = budget - took, pairs + cost
        seats = self.policy.max_num_seqs - len(self.joined)
        while budget and self.waiting and len(self.computed) < seats:
            index = self.waiting.popleft()
            self.fates.first_scheduled[index] = self.now
            self.computed[index] = 0
            took, cost = self.chunk(index, budget, complete)
            budget, pairs = budget - took, pairs + cost
        seconds = self.step_time.seconds(self.policy.max_num_batched_tokens - budget, 0, 0, pairs)
        self.pass_time(seconds)
        self.prefill_seconds += seconds
        for index in complete:
            del self.computed[index]
            self.joined[index] = self.decodes
            self.context += self.prompts[index] - self.decodes
            heapq.heappush(self.ends, (self.decodes + self.asked[index] - 1, index))
            if self.open(index):
                self.fates.first_token[index] = self.now
        self.finish()
        return seconds

    def chunk(self, index: int, budget: int, complete: list[int]) -> tuple[int, float]:
        """As much of a prompt as fits: (tokens, pairs)."""
        done = self.computed[index]
        took = min(self.prompts[index] - done, budget)
        self.computed[index] = done + took
        if took and done + took == self.prompts[index]:
            complete.append(index)
        return took, took * done + took * (took + 1) / 2

    def decode(self) -> float:
        """One token for each that decodes; the step's seconds."""
        self.decodes += 1
        running = len(self.joined)
        seconds = self.step_time.seconds(0, running, self.context + running * self.decodes)
        self.pass_time(seconds)
        self.decoded_at = self.now
        self.finish()
        return seconds

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.busy += seconds
        self.steps += 1

    def open(self, index: int) -> bool:
        """Whether the client still listens: it has no end, and has not given up by now."""
        patient = not self.fates.leavers or self.fates.gives_up(index) >= self.now
        return patient and bool(np.isnan(self.fates.end[index]))

    def finish(self) -> None:
        """Who has its last token."""
        while self.ends and self.ends[0][0] <= self.decodes:
            _, index = heapq.heappop(self.ends)
            if index not in self.joined:
                continue  # freed before
            if self.open(index):
                self.fates.end[index] = self.now
                self.fates.generated[index] = self.asked[index]
                self.send_next(self.now)
            elif np.isnan(self.fates.end[index]):
                done = self.decodes - self.joined[index]  # this step's token came too late
                seconds = self.fates.gives_up(index)
                self.fates.generated[index] = min(done, self.asked[index])
                self.fates.leave(index, seconds)
                self.send_next(seconds)
            self.context -= self.prompts[index] - self.joined.pop(index)

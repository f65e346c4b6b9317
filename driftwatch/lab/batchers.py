"""Static, dynamic, hybrid and continuous batching on one clock.

Each is a pure function of requests and a step-time model. Only continuous batching, which is vLLM's
scheduler (``driftwatch.simulate``), is limited by KV memory. Definitions:
docs/decisions/0013-the-classic-batchers.md.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

STATIC, DYNAMIC, CONTINUOUS, HYBRID = POLICIES = ("static", "dynamic", "continuous", "hybrid")
FOREVER = float("inf")
BATCH_SIZE = 32  # of static and dynamic batching
MAX_WAIT_SECONDS = 0.05  # dynamic: longest wait of a batch's oldest request
PREFILL_SHARE_RATIO = 0.8  # share of prefill steps in hybrid's time, while both kinds have work


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The result of a run: an entry per request, in the order of the input.

    The ratios are None where no request waits for the longest of its batch.
    """

    arrival_seconds: Floats
    first_token_seconds: Floats  # NaN = none
    end_seconds: Floats  # NaN = none
    generated_tokens: Integers
    finished: Flags  # the others were rejected
    batch_efficiency_ratio: float | None = None  # Σ generated / Σ (batch × longest), 0 … 1
    prompt_padding_waste_ratio: float | None = None  # of the prompt tokens computed


def serve(
    policy: str, requests: Requests, step_time: StepTime, configuration: SchedulerConfiguration
) -> Served:
    """Serve the requests by one of `POLICIES`.

    ``configuration``: of continuous batching; hybrid uses its seats and token budget. Raises
    ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
    """
    if policy == CONTINUOUS:
        return _continuous(requests, step_time, configuration)
    if policy == HYBRID:
        return _Hybrid(requests, step_time, configuration).run()
    wait = FOREVER if policy == STATIC else MAX_WAIT_SECONDS
    return run_batches(requests, step_time, BATCH_SIZE, wait)


def batch_seconds(
    step_time: StepTime, count: int, prompt_tokens: int, generation_tokens: int
) -> float:
    """Seconds of a batch of equal requests: prompts in one step, then a step for each token."""
    pairs, rest = prompt_tokens * (prompt_tokens + 1) / 2, generation_tokens - 1
    context = count * (rest * prompt_tokens + rest * (rest + 1) / 2)
    return (
        step_time.seconds(count * prompt_tokens, 0, 0, count * pairs)
        + rest * step_time.seconds(0, count, 0)
        + step_time.c3_seconds_per_kv_token * context
    )


def _continuous(
    requests: Requests, step_time: StepTime, configuration: SchedulerConfiguration
) -> Served:
    rows = simulate(requests, configuration, step_time).requests
    return Served(
        rows["arrival_seconds"].to_numpy(),
        rows["first_token_seconds"].fill_null(np.nan).to_numpy(),
        rows["end_seconds"].fill_null(np.nan).to_numpy(),
        rows["generated_tokens"].to_numpy(),
        (rows["status"] == "finished").to_numpy(),
    )


def run_batches(
    requests: Requests, step_time: StepTime, size: int, max_wait_seconds: float
) -> Served:
    """Static and dynamic: a batch starts together, runs to its longest member, ends together.

    One step over all prompts, padded to the longest, then a step per token; replies leave when the
    batch ends. Static (``max_wait_seconds`` inf) waits until it is full or no request is left.
    """
    arrival, end = requests.arrival_seconds, np.full(len(requests), np.nan)
    computed = padded_tokens = slots = first = 0
    free_at = 0.0
    while first < len(requests):
        oldest, last = float(arrival[first]), min(first + size, len(requests)) - 1
        full = float(arrival[last]) if last - first + 1 == size else FOREVER
        start = max(free_at, min(full, oldest + max_wait_seconds))
        if start == FOREVER:  # no request is left to fill the batch
            start = max(free_at, float(arrival[-1]))
        members = np.arange(first, last + 1)
        members = members[arrival[members] <= start]
        first += len(members)
        prompts = requests.prompt_tokens[members]
        generations = requests.generation_tokens[members]
        longest, count, steps = int(prompts.max()), len(members), int(generations.max())
        free_at = end[members] = start + batch_seconds(step_time, count, longest, steps)
        computed += int(prompts.sum())
        padded_tokens += longest * count
        slots += count * steps
    made, everyone = requests.generation_tokens, np.ones(len(requests), dtype=bool)
    ratios = (int(made.sum()) / slots, 1 - computed / padded_tokens) if slots else (None, None)
    return Served(arrival, end, end, made, everyone, *ratios)


class _Hybrid:
    """Steps are prefill only or decode only, each kind with its share of the time.

    The opposite of chunked prefill, where one step holds both. The shares count only while both
    kinds have work; else the kind that has work takes all of the time.
    """

    def __init__(
        self, requests: Requests, step_time: StepTime, configuration: SchedulerConfiguration
    ) -> None:
        self.step_time, self.share = step_time, PREFILL_SHARE_RATIO
        self.seats = configuration.max_num_active_seqs or configuration.max_num_seqs
        self.budget = configuration.max_num_batched_tokens
        self.arrival = requests.arrival_seconds
        self.asked_tokens = requests.generation_tokens
        self.prompts: list[int] = requests.prompt_tokens.tolist()
        self.asked: list[int] = requests.generation_tokens.tolist()
        self.first_token = np.full(len(requests), np.nan)
        self.end = np.full(len(requests), np.nan)
        self.coming = 0  # the next request to arrive
        self.waiting: deque[int] = deque()
        self.computed: dict[int, int] = {}  # admitted, prompt not complete → tokens computed
        self.joined: dict[int, int] = {}  # decoding → number of the decode step before its first
        self.ends: list[tuple[int, int]] = []  # (decode step of its last token, request)
        self.context = 0  # Σ (prompt − joined): with the step's number it gives the context read
        self.now, self.decodes = 0.0, 0
        self.spent = [0.0, 0.0]  # time of prefill and decode steps since both kinds have work

    def run(self) -> Served:
        """Run steps until no request is left."""
        while True:
            while self.coming < len(self.arrival) and self.arrival[self.coming] <= self.now:
                self.waiting.append(self.coming)
                self.coming += 1
            room = len(self.computed) + len(self.joined) < self.seats
            prefill = bool(self.computed) or (bool(self.waiting) and room)
            if prefill and self.joined:
                turn = self.spent[0] * (1 - self.share) <= self.spent[1] * self.share
                self.spent[0 if turn else 1] += self.prefill() if turn else self.decode()
                continue
            self.spent = [0.0, 0.0]
            if prefill:
                self.prefill()
            elif self.joined:
                self.decode()
            elif self.coming < len(self.arrival):
                self.now = float(self.arrival[self.coming])
            else:
                break
        everyone = np.ones(len(self.arrival), dtype=bool)
        times = (self.arrival, self.first_token, self.end)
        return Served(*times, self.asked_tokens, everyone)

    def prefill(self) -> float:
        """One step of prompts, first come first served; its seconds."""
        budget, pairs = self.budget, 0.0
        complete: list[int] = []
        seats = self.seats - len(self.joined)
        todo = deque(self.computed)
        while todo or (budget and self.waiting and len(self.computed) < seats):
            index = todo.popleft() if todo else self.waiting.popleft()
            done = self.computed.get(index, 0)
            took = min(self.prompts[index] - done, budget)
            self.computed[index] = done + took
            if took and done + took == self.prompts[index]:
                complete.append(index)
            budget, pairs = budget - took, pairs + took * done + took * (took + 1) / 2
        seconds = self.step_time.seconds(self.budget - budget, 0, 0, pairs)
        self.now += seconds
        for index in complete:
            del self.computed[index]
            self.joined[index] = self.decodes
            self.context += self.prompts[index] - self.decodes
            heapq.heappush(self.ends, (self.decodes + self.asked[index] - 1, index))
            self.first_token[index] = self.now
        self.finish()
        return seconds

    def decode(self) -> float:
        """One token for each request that decodes; the step's seconds."""
        self.decodes += 1
        running = len(self.joined)
        seconds = self.step_time.seconds(0, running, self.context + running * self.decodes)
        self.now += seconds
        self.finish()
        return seconds

    def finish(self) -> None:
        """End the requests that have their last token."""
        while self.ends and self.ends[0][0] <= self.decodes:
            _, index = heapq.heappop(self.ends)
            self.end[index] = self.now
            self.context -= self.prompts[index] - self.joined.pop(index)

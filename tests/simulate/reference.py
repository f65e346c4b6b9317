"""vLLM V1's scheduler request by request, as plainly as it can be said: the specification.

It follows vLLM's own scheduler (``v1/core/sched/scheduler.py``,
``async_scheduler.py``, ``kv_cache_manager.py``, ``block_pool.py``) in lists and dicts and is slow
on purpose. The kernel is held against it on random workloads, and it against the recorded runs of
the real scheduler.
"""

from __future__ import annotations

from math import inf

from reference_parts import (
    CANCELLED,
    FINISHED,
    PREEMPTED,
    REJECTED,
    RUNNING,
    TIMED_OUT,
    WAITING,
    Block,
    BlockPool,
    NoProgress,
    Request,
    Result,
    Step,
)

from driftwatch.simulate.configuration import PRIORITY, SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime


class Reference:
    def __init__(
        self,
        requests: Requests,
        configuration: SchedulerConfiguration,
        law: StepTime,
        *,
        concurrency: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self.c = configuration
        self.law = law
        self.limit = configuration.max_model_len or 1 << 60
        blocks = configuration.num_gpu_blocks
        self.total = (blocks if blocks is not None else 1 << 16) - 1
        self.pool = BlockPool(self.total)
        self.watermark = int(configuration.watermark * (blocks or 0))
        self.now = 0.0
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.left_waiting = 0  # by the last schedule call: the gauge that vLLM publishes
        self.timeout = timeout
        self.all = [
            Request(
                i,
                float(requests.arrival_seconds[i]),
                int(requests.prompt_tokens[i]),
                int(requests.generation_tokens[i]),
                int(requests.priority[i]),
                int(requests.prefix_group[i]),
                int(requests.shared_prefix_tokens[i]),
                int(requests.cached_tokens[i]),
                float(requests.cancel_seconds[i]),
                CANCELLED,
                int(requests.adapter[i]),
            )
            for i in range(len(requests))
        ]
        first = len(self.all) if concurrency is None else min(concurrency, len(self.all))
        self.due = self.all[:first]  # sorted by arrival
        self.unsent = self.all[first:]
        self.ended_since: list[float] = []
        self.result = Result(self.all)

    # -- arrivals, cancellations -----------------------------------------------------------------

    def in_flight(self) -> list[Request]:
        return [r for r in self.all if r.status in (WAITING, RUNNING, PREEMPTED)]

    def end(self, request: Request, status: str, now: float) -> None:
        if request in self.running:
            self.running.remove(request)
        if request in self.waiting:
            self.waiting.remove(request)
        self.release(request)
        request.status = status
        request.end = now
        if self.unsent:
            following = self.unsent.pop(0)
            following.cancel = (following.cancel - following.arrival) + now
            following.arrival = now
            self.due.append(following)
            self.due.sort(key=lambda r: r.arrival)

    def happen(self, now: float, *, inclusive: bool) -> None:
        """Arrivals and cancellations up to now, in the order of their times."""

        def past(time: float) -> bool:
            return time < now or (inclusive and time == now)

        while True:
            leaving = [r for r in self.in_flight() if past(r.cancel)]
            soonest = min(leaving, key=lambda r: (r.cancel, r.index), default=None)
            arriving = self.due[0] if self.due and past(self.due[0].arrival) else None
            if soonest is not None and (arriving is None or soonest.cancel < arriving.arrival):
                self.end(soonest, soonest.cancel_status, soonest.cancel)
            elif arriving is not None:
                self.due.pop(0)
                self.arrive(arriving)
            else:
                return

    def arrive(self, r: Request) -> None:
        if self.timeout is not None and r.arrival + self.timeout < r.cancel:
            r.cancel, r.cancel_status = r.arrival + self.timeout, TIMED_OUT
        r.cancel = max(r.cancel, r.arrival)
        there = self.in_flight()
        tokens = sum(q.prompt for q in there if q.first_token is None)
        reqs_limit, tokens_limit = self.c.max_num_queued_reqs, self.c.max_num_queued_tokens
        if reqs_limit is not None and len(there) >= reqs_limit:
            r.rejected_for = "reqs"
        elif tokens_limit is not None and tokens >= tokens_limit:
            r.rejected_for = "tokens"
        if r.rejected_for:
            self.end(r, REJECTED, r.arrival)
            return
        r.status = WAITING
        self.waiting.append(r)

    # -- blocks ----------------------------------------------------------------------------------

    def needed(self, tokens: int) -> int:
        return -(-tokens // self.c.block_size)

    def find(self, r: Request) -> list[Block]:
        if not self.c.enable_prefix_caching:
            return []
        most = (r.tokens - 1) // self.c.block_size
        if r.given >= 0:
            most = min(most, r.given // self.c.block_size) if r.preemptions == 0 else 0
        found = []
        for index in range(most):
            copies = self.pool.cached.get(r.key(index, self.c.block_size))
            if not copies:
                break
            found.append(copies[0])
        return found

    def take(self, r: Request, tokens: int) -> None:
        while len(r.blocks) < self.needed(tokens):
            r.blocks.append(self.pool.pop())

    def remember(self, r: Request, tokens: int) -> None:
        """Full blocks get their key: from now on others find them."""
        if not self.c.enable_prefix_caching:
            return
        while r.keyed < tokens // self.c.block_size:
            block = r.blocks[r.keyed]
            block.key = r.key(r.keyed, self.c.block_size)
            self.pool.cached.setdefault(block.key, []).append(block)
            r.keyed += 1

    def release(self, r: Request) -> None:
        self.pool.release(r.blocks)
        r.blocks, r.keyed = [], 0

    # -- schedule --------------------------------------------------------------------------------

    def preempt(self, r: Request) -> None:
        self.release(r)
        r.status = PREEMPTED
        r.stale = r.in_flight > 0
        r.computed = r.placeholders = 0
        r.preemptions += 1
        self.waiting.insert(0, r)

    def schedule(self) -> Step:
        c = self.c
        budget = c.max_num_batched_tokens
        there = len(self.running) + len(self.waiting)
        threshold = c.long_prefill_token_threshold if there > 1 else 0
        if threshold and c.long_prefill_token_threshold_adaptive:
            threshold = max(threshold, budget // there)
        chosen: dict[Request, int] = {}
        preempted = 0

        i = 0
        while i < len(self.running) and budget > 0:
            r = self.running[i]
            n = r.tokens + r.placeholders - r.computed
            certain = r.placeholders > 0 and (
                r.computed + 2 - r.placeholders >= r.prompt + r.generation
            )
            if 0 < threshold < n:
                n = threshold
            n = min(n, budget, self.limit - r.computed - 1)
            if certain or n <= 0:
                i += 1
                continue
            fits = True
            while self.needed(r.computed + n) - len(r.blocks) > len(self.pool.free):
                if c.scheduling_policy == PRIORITY:
                    victim = max(self.running, key=lambda q: (q.priority, q.arrival))
                else:
                    victim = self.running[-1]
                if self.running.index(victim) < i:
                    i -= 1
                self.running.remove(victim)
                budget += chosen.pop(victim, 0)
                self.preempt(victim)
                preempted += 1
                if victim is r:
                    fits = False
                    break
            if not fits:
                break
            self.take(r, r.computed + n)
            self.remember(r, min(r.computed + n, r.tokens))
            chosen[r] = n
            budget -= n
            i += 1

        if not preempted:
            self.admit(chosen, budget, threshold)

        step = Step([])
        for r, n in chosen.items():
            brings = r.computed + n == r.tokens + r.placeholders
            if n == 1 and r.computed >= r.prompt:
                step.decode_seqs += 1
                step.kv_tokens_read += r.computed + 1
            else:
                step.prefill_tokens += n
                step.prefill_pairs += n * r.computed + n * (n + 1) / 2
            r.computed += n
            r.in_flight += 1
            r.placeholders += brings and c.async_scheduling
            step.chosen.append((r, n, brings))
        step.row = (len(self.running), len(self.waiting), preempted, len(self.pool.free))
        self.left_waiting = len(self.waiting)
        return step

    def admit(self, chosen: dict[Request, int], budget: int, threshold: int) -> None:
        c = self.c
        aside: list[Request] = []
        adapters = {r.adapter for r in chosen if r.adapter >= 0}
        most = c.max_num_active_seqs or c.max_num_seqs
        while budget > 0 and self.waiting and len(self.running) < most:
            r = min(
                self.waiting,
                key=lambda q: (
                    (q.priority, q.arrival, q.index) if c.scheduling_policy == PRIORITY else ()
                ),
            )
            if (
                c.max_loras is not None
                and r.adapter >= 0
                and len(adapters) >= c.max_loras
                and r.adapter not in adapters
            ):
                self.waiting.remove(r)
                aside.append(r)
                continue
            found = self.find(r)
            hit = len(found) * c.block_size
            n = r.tokens - hit
            if 0 < threshold < n:
                n = threshold
            if not c.enable_chunked_prefill and n > budget:
                break
            n = min(n, budget)
            free = len(self.pool.free)
            reused = sum(block.ref_count == 0 for block in found)
            spare = self.watermark if self.running else 0
            if c.scheduler_reserve_full_isl:
                whole = self.needed(min(r.tokens, self.limit)) - len(found) + reused
                if whole + spare > free:
                    break
            if self.needed(hit + n) - len(found) + reused + spare > free:
                break
            for block in found:
                self.pool.touch(block)
            r.blocks, r.keyed = list(found), len(found)
            self.take(r, hit + n)
            self.remember(r, hit + n)
            self.waiting.remove(r)
            self.running.append(r)
            if r.adapter >= 0:
                adapters.add(r.adapter)
            r.status = RUNNING
            r.computed = hit
            if r.first_scheduled is None:
                r.first_scheduled, r.cached = self.now, hit
            chosen[r] = n
            budget -= n
        self.waiting[:0] = aside

    # -- run -------------------------------------------------------------------------------------

    def apply(self, step: Step, now: float) -> None:
        outputs = []
        for r, _, brings in step.chosen:
            r.in_flight -= 1
            stale, r.stale = r.stale, False
            if not brings or r.status not in (RUNNING, PREEMPTED):
                continue
            r.output += 1
            if not stale:
                r.placeholders -= self.c.async_scheduling
                if self.c.async_scheduling:
                    self.remember(r, r.computed - r.placeholders)
            outputs.append((r.index, r.first_token is None, now - r.last_token))
            if r.first_token is None:
                r.first_token = now
            r.last_token = now
            if r.output >= r.generation or r.tokens >= self.limit:
                self.end(r, FINISHED, now)
        self.result.outputs.append(outputs)

    def execute(self, step: Step) -> None:
        start = self.now
        self.now += self.law.seconds(
            step.prefill_tokens, step.decode_seqs, step.kv_tokens_read, step.prefill_pairs
        )
        self.result.steps.append(
            {
                "start_seconds": start,
                "end_seconds": self.now,
                "prefill_tokens": step.prefill_tokens,
                "decode_seqs": step.decode_seqs,
                "kv_tokens_read": step.kv_tokens_read,
                "running": step.row[0],
                "waiting": step.row[1],
                "preempted": step.row[2],
                "free_blocks": step.row[3],
            }
        )
        self.happen(self.now, inclusive=False)
        self.apply(step, self.now)
        self.result.gauges.append((self.now, len(self.running), self.left_waiting))

    def run(self) -> Result:
        ahead: Step | None = None  # scheduled, about to start (async)
        drained = False  # a step has just ended (async): vLLM asks again even with nothing left
        while True:
            self.happen(self.now, inclusive=True)
            step = None
            dry = drained and ahead is None and len(self.due) > 0
            drained = False
            if self.running or self.waiting or dry:
                step = self.schedule()
                if not step.chosen:
                    self.result.empty_schedules += 1
                    step = None
            if self.c.async_scheduling:
                if ahead is not None:
                    self.execute(ahead)
                    ahead = step
                    drained = True
                    continue
                ahead = step
            elif step is not None:
                self.execute(step)
            if step is None:
                # who gave up during the last step: vLLM steps once more for them
                self.result.gauges.append((self.now, len(self.running), len(self.waiting)))
                upcoming = [r.cancel for r in self.in_flight()]
                upcoming += [r.arrival for r in self.due]
                if min(upcoming, default=inf) == inf:
                    break
                self.now = min(upcoming)
        if self.in_flight():
            raise NoProgress
        self.result.evicted = self.pool.evicted
        return self.result


def run_reference(
    requests: Requests, configuration: SchedulerConfiguration, law: StepTime, **options: object
) -> Result:
    return Reference(requests, configuration, law, **options).run()  # type: ignore[arg-type]

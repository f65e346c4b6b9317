"""Claims about settings: what a knob gives and what it costs, measured by replays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from claims_book import FOLDER, LONGEST, ROOT, TRACE, Claim, Ran, RequestFile, azure

from driftwatch.notify.numbers import figure, percent, times
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.roofline import roofline
from driftwatch.simulate.step_time import describe

H100 = "--gpu H100-80GB --model llama-3.1-8b"
# two caps are compared on one law, so that what differs is the scheduling alone
ONE_LAW = describe(roofline(gpu("H100-80GB"), model("llama-3.1-8b"), decode_batch=256))


def saturated(requests: str, settings: str, users: str = "128,256") -> str:
    """Many users in a closed loop: requests/s cannot rise any more."""
    return (
        f"driftwatch sweep {H100} {settings} --requests {requests} --concurrency {users} "
        "--requests-per-level 1536 --json"
    )


def capacity(ran: Ran) -> float:
    """Requests a second at saturation."""
    return max(float(level["requests_per_second"]) for level in ran.json["levels"])


PROMPTS, CACHED, ANSWERS = (
    f"{FOLDER}/prompts-x4.csv",
    f"{FOLDER}/prompts-x4-half-cached.csv",
    f"{FOLDER}/answers-x4.csv",
)


def prompts_x4() -> dict[str, np.ndarray]:
    found = azure(6000)
    found["prompt_tokens"] = np.minimum(4 * found["prompt_tokens"], LONGEST)
    return found


def half_cached() -> dict[str, np.ndarray]:
    found = prompts_x4()
    return {**found, "cached_tokens": found["prompt_tokens"] // 2 // 16 * 16}


def answers_x4() -> dict[str, np.ndarray]:
    found = azure(6000)
    return {**found, "generation_tokens": 4 * found["generation_tokens"]}


def contexts() -> dict[str, np.ndarray]:
    lengths = np.repeat([500, 2000, 4000, 8000, 16000], 16)
    return {
        "arrival_seconds": np.repeat(1000.0 * np.arange(5), 16),
        "prompt_tokens": lengths,
        "generation_tokens": np.full(80, 200),
    }


FILES = {
    "prompts-x4.csv": RequestFile(
        f"the first 6,000 requests of `{TRACE}`, prompts times four, at most {LONGEST:,} tokens",
        prompts_x4,
    ),
    "prompts-x4-half-cached.csv": RequestFile(
        "the same with `cached_tokens`: half of each prompt in whole blocks of 16", half_cached
    ),
    "answers-x4.csv": RequestFile(
        f"the first 6,000 requests of `{TRACE}`, answers times four", answers_x4
    ),
    "contexts.csv": RequestFile(
        "five times 16 requests at once, 1,000 s apart, prompts of 500, 2,000, 4,000, 8,000 and "
        "16,000 tokens, answers of 200",
        contexts,
    ),
}


def longer_prompts(ran: Sequence[Ran]) -> tuple[str, str]:
    before, after, *others = [capacity(r) for r in ran]
    *budgets, cached = others
    best = max(budgets)
    lost = 1 - after / before
    back = (cached - after) / (before - after)
    knob = (best - after) / (before - after)
    budget = [2048, 8192, 16384][1:][budgets.index(best)]
    verdict = "Holds in part" if knob < 0.5 else "Holds"
    return verdict, (
        f"With max_num_batched_tokens 2048, prompts ×4 cost {percent(lost)} of capacity "
        f"({figure(before)} → {figure(after)} requests/s). The better of 8192 and 16384, {budget}, "
        f"gives back {percent(max(0.0, knob))} of the loss. Half of the prompt tokens cached gives "
        f"back {percent(back)} of it, {times(cached / after, 3)} the capacity "
        f"({figure(cached)} requests/s): less work, where a knob only arranges the same work "
        "anew. A half cannot give back more than a third of what four times the prompt takes."
    )


def small_budget(ran: Sequence[Ran]) -> tuple[str, str]:
    tuned, drifted, raised = ran
    a, b, c = (capacity(r) for r in ran)

    def itl(one: Ran) -> float:
        return 1000 * float(one.json["levels"][-1]["itl_seconds_mean"])

    verdict = "Holds" if c > 1.02 * b else "Does not hold"
    return verdict, (
        f"max_num_batched_tokens 512: {figure(a)} requests/s at prompts of 512, {figure(b)} at "
        f"1,200. Raised to 2048: {figure(c)} ({times(c / b, 3)}), which does not bring the first "
        f"figure back, as longer prompts are more work. Mean ITL {figure(itl(drifted))} → "
        f"{figure(itl(raised))} ms; at prompts of 512 it was {figure(itl(tuned))} ms."
    )


def longer_answers(ran: Sequence[Ran]) -> tuple[str, str]:
    free = [capacity(r) for r in ran[:2]]
    full = [capacity(r) for r in ran[2:]]
    gain, none = free[1] / free[0], full[1] / full[0]
    verdict = "Holds where KV is free" if gain > 1.1 and none < 1.05 else "Does not hold"
    return verdict, (
        f"Answers ×4, max_num_seqs 64 → 256: {figure(free[0])} → {figure(free[1])} requests/s "
        f"({times(gain, 3)}) with the KV cache of an H100. With 4,000 blocks: {figure(full[0])} → "
        f"{figure(full[1])} ({times(none, 3)}), as KV binds before either cap."
    )


def defaults(ran: Sequence[Ran]) -> tuple[str, str]:
    names = ("L4", "A100-80GB", "H100-80GB", "B200")
    found = [r.json["configuration"] for r in ran]
    seqs = {name: one["max_num_seqs"] for name, one in zip(names, found, strict=True)}
    told = ", ".join(
        f"{name} {one['max_num_seqs']} and {one['max_num_batched_tokens']}"
        for name, one in zip(names, found, strict=True)
    )
    verdict = "Holds in part" if len(set(seqs.values())) > 1 else "Holds"
    return verdict, (
        f"vLLM 0.32 chooses by the GPU's memory and by its name: max_num_seqs and "
        f"max_num_batched_tokens on an API server are on {told}."
    )


def long_context(ran: Sequence[Ran]) -> tuple[str, str]:
    rows = [json.loads(x) for x in (ROOT / FOLDER / "contexts.jsonl").read_text().splitlines()]
    found = []
    for group, length in enumerate((500, 2000, 4000, 8000, 16000)):
        took = [
            row["end_seconds"] - row["start_seconds"]
            for row in rows
            if row["prefill_tokens"] == 0
            and row["decode_seqs"] == 16
            and 1000 * group <= row["start_seconds"] < 1000 * (group + 1)
        ]
        found.append((length, 1000 * float(np.mean(took))))
    first, last = found[0][1], found[-1][1]
    told = ", ".join(f"{length:,}: {figure(ms)}" for length, ms in found)
    verdict = "Does not hold" if last > 1.1 * first else "Holds"
    small = next((length for length, ms in found if ms > 1.1 * first), None)
    seen = f"more than 10 % from contexts of {small:,} tokens on" if small else "never 10 %"
    return verdict, (
        f"Steps in which 16 requests decode take, in ms by length of prompt: {told}: {seen}."
    )


def unused_cap(ran: Sequence[Ran]) -> tuple[str, str]:
    levels: list[Any] = [r.json["levels"][-1] for r in ran]
    blocks = [r.json["configuration"]["num_gpu_blocks"] for r in ran]
    same = all(
        abs(levels[0][name] - levels[1][name]) <= 1e-9 * abs(levels[0][name])
        for name in ("requests_per_second", "e2e_seconds_mean", "ttft_seconds_p99")
    )
    kv = 1 - blocks[1] / blocks[0]
    return ("Holds" if same else "Does not hold"), (
        f"Eight users, max_num_seqs 8 and 128: {figure(levels[0]['requests_per_second'])} and "
        f"{figure(levels[1]['requests_per_second'])} requests/s, mean latency "
        f"{figure(levels[0]['e2e_seconds_mean'])} and {figure(levels[1]['e2e_seconds_mean'])} s"
        f"{': the same' if same else ''}. What the higher cap costs is memory for its graphs, by "
        f"the planner's estimate {percent(kv) if kv > 0 else 'nothing'} of the KV blocks."
    )


def knee(ran: Sequence[Ran]) -> tuple[str, str]:
    document = ran[0].json
    where = document["latency_degrades"]
    levels = {level["concurrency"]: level for level in document["levels"]}
    top = levels[max(levels)]
    verdict = "Holds" if where["degrades_at"] else "Not reached"
    at = levels[where["degrades_at"] or max(levels)]
    return verdict, (
        f"A closed loop over {', '.join(str(n) for n in levels)} users, warm-up and drain left "
        f"out: latency starts to degrade at {where['degrades_at'] or 'no measured level'}. There "
        f"p50, p99, p99.9, max and mean are {figure(at['e2e_seconds_p50'])}, "
        f"{figure(at['e2e_seconds_p99'])}, {figure(at['e2e_seconds_p999'])}, "
        f"{figure(at['e2e_seconds_max'])} and {figure(at['e2e_seconds_mean'])} s; at "
        f"{top['concurrency']} users {figure(top['requests_per_second'])} requests/s and a mean of "
        f"{figure(top['e2e_seconds_mean'])} s."
    )


FLAGS = (
    "--throughput-optimization-level",
    "--num-scheduler-steps",
    "--preemption-mode",
    "--chunked-prefill-batch-size",
)


def refused(ran: Sequence[Ran]) -> tuple[str, str]:
    flags, order = ran
    if "--max-num-batched-tokens" not in flags.out:
        raise ValueError("no help was printed")
    gone = [flag for flag in FLAGS if flag not in flags.out]
    stops = order.code == 2 and "vLLM refuses to start" in order.err
    verdict = "Does not hold" if len(gone) == len(FLAGS) else "Holds in part"
    return verdict, (
        f"{len(gone)} of these {len(FLAGS)} are no settings of the vLLM that is simulated. "
        f"max_num_batched_tokens below max_num_seqs is {'refused' if stops else 'taken'}, as by "
        "vLLM."
    )


CLAIMS = (
    Claim(
        "A budget tuned for shorter prompts",
        "The token budget was tuned for prompts of 512 tokens, clients send 1,200: recalculate it.",
        tuple(
            f"driftwatch sweep {H100} --max-num-seqs 256 --max-num-batched-tokens {budget} "
            f"--prompt-tokens {prompt} --generation-tokens 200 --concurrency 128,256 --json"
            for budget, prompt in ((512, 512), (512, 1200), (2048, 1200))
        ),
        small_budget,
        "`BatchDrift` pages where lengths moved and a limit binds, and "
        "[a simulation](methods/recommend.md) prices the change.",
    ),
    Claim(
        "Prefix caching gives the budget back",
        "",
        (
            saturated(TRACE, "--max-num-batched-tokens 2048"),
            *(
                saturated(PROMPTS, f"--max-num-batched-tokens {budget}")
                for budget in (2048, 8192, 16384)
            ),
            saturated(CACHED, "--max-num-batched-tokens 2048"),
        ),
        longer_prompts,
        '"no knob helps" is an answer, and `driftwatch recommend` replays replicas and cached '
        "prefixes.",
        files=("prompts-x4.csv", "prompts-x4-half-cached.csv"),
    ),
    Claim(
        "Longer answers want a higher max_num_seqs",
        "",
        (
            *(
                saturated(
                    ANSWERS,
                    f"--max-num-seqs {seqs} --max-num-batched-tokens 2048 --step-time {ONE_LAW}",
                )
                for seqs in (64, 256)
            ),
            *(
                saturated(
                    ANSWERS,
                    f"--max-num-seqs {seqs} --max-num-batched-tokens 2048 --num-gpu-blocks 4000 "
                    f"--step-time {ONE_LAW}",
                )
                for seqs in (64, 256)
            ),
        ),
        longer_answers,
        "advice never exceeds what the KV cache holds.",
        files=("answers-x4.csv",),
    ),
    Claim(
        "max_num_seqs is 256 by default",
        "",
        tuple(
            f"driftwatch sweep --gpu {card} --model llama-3.2-1b --concurrency 1,2 "
            "--requests-per-level 8 --json"
            for card in ("L4", "A100-80GB", "H100-80GB", "B200")
        ),
        defaults,
        "driftwatch reads or infers it, and never assumes it.",
    ),
    Claim(
        "Flags that are recommended but do not exist",
        "Set throughput_optimization_level, num_scheduler_steps, preemption_mode=swap or "
        "chunked_prefill_batch_size.",
        (
            "driftwatch simulate run --help",
            f"driftwatch simulate run --requests {TRACE} --step-time 0.01,0,0,0 "
            "--max-num-seqs 64 --max-num-batched-tokens 32",
        ),
        refused,
        "advice names arguments that vLLM has.",
        cheap=True,
    ),
    Claim(
        "A long sequence costs no more than a short one",
        "",
        (
            f"driftwatch simulate run {H100} --requests {FOLDER}/contexts.csv "
            f"--per-step {FOLDER}/contexts.jsonl --json",
        ),
        long_context,
        "the step-time model has a term for the context that decoding reads.",
        files=("contexts.csv",),
        cheap=True,
    ),
    Claim(
        "An unused sequence cap is wasted",
        "Real concurrency is the effective batch: a cap of 128 with 8 users wastes the cap.",
        tuple(
            f"driftwatch sweep {H100} --max-num-seqs {seqs} --concurrency 4,8 --json"
            for seqs in (8, 128)
        ),
        unused_cap,
        "`sequence_utilization` shows it; the [weekly report](sre/reports.md) names caps that "
        "nobody reached.",
    ),
    Claim(
        "Measure latency as a distribution, over concurrency",
        "Report p50, p99, p99.9, max and mean, over the steady part only, and find where latency "
        "starts to degrade.",
        (f"driftwatch sweep {H100} --requests {TRACE} --concurrency 1,2,4,8,16,32,64,128 --json",),
        knee,
        "`driftwatch sweep` measures so, simulated or live.",
    ),
)

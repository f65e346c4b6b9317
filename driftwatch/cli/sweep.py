"""``driftwatch sweep``: closed loop at rising concurrency, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from driftwatch.cli.engine_options import Numbers, engine_of, lab_command, mix_of, option
from driftwatch.cli.printer import Progress, number, print_answer
from driftwatch.lab.sweep import (
    DEFINITION,
    Degradation,
    Level,
    find_degradation,
    gains_of,
    level,
)
from driftwatch.numbers import milliseconds, times

_EXIT_NO_VERDICT = 4
_MOST_USERS = 4096
_MIX_SIZE = 50_000  # lengths drawn: twelve for each of the most users
_HEADER = (
    *("users", "req/s", "tokens/s", "a user", "TTFT p50", "TTFT p99", "ITL ms", "e2e p50"),
    "e2e p99",
)


@lab_command(
    "sweep",
    option(
        "--concurrency levels",
        Numbers(int, 1, _MOST_USERS),
        "Users at once, one level after the other.",
        default="1,2,4,8,16,32,64,128,256",
    ),
    generation_tokens=128,
)
def command(levels: tuple[int, ...], as_json: bool, **flags: Any) -> int:
    """Find the concurrency where latency starts to degrade, users sending in a closed loop.

    Simulated with the flags of a vLLM server. Exit code 0: answered; 4: nothing was served.
    """
    mix, notes = mix_of(flags, None if flags["file"] else _MIX_SIZE)
    engine = engine_of(flags)
    progress, reached = Progress("simulating"), list[Level]()
    for users in levels:
        progress(len(reached), len(levels))
        reached.append(level(mix, engine.configuration, engine.step_time, users))
    progress.close()
    knee = find_degradation(reached)
    document = {
        "configuration": asdict(engine.configuration),
        "step_time": asdict(engine.step_time),
        "workload": {
            "requests_file": flags["file"] and str(flags["file"]),
            "prompt_tokens_mean": float(mix.prompt_tokens.mean()),
            "generation_tokens_mean": float(mix.generation_tokens.mean()),
        },
        "levels": [asdict(one) for one in reached],
        "gain_ratios": gains_of([one for one in reached if one.figures.requests]),
        "latency_degrades": {"definition": DEFINITION, **asdict(knee)},
    }
    table = (_HEADER, [_row(one, knee) for one in reached])
    details = ["TTFT and e2e (end to end): seconds."]
    details += [
        f"{one.concurrency} users: {one.failed_requests:,} requests failed."
        for one in reached
        if one.failed_requests
    ]
    notes += engine.notes
    print_answer(as_json, _line(reached, knee), table, details, document, notes)
    return _EXIT_NO_VERDICT if knee.degrades_at is knee.holds_to is None else 0


def _line(levels: Sequence[Level], where: Degradation) -> str:
    """The sentence that answers; what it means is part of it."""
    if where.degrades_at is None:
        if where.holds_to is None:
            return f"NO VERDICT: {where.reason}."
        return (
            f"No knee up to {where.holds_to} users: throughput still rises with every added user."
        )
    by_users = {one.concurrency: one.figures for one in levels}
    before, after = by_users[where.holds_to or 0], by_users[where.degrades_at]
    rate = after.requests_per_second / before.requests_per_second
    early, late = before.e2e_seconds_mean or 0.0, after.e2e_seconds_mean or 0.0
    sure = "" if where.confirmed else " A higher level would confirm it."
    return (
        f"Latency starts to degrade at {where.degrades_at} users. From {where.holds_to} to "
        f"{where.degrades_at} users requests/s grow {times(rate)} and mean latency "
        f"{times(late / (early or 1.0))} ({milliseconds(early)} → {milliseconds(late)}): more than "
        f"half of the added users wait instead of being served.{sure}"
    )


def _row(one: Level, where: Degradation) -> tuple[str, ...]:
    """The figures of a level; the one where latency starts to degrade is marked with ``>``."""
    found, mark = one.figures, ">" if one.concurrency == where.degrades_at else ""
    tokens = found.generation_tokens_per_second if found.requests else None
    return (
        f"{mark}{one.concurrency}",
        number(found.requests_per_second if found.requests else None),
        number(tokens),
        number(tokens, 1 / one.concurrency),
        number(found.ttft_seconds_p50),
        number(found.ttft_seconds_p99),
        number(found.itl_seconds_mean, 1000),
        number(found.e2e_seconds_p50),
        number(found.e2e_seconds_p99),
    )

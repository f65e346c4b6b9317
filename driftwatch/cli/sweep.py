"""``driftwatch sweep``: closed loop at rising concurrency, simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from driftwatch.cli.engine_options import (
    Numbers,
    engine_from,
    engine_options,
    lengths_options,
    mix_of,
    option,
)
from driftwatch.cli.history_options import json_option
from driftwatch.cli.options import Progress
from driftwatch.cli.output import number, publish
from driftwatch.lab.sweep import (
    DEFINITION,
    Degradation,
    Level,
    find_degradation,
    measure,
    simulated,
    with_gains,
)
from driftwatch.notify.numbers import milliseconds, times

_EXIT_NO_VERDICT = 4
_ROUNDS = 12  # requests of each user, warm-up and drain among them
_WARM_UP = 2  # of them, left out at the start
_FEWEST = 1_100  # requests of a level, and three more a user
_MOST_USERS = 4096
_HEADER = (
    *("users", "req/s", "tokens/s", "a user", "TTFT p50", "TTFT p99", "ITL ms", "e2e p50"),
    "e2e p99",
)


@click.command(name="sweep")
@option(
    "--concurrency levels",
    Numbers(int, 1, _MOST_USERS),
    "Users at once, one level after the other.",
    default="1,2,4,8,16,32,64,128,256",
)
@lengths_options(128, "Take the lengths from this request log or trace instead.")
@option(
    "--requests-per-level",
    click.IntRange(2, 10_000_000),
    f"Requests per level (default: {_ROUNDS} a user, at least {_FEWEST}).",
)
@json_option
@engine_options
def command(
    levels: tuple[int, ...], requests_per_level: int | None, as_json: bool, **flags: Any
) -> int:
    """Find the concurrency where latency starts to degrade, users sending in a closed loop.

    Simulated with the flags of a vLLM server. Exit code 0: answered; 4: nothing was served, or too
    little.
    """
    mix, notes = mix_of(flags, None if flags["file"] else _ROUNDS * _MOST_USERS)
    server = engine_from(flags)
    progress, reached = Progress("simulating"), list[Level]()
    for users in levels:
        progress(len(reached), len(levels))
        count = requests_per_level or max(_ROUNDS * users, _FEWEST + (_WARM_UP + 1) * users)
        sent = simulated(mix, server.configuration, server.step_time, users, count)
        reached.append(measure(users, sent, warm_up=_WARM_UP * users))
    progress.close()
    ranked = with_gains(reached)
    knee = find_degradation(ranked)
    document = {
        "configuration": asdict(server.configuration),
        "step_time": asdict(server.step_time),
        "workload": {
            "requests_file": flags["file"] and str(flags["file"]),
            "prompt_tokens_mean": float(mix.prompt_tokens.mean()),
            "generation_tokens_mean": float(mix.generation_tokens.mean()),
            "seed": flags["seed"],
        },
        "levels": [asdict(level) for level in ranked],
        "latency_degrades": {"definition": DEFINITION, **asdict(knee)},
    }
    table = (_HEADER, [_row(level, knee) for level in ranked])
    notes += server.notes
    publish(as_json, _line(ranked, knee), table, _details(ranked), document, notes)
    return _EXIT_NO_VERDICT if knee.degrades_at is knee.holds_to is None else 0


def _line(levels: Sequence[Level], where: Degradation) -> str:
    """The sentence that answers; what it means is part of it."""
    if where.degrades_at is None:
        if where.holds_to is None:
            return f"NO VERDICT: {where.reason}"
        return (
            f"No knee up to {where.holds_to} users: throughput still rises with every added user."
        )
    by_users = {level.concurrency: level for level in levels}
    before, after = by_users[where.holds_to or 0], by_users[where.degrades_at]
    rate = (after.requests_per_second or 0.0) / (before.requests_per_second or 1.0)
    early, late = before.e2e_seconds_mean or 0.0, after.e2e_seconds_mean or 0.0
    sure = "" if where.confirmed else " A higher level would confirm it."
    return (
        f"Latency starts to degrade at {where.degrades_at} users. From {where.holds_to} to "
        f"{where.degrades_at} users requests/s grow {times(rate)} and mean latency "
        f"{times(late / (early or 1.0))} ({milliseconds(early)} → {milliseconds(late)}): more than "
        f"half of the added users wait instead of being served.{sure}"
    )


def _row(level: Level, where: Degradation) -> tuple[str, ...]:
    """The figures of a level; the one where latency starts to degrade is marked with ``>``."""
    mark = ">" if level.concurrency == where.degrades_at else ""
    return (
        f"{mark}{level.concurrency}",
        number(level.requests_per_second),
        number(level.generation_tokens_per_second),
        number(level.generation_tokens_per_second_per_user),
        number(level.ttft_seconds_p50),
        number(level.ttft_seconds_p99),
        number(level.itl_seconds_mean, 1000),
        number(level.e2e_seconds_p50),
        number(level.e2e_seconds_p99),
    )


def _details(levels: Sequence[Level]) -> Iterator[str]:
    for level in levels:
        for why, count in level.failed_requests.items():
            yield (
                f"{level.concurrency} users: {count:,} of {level.sent_requests:,} requests failed: "
                f"{why}."
            )
        if level.requests_per_second is None:
            yield f"{level.concurrency} users: {level.reasons['requests_per_second']}."
    served = [level for level in levels if level.requests_per_second is not None]
    if any(level.e2e_seconds_p99 is None for level in served):
        yield "-: too few requests. p99 needs 100 (--requests-per-level)."

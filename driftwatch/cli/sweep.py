"""``driftwatch sweep``: closed loop at rising concurrency, simulated or against a live server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import click
import numpy as np

from driftwatch.cli.answer import OUTPUT, number, publish
from driftwatch.cli.engine_options import (
    FILE,
    engine_from,
    engine_options,
    lengths_options,
    mix_of,
    option,
    typed_flags,
    with_all,
)
from driftwatch.cli.finite import SECONDS, Numbers
from driftwatch.cli.options import Progress, print_note
from driftwatch.errors import UsageError
from driftwatch.lab.live import Server, base_url, is_loopback, read_key
from driftwatch.lab.sweep import (
    DEFINITION,
    NO_TOKENS,
    Degradation,
    Level,
    Sent,
    find_degradation,
    measure,
    simulated,
    with_gains,
)
from driftwatch.notify.numbers import milliseconds, times
from driftwatch.plots.plot import Plot, Series
from driftwatch.plots.plot import plot as draw
from driftwatch.plots.scales import Axis
from driftwatch.simulate.requests import Requests

Levels = Sequence[int]
Send = Callable[[int, int], Sent]  # users and number of requests → what became of them

_EXIT_NO_VERDICT = 4
_ROUNDS = 12  # requests of each user, warm-up and drain among them
_WARM_UP = 2  # of them, left out at the start
_FEWEST_SIMULATED, _FEWEST_LIVE = 1_100, 24
_MOST_USERS = 4096
_LIVE_ONLY = {"yes", "api_key_file", "level_seconds"}
_ENGINE_ONLY = {
    *("step_time", "gpu", "hardware", "dtype", "tensor_parallel_size", "max_num_seqs"),
    *("max_num_batched_tokens", "max_model_len", "settings"),
}
_LIVE_TIMEOUT_SECONDS = 120.0
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
@option("--url", text="A live OpenAI-compatible server instead of the simulator.", metavar="URL")
@lengths_options(128, "Take the lengths from this request log or trace instead.")
@option(
    "--requests-per-level",
    click.IntRange(2, 10_000_000),
    f"Requests per level (default: {_ROUNDS} a user; at least {_FEWEST_SIMULATED} in the "
    f"simulator, {_FEWEST_LIVE} with --url).",
)
@option(
    "--timeout-seconds",
    SECONDS,
    f"A user gives up after so long (default: {_LIVE_TIMEOUT_SECONDS:g} with --url, else never).",
)
@option("--level-seconds", SECONDS, "With --url: send nothing after so long.", default=60)
@option("--api-key-file", FILE, "With --url: file with its key (default: VLLM_API_KEY).")
@option("--yes", text="With --url: send the load without asking.", is_flag=True)
@with_all(OUTPUT)
@engine_options
@click.pass_context
def command(
    context: click.Context, /, levels: tuple[int, ...], requests_per_level: int | None, **flags: Any
) -> int:
    """Find the concurrency where latency starts to degrade, users sending in a closed loop.

    Simulated with the flags of a vLLM server, or with --url against a live one; with --url,
    --model is the served model name. Exit code 0: answered; 4: nothing was served, or too little.
    """
    without_effect = _LIVE_ONLY if flags["url"] is None else _ENGINE_ONLY
    if wrong := [flag for name, flag in typed_flags(context).items() if name in without_effect]:
        where = "not with --url: it is the server" if flags["url"] else "only with --url"
        raise UsageError(f"{', '.join(wrong)}: {where}", help_text=f"leave out {', '.join(wrong)}")
    mix, notes = mix_of(flags, None if flags["file"] else _ROUNDS * _MOST_USERS)
    counts = _counts(levels, requests_per_level, live=flags["url"] is not None)
    about, send = (_live if flags["url"] else _simulated)(mix, levels, counts, flags, notes)
    progress, reached = Progress("sending"), list[Level]()
    for users, count in zip(levels, counts, strict=True):
        progress(len(reached), len(levels))
        reached.append(level := measure(users, send(users, count), warm_up=_WARM_UP * users))
        if flags["url"] and 2 * sum(level.failed_requests.values()) > level.sent_requests:
            notes.append(f"stopped at concurrency {users}: most requests failed")
            break
    progress.close()
    ranked = with_gains(reached)
    knee = find_degradation(ranked)
    document = {
        **about,
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
    details, plots = _details(ranked), lambda: _plots(ranked, knee)
    publish(flags, _line(ranked, knee), table, details, document, notes, plots)
    return _EXIT_NO_VERDICT if knee.degrades_at is knee.holds_to is None else 0


def _counts(levels: tuple[int, ...], per_level: int | None, *, live: bool) -> list[int]:
    """How many requests each level sends."""
    fewest = _FEWEST_LIVE if live else _FEWEST_SIMULATED
    more = 0 if live else _WARM_UP + 1
    return [per_level or max(_ROUNDS * n, fewest + more * n) for n in levels]


def _simulated(
    mix: Requests, _: Levels, __: Levels, flags: Mapping[str, Any], notes: list[str]
) -> tuple[dict[str, Any], Send]:
    server = engine_from(flags)
    notes += server.notes
    about = {"configuration": asdict(server.configuration), "step_time": asdict(server.step_time)}
    engine = (server.configuration, server.step_time)
    send = partial(simulated, mix, *engine, flags["timeout_seconds"])
    return {"mode": "simulated", **about}, send


def _live(
    mix: Requests, levels: Levels, counts: Levels, flags: Mapping[str, Any], notes: list[str]
) -> tuple[dict[str, Any], Send]:
    """Ask the server what it takes, after what will be sent has been printed and confirmed."""
    base, loads = base_url(flags["url"]), [mix.at(np.zeros(count)) for count in counts]
    prompts = sum(int(one.prompt_tokens.sum()) for one in loads)
    answers = sum(int(one.generation_tokens.sum()) for one in loads)
    print_note(
        f"sends to {base}: up to {sum(counts):,} requests ({prompts:,} prompt and {answers:,} "
        f"generated tokens), {levels[0]} to {levels[-1]} at once, {flags['level_seconds']:g} s a "
        "level"
    )
    if not flags["yes"] and not is_loopback(base):
        if not sys.stdin.isatty():
            why = "this loads a server that is not on this machine"
            raise UsageError(why, help_text="give --yes to send it")
        click.confirm("Send it?", abort=True, err=True)
    timeout = flags["timeout_seconds"] or _LIVE_TIMEOUT_SECONDS
    server = Server(base, read_key(flags["api_key_file"]), timeout, flags["seed"])
    longest = max(int((one.prompt_tokens + one.generation_tokens).max()) for one in loads)
    notes += server.learn(flags["model"], round(float(loads[0].prompt_tokens.mean())), longest)
    about = {"mode": "live", "server": base, "model": server.model}
    return about, partial(server.run, mix, flags["level_seconds"])


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
    if any(level.generation_tokens_per_second is None for level in served):
        yield f"-: {NO_TOKENS}."


def _plots(levels: Sequence[Level], where: Degradation) -> Sequence[Plot]:
    served = [level for level in levels if level.requests_per_second is not None]
    if not served:
        return ()
    users = [float(level.concurrency) for level in served]
    x = Axis("users at once (closed loop), log scale", is_log=True)
    knee = () if where.degrades_at is None else (float(where.degrades_at),)
    mark = Series("ticks", "latency starts to degrade" if knee else "", knee, colour=3)

    def line(name: str, key: str, colour: int) -> Series:
        return Series("line", name, users, [getattr(one, key) for one in served], colour=colour)

    return (
        draw("Throughput", [line("", "requests_per_second", 0), mark], x, Axis("requests/s")),
        draw(
            "Latency",
            [
                line("end to end, p99", "e2e_seconds_p99", 1),
                line("end to end, p50", "e2e_seconds_p50", 0),
                line("to first token, p99", "ttft_seconds_p99", 2),
                mark,
            ],
            x,
            Axis("seconds, log scale", is_log=True),
        ),
    )

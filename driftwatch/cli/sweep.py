"""``driftwatch sweep``: closed loop at rising concurrency, simulated or against a live server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.answer import Answer, check_plot, number, publish
from driftwatch.cli.engine_options import (
    FILE,
    OUTPUT,
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
from driftwatch.notify.numbers import milliseconds, times

if TYPE_CHECKING:
    from driftwatch.lab.sweep import Degradation, Level
    from driftwatch.plots.plot import Plot
    from driftwatch.simulate.requests import Requests

_EXIT_NO_VERDICT, _EXIT_INTERRUPTED = 4, 130
_ROUNDS = 12  # requests of each user, warm-up and drain among them
_WARM_UP_ROUNDS = 2  # of them, left out at the start
_FEWEST_SIMULATED, _FEWEST_LIVE = 1_100, 24
_MOST_USERS = 4096
_LIVE_ONLY = ("yes", "api_key_file", "level_seconds")
_DEFAULT_TIMEOUT_SECONDS = 120.0
_HEADER = (
    *("users", "req/s", "tokens/s", "a user", "TTFT p50", "TTFT p99", "ITL ms", "e2e p50"),
    "e2e p99",
)


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent, at every level."""

    levels: tuple[int, ...]  # users, rising
    requests: Requests  # whose lengths are sent
    counts: tuple[int, ...]  # how many requests each level sends
    timeout_seconds: float | None  # of one request, None = none

    def lengths(self, count: int) -> tuple[Any, Any]:
        """Prompt and generation tokens of a level's requests, over again where there are fewer."""
        import numpy as np

        at = np.arange(count) % len(self.requests)
        return self.requests.prompt_tokens[at], self.requests.generation_tokens[at]


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
    f"A user gives up after so long (default: {_DEFAULT_TIMEOUT_SECONDS:g} with --url, "
    "else never).",
)
@option(
    "--level-seconds",
    SECONDS,
    "With --url: send nothing more at a level after so long.",
    default=60,
)
@option(
    "--api-key-file",
    FILE,
    "With --url: file with the server's key (default: the variable VLLM_API_KEY).",
)
@option("--yes", text="With --url: send the load without asking.", is_flag=True)
@with_all(OUTPUT)
@engine_options
@click.pass_context
def command(
    context: click.Context,
    /,
    levels: tuple[int, ...],
    url: str | None,
    prompt_tokens: float,
    generation_tokens: float,
    length_cv: float,
    file: Path | None,
    requests_per_level: int | None,
    timeout_seconds: float | None,
    seed: int,
    level_seconds: float,
    api_key_file: Path | None,
    yes: bool,
    plot: Path | None,
    as_json: bool,
    **engine: Any,
) -> None:
    """Find the concurrency where latency starts to degrade, users sending in a closed loop.

    Simulated with the flags of a vLLM server, or with --url against a live one; with --url,
    --model is the served model name. Exit code 0: answered; 4: nothing was served, or too little.
    """
    from driftwatch.lab.sweep import DEFINITION, find_degradation, with_gains

    check_plot(plot)
    _refuse_mixed(context, url, set(engine) - {"model"})
    most = None if file else _ROUNDS * _MOST_USERS
    mix, unused = mix_of(file, (prompt_tokens, generation_tokens), length_cv, seed, most)
    notes = list(unused)
    counts = _counts(levels, requests_per_level, live=url is not None)
    load = Load(levels, mix, counts, timeout_seconds)
    progress = Progress("simulating" if url is None else "sending")
    if url is None:
        about, run = _simulated(load, engine, notes, progress)
    else:
        live = (url, engine["model"], level_seconds, api_key_file, yes, seed)
        about, run = _live(load, *live, notes, progress)
    reached, interrupted = _until_interrupted(run, levels, notes)
    progress.close()
    ranked = with_gains(reached)
    where = find_degradation(ranked)
    document = {
        **about,
        "workload": {
            "requests_file": None if file is None else str(file),
            "prompt_tokens_mean": float(mix.prompt_tokens.mean()),
            "generation_tokens_mean": float(mix.generation_tokens.mean()),
            "seed": seed,
        },
        "levels": [asdict(level) for level in ranked],
        "latency_degrades": {"definition": DEFINITION, **asdict(where)},
    }
    answer = Answer(
        _line(ranked, where),
        _HEADER,
        [_row(level, where) for level in ranked],
        list(_details(ranked)),
        document,
        list(dict.fromkeys(notes)),
        lambda: _plots(ranked, where),
    )
    publish(answer, as_json=as_json, plot=plot)
    if interrupted:
        context.exit(_EXIT_INTERRUPTED)
    if where.degrades_at is None and where.holds_to is None:
        context.exit(_EXIT_NO_VERDICT)


def _counts(levels: tuple[int, ...], per_level: int | None, *, live: bool) -> tuple[int, ...]:
    """How many requests each level sends."""
    if per_level is not None:
        return (per_level,) * len(levels)
    if live:
        return tuple(max(_ROUNDS * n, _FEWEST_LIVE) for n in levels)
    return tuple(max(_ROUNDS * n, _FEWEST_SIMULATED + (_WARM_UP_ROUNDS + 1) * n) for n in levels)


def _until_interrupted(
    run: Iterator[Level], levels: tuple[int, ...], notes: list[str]
) -> tuple[list[Level], bool]:
    """The levels that were reached, and whether somebody ended it before the last one."""
    reached: list[Level] = []
    try:
        for level in run:
            reached.append(level)
    except KeyboardInterrupt:
        if not reached:
            raise
        notes.append(f"interrupted at concurrency {levels[len(reached)]}")
        return reached, True
    return reached, False


def _refuse_mixed(context: click.Context, url: str | None, engine: set[str]) -> None:
    """A flag that has no effect in this mode is a mistake, not a wish to be ignored."""
    without_effect = set(_LIVE_ONLY) if url is None else engine
    wrong = [flag for name, flag in typed_flags(context).items() if name in without_effect]
    if wrong:
        names = ", ".join(sorted(wrong))
        raise UsageError(
            f"{names}: {'only with --url' if url is None else 'not with --url: it is the server'}",
            help_text=f"leave out {names}" + (", or give --url" if url is None else ""),
        )


def _simulated(
    load: Load, engine: Mapping[str, Any], notes: list[str], progress: Progress
) -> tuple[dict[str, Any], Iterator[Level]]:
    from driftwatch.lab.sweep import simulated_level

    server = engine_from(**engine)
    notes += server.notes
    about = {
        "mode": "simulated",
        "configuration": asdict(server.configuration),
        "step_time": asdict(server.step_time),
    }

    def levels() -> Iterator[Level]:
        for done, (users, count) in enumerate(zip(load.levels, load.counts, strict=True)):
            progress(done, len(load.levels))
            level = simulated_level(
                load.requests,
                server.configuration,
                server.step_time,
                users,
                count=count,
                warm_up=_WARM_UP_ROUNDS * users,
                timeout_seconds=load.timeout_seconds,
            )
            if "rejected" in level.failed_requests:
                notes.append("simulated users whom the server refuses (503) ask again at once")
            yield level

    return about, levels()


def _live(
    load: Load,
    url: str,
    model: str | None,
    level_seconds: float,
    key_file: Path | None,
    yes: bool,
    seed: int,
    notes: list[str],
    progress: Progress,
) -> tuple[dict[str, Any], Iterator[Level]]:
    import numpy as np

    from driftwatch.lab.client import Connection, base_url, read_key
    from driftwatch.lab.live import choose_model, learn, live_levels

    base = base_url(url)
    timeout = load.timeout_seconds or _DEFAULT_TIMEOUT_SECONDS
    lengths = [load.lengths(count) for count in load.counts]
    _confirm(base, load, lengths, level_seconds, yes)
    key = read_key(key_file)
    rng = np.random.default_rng(seed)
    probe = Connection(base, key, timeout)
    try:
        longest = max(int((prompts + answers).max()) for prompts, answers in lengths)
        name = choose_model(probe, model, longest)
        dialect = learn(probe, name, round(float(lengths[0][0].mean())), rng)
    finally:
        probe.close()
    notes += dialect.notes
    run = live_levels(
        lambda: Connection(base, key, timeout),
        dialect,
        tuple(zip(load.levels, lengths, strict=True)),
        _WARM_UP_ROUNDS,
        level_seconds,
        rng,
        notes,
        progress,
    )
    return {"mode": "live", "server": base, "model": name}, run


def _confirm(base: str, load: Load, lengths: Any, level_seconds: float, yes: bool) -> None:
    """Print what will be sent, and have it confirmed unless the server is on this machine.

    Raises:
        UsageError: nobody can confirm it.
        click.Abort: the answer was no.
    """
    from driftwatch.lab.client import is_loopback

    prompts, answers = (
        sum(int(part.sum()) for part in column) for column in zip(*lengths, strict=True)
    )
    print_note(
        f"sends to {base}: up to {sum(load.counts):,} requests ({prompts:,} prompt and "
        f"{answers:,} generated tokens), {load.levels[0]} to {load.levels[-1]} at once, "
        f"{level_seconds:g} s a level, up to {level_seconds * len(load.levels):g} s until the last "
        "request is sent"
    )
    if yes or is_loopback(base):
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "this loads a server that is not on this machine", help_text="give --yes to send it"
        )
    click.confirm("Send it?", abort=True, err=True)


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
        if level.requests_per_second is None and level.reasons:
            yield f"{level.concurrency} users: {level.reasons['requests_per_second']}."
    served = [level for level in levels if level.requests_per_second is not None]
    reasons = {name: why for level in served for name, why in (level.reasons or {}).items()}
    if any(name.endswith("_p99") and why.startswith("needs") for name, why in reasons.items()):
        yield "-: too few requests. p99 needs 100 (--requests-per-level)."
    if "generation_tokens_per_second" in reasons:
        yield f"-: {reasons['generation_tokens_per_second']}."


def _plots(levels: Sequence[Level], where: Degradation) -> Sequence[Plot]:
    from driftwatch.plots.plot import Series, plot
    from driftwatch.plots.scales import Axis

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
        plot("Throughput", [line("", "requests_per_second", 0), mark], x, Axis("requests/s")),
        plot(
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

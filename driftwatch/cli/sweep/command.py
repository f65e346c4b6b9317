"""``driftwatch sweep``: closed loop at rising concurrency, simulated or against a live server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.engine_options import (
    FILE,
    engine_options,
    lengths_options,
    mix_of,
    option,
    typed_flags,
)
from driftwatch.cli.finite import SECONDS
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.lab.sweep import Degradation, Level
    from driftwatch.simulate.requests import Requests

_EXIT_NO_VERDICT, _EXIT_INTERRUPTED = 4, 130
_ROUNDS = 12  # requests of each user, warm-up and drain among them
_FEWEST_SIMULATED, _FEWEST_LIVE = 1_100, 24
_MOST_USERS = 4096
_LIVE_ONLY = ("yes", "api_key_file", "level_seconds")
_DEFAULT_TIMEOUT_SECONDS = 120.0


class Levels(click.ParamType[Any]):
    """Numbers of users, separated by commas."""

    name = "n,n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to sorted whole numbers without repetition."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdecimal() and len(word) < 6 for word in words):
            self.fail(f"{value!r} is no list of whole numbers, e.g. 1,2,4,8", param, ctx)
        levels = tuple(sorted({int(word) for word in words}))
        if levels[0] < 1 or levels[-1] > _MOST_USERS:
            self.fail(f"concurrency is from 1 to {_MOST_USERS}", param, ctx)
        return levels


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is sent, at every level."""

    levels: tuple[int, ...]  # users, rising
    requests: Requests  # whose lengths are sent
    counts: tuple[int, ...]  # how many requests each level sends
    warm_up_rounds: int  # of each user, left out
    timeout_seconds: float | None  # of one request, None = none

    def lengths(self, count: int) -> tuple[Any, Any]:
        """Prompt and generation tokens of a level's requests, over again where there are fewer."""
        import numpy as np

        at = np.arange(count) % len(self.requests)
        return self.requests.prompt_tokens[at], self.requests.generation_tokens[at]


@click.command(name="sweep")
@option(
    "--concurrency levels",
    Levels(),
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
    "--warm-up-rounds",
    click.IntRange(0, 10_000),
    "Requests of each user that are left out at the start.",
    default=2,
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
@option("--plot", FILE, "Draw the answer into this .svg or .png file.")
@option("--json as_json", text="Print one JSON document.", is_flag=True)
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
    warm_up_rounds: int,
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
    from driftwatch.cli.simulate.chart import check_plot
    from driftwatch.lab.sweep import find_degradation, with_gains

    if plot is not None:
        check_plot(plot)
    _refuse_mixed(context, url, set(engine) - {"model"})
    most = None if file else _ROUNDS * _MOST_USERS
    mix, unused = mix_of(file, (prompt_tokens, generation_tokens), length_cv, seed, most)
    notes = list(unused)
    counts = _counts(levels, requests_per_level, warm_up_rounds, live=url is not None)
    plan = SweepPlan(levels, mix, counts, warm_up_rounds, timeout_seconds)
    if url is None:
        about, run = _simulated(plan, engine, notes)
    else:
        about, run = _live(
            plan, url, engine["model"], level_seconds, api_key_file, yes, seed, notes
        )
    reached, interrupted = _until_interrupted(run, levels, notes)
    ranked = with_gains(reached)
    where = find_degradation(ranked)
    about["workload"] = {
        "requests_file": None if file is None else str(file),
        "prompt_tokens_mean": float(mix.prompt_tokens.mean()),
        "generation_tokens_mean": float(mix.generation_tokens.mean()),
        "seed": seed,
    }
    _print(ranked, where, about, list(dict.fromkeys(notes)), as_json)
    if plot is not None and any(level.requests_per_second for level in ranked):
        from driftwatch.cli.sweep.plot import draw

        draw(plot, ranked, where)
    if interrupted:
        context.exit(_EXIT_INTERRUPTED)
    if where.degrades_at is None and where.holds_to is None:
        context.exit(_EXIT_NO_VERDICT)


def _counts(
    levels: tuple[int, ...], per_level: int | None, warm_up_rounds: int, *, live: bool
) -> tuple[int, ...]:
    """How many requests each level sends."""
    if per_level is not None:
        return (per_level,) * len(levels)
    if live:
        return tuple(max(_ROUNDS * n, _FEWEST_LIVE) for n in levels)
    return tuple(max(_ROUNDS * n, _FEWEST_SIMULATED + (warm_up_rounds + 1) * n) for n in levels)


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


def _print(
    ranked: Sequence[Level],
    where: Degradation,
    about: dict[str, Any],
    notes: list[str],
    as_json: bool,
) -> None:
    from driftwatch.cli.options import print_note
    from driftwatch.cli.sweep.table import print_document, print_levels, print_verdict

    if as_json:
        print_document(ranked, where, {**about, "notes": notes})
        return
    for note in notes:
        print_note(note)
    print_levels(ranked, where)
    print_verdict(ranked, where)


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
    plan: SweepPlan, engine: dict[str, Any], notes: list[str]
) -> tuple[dict[str, Any], Iterator[Level]]:
    from driftwatch.cli.engine_options import engine_from
    from driftwatch.cli.options import Progress
    from driftwatch.lab.sweep import simulated_level

    server = engine_from(**engine)
    notes += server.notes
    about = {
        "mode": "simulated",
        "configuration": asdict(server.configuration),
        "step_time": asdict(server.step_time),
    }

    def levels() -> Iterator[Level]:
        progress = Progress("simulating")
        try:
            for done, (users, count) in enumerate(zip(plan.levels, plan.counts, strict=True)):
                progress(done, len(plan.levels))
                level = simulated_level(
                    plan.requests,
                    server.configuration,
                    server.step_time,
                    users,
                    count=count,
                    warm_up=plan.warm_up_rounds * users,
                    timeout_seconds=plan.timeout_seconds,
                )
                if "rejected" in level.failed_requests:
                    notes.append("simulated users whom the server refuses (503) ask again at once")
                yield level
        finally:
            progress.close()

    return about, levels()


def _live(
    plan: SweepPlan,
    url: str,
    model: str | None,
    level_seconds: float,
    key_file: Path | None,
    yes: bool,
    seed: int,
    notes: list[str],
) -> tuple[dict[str, Any], Iterator[Level]]:
    import numpy as np

    from driftwatch.cli.sweep.client import Connection, base_url
    from driftwatch.cli.sweep.guard import announce, read_key
    from driftwatch.cli.sweep.live import choose_model, learn, live_levels

    base = base_url(url)
    timeout = plan.timeout_seconds or _DEFAULT_TIMEOUT_SECONDS
    lengths = [plan.lengths(count) for count in plan.counts]
    tokens = [sum(int(part.sum()) for part in column) for column in zip(*lengths, strict=True)]
    announce(base, plan.levels, sum(plan.counts), (tokens[0], tokens[1]), level_seconds, yes)
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
    about = {"mode": "live", "server": base, "model": name}
    run = live_levels(
        lambda: Connection(base, key, timeout),
        dialect,
        tuple(zip(plan.levels, lengths, strict=True)),
        plan.warm_up_rounds,
        level_seconds,
        rng,
        notes,
    )
    return about, run

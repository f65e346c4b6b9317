"""``driftwatch simulate compare``: ways of batching, the same steps and requests."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.engine_options import FILE, engine_from, engine_options, option, typed_flags
from driftwatch.cli.options import print_note
from driftwatch.cli.simulate.compare.options import (
    OF_CAUSES,
    OF_LENGTHS,
    OF_PADDING,
    OWN,
    Counts,
    compare_options,
)
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.cli.engine_options import EngineSetup
    from driftwatch.cli.simulate.compare.text import Comparison
    from driftwatch.lab.batchers.mixes import Mix
    from driftwatch.lab.batchers.policies import Settings

_EXIT_NO_VERDICT = 4
_MOST_REQUESTS = 2_000_000


@click.command("compare")
@compare_options
@engine_options
@option("--padding", text="Print only what padding wastes of these lengths.", is_flag=True)
@option("--lengths", Counts(), "With --padding: these lengths, in tokens.")
@option(
    "--causes",
    text="Print only where the factor from static to continuous comes from, at one rate.",
    is_flag=True,
)
@option("--plot", FILE, "Draw throughput, latency and time to first token: FILE.svg or FILE.png.")
@option("--json as_json", text="Print one JSON document.", is_flag=True)
def command(
    padding: bool,
    lengths: tuple[int, ...] | None,
    causes: bool,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare ways of batching: static, dynamic, continuous, hybrid, back-pressure.

    The same requests with Poisson arrivals at each of --rates (or from --concurrency clients), one
    step-time model. Exit code 4: no policy keeps up at any load.
    """
    own = {name: options.pop(name) for name in OWN}  # the others are the engine's
    if lengths is not None and not padding:
        raise UsageError("--lengths belongs to --padding", help_text="add --padding")
    _refuse_unused(padding, causes, lengths is not None)
    if plot is not None:
        from driftwatch.cli.simulate.chart import check_plot

        check_plot(plot)
    if padding:
        from driftwatch.cli.simulate.compare.padding import print_padding

        prompts = lengths if lengths is not None else _mix(own)[0].prompt_tokens
        _refuse_value_errors(
            lambda: print_padding(
                prompts, own["batch_size"], own["bucket_tokens"] or (), lengths is None, as_json
            )
        )
        return
    if own["rates"] and own["concurrency"]:
        raise UsageError(
            "--rates and --concurrency exclude each other",
            help_text="--rates for arrivals that do not wait, --concurrency for clients that do",
        )
    mix, unused = _mix(own)
    setup = engine_from(**options)
    setup = replace(setup, notes=(*unused, *setup.notes))
    for note in setup.notes:
        print_note(note)
    settings = _settings(own, setup)
    from driftwatch.cli.simulate.compare import text

    if causes:
        rate, variants = _refuse_value_errors(lambda: _causes(own, settings, mix, setup))
        text.print_causes(rate, variants, as_json)
        return
    compared = _refuse_value_errors(lambda: _compare(own, settings, mix, setup))
    text.print_comparison(compared, as_json)
    if plot is not None:
        from driftwatch.cli.simulate.compare.plot import draw

        draw(plot, compared, text.title(compared))
    if not any(fit.best for fit in compared.fits):
        click.get_current_context().exit(_EXIT_NO_VERDICT)


def _refuse_value_errors(answer: Any) -> Any:
    """What the simulator calls impossible is a wrong command line here."""
    try:
        return answer()
    except ValueError as error:
        raise UsageError(
            str(error), help_text="driftwatch simulate compare --help lists what each option takes"
        ) from error


def _refuse_unused(padding: bool, causes: bool, given_lengths: bool) -> None:
    """A flag without effect is a mistake, not a wish to be ignored."""
    if padding and causes:
        raise UsageError(
            "--padding and --causes exclude each other", help_text="ask for one of them"
        )
    context = click.get_current_context()
    used: frozenset[str] = frozenset(context.params)
    if padding:
        used, what = (
            (OF_LENGTHS, "--padding --lengths") if given_lengths else (OF_PADDING, "--padding")
        )
    elif causes:
        used, what = (used - OWN - {"plot"}) | OF_CAUSES, "--causes"
    wrong = [flag for name, flag in typed_flags(context).items() if name not in used]
    if wrong:
        raise UsageError(
            f"{', '.join(wrong)}: not used with {what}", help_text=f"leave out {', '.join(wrong)}"
        )


def _mix(own: dict[str, Any]) -> tuple[Mix, tuple[str, ...]]:
    """The requests that are served at every load, and what of their file is not used."""
    import numpy as np

    from driftwatch.lab.batchers.mixes import Mix, lognormal_lengths

    notes: list[str] = []
    generated = own["prompt_tokens"] is not None or own["generation_tokens"] is not None
    if own["requests_file"] is not None:
        if generated:
            raise UsageError(
                "--requests and --prompt-tokens/--generation-tokens exclude each other",
                help_text="leave out one of them",
            )
        from driftwatch.simulate.workload import read_workload

        workload = read_workload(own["requests_file"])
        requests, notes = workload.requests, [*workload.notes]
        prompts, generations = requests.prompt_tokens, requests.generation_tokens
        columns = {
            "prefixes": (requests.shared_prefix_tokens > 0) | (requests.cached_tokens > 0),
            "priorities": requests.priority != 0,
            "cancellations": np.isfinite(requests.cancel_seconds),
            "adapters": requests.adapter >= 0,
        }
        if dropped := [name for name, there in columns.items() if there.any()]:
            notes.append(f"only lengths are compared: {', '.join(dropped)} of the file not used")
    else:
        if own["prompt_tokens"] is None or own["generation_tokens"] is None:
            raise UsageError(
                "which requests?",
                help_text="--requests FILE, or --prompt-tokens MEAN and --generation-tokens MEAN",
            )
        count, seed = own["mix_size"], own["seed"]
        prompts = lognormal_lengths(own["prompt_tokens"], own["prompt_cv"], count, (seed, 3))
        generations = lognormal_lengths(
            own["generation_tokens"], own["generation_cv"], count, (seed, 4)
        )
    mix = Mix(prompts, generations, own["seed"], own["cancel_ratio"], own["cancel_after_seconds"])
    return mix, tuple(notes)


def _settings(own: dict[str, Any], setup: EngineSetup) -> Settings:
    from driftwatch.lab.batchers.policies import Settings

    options = {f.name: own[f.name] for f in fields(Settings) if f.name in own}
    options["bucket_tokens"] = options["bucket_tokens"] or ()
    return Settings(setup.configuration, **options)


def _causes(own: dict[str, Any], settings: Settings, mix: Mix, setup: EngineSetup) -> Any:
    """The rate (80 % of the static batch's own capacity unless one is given) and the rungs."""
    from driftwatch.lab.batchers.comparison import capacity, causes
    from driftwatch.lab.batchers.policies import STATIC, policy_named

    if own["concurrency"]:
        raise UsageError("--causes needs a rate, not --concurrency", help_text="--rates 10")
    rates = own["rates"]
    if rates and len(rates) > 1:
        raise UsageError("--causes takes one rate", help_text="--rates 10")
    if rates:
        rate = rates[0]
    else:
        most = capacity(policy_named(STATIC, settings), mix, setup.step_time)
        if most is None:
            raise UsageError("all requests end at one time: give more of them, or --rates")
        rate = float(f"{0.8 * most:.2g}")
    _check_size(rate, own["duration_seconds"])
    return rate, causes(settings, mix, setup.step_time, rate, seconds=own["duration_seconds"])


def _check_size(rate: float, seconds: float) -> None:
    if rate * seconds > _MOST_REQUESTS:
        raise UsageError(
            f"{rate:g} requests/s for {seconds:g} s are {rate * seconds:,.0f} requests; at most "
            f"{_MOST_REQUESTS:,} are simulated",
            help_text="give a smaller --duration-seconds",
        )


def _compare(own: dict[str, Any], settings: Settings, mix: Mix, setup: EngineSetup) -> Comparison:
    from driftwatch.cli.options import Progress
    from driftwatch.cli.simulate.compare.text import Comparison
    from driftwatch.lab.batchers import comparison as compare
    from driftwatch.lab.batchers.comparison import ROUNDS
    from driftwatch.lab.batchers.policies import CONTINUOUS, policy_named

    step_time = setup.step_time
    policies = [policy_named(name, settings) for name in own["policies"]]
    closed = bool(own["concurrency"])
    if own["rates"]:
        _check_size(max(own["rates"]), own["duration_seconds"])
    most = {p.name: compare.capacity(p, mix, step_time) for p in policies}
    loads = own["rates"] or tuple(sorted(set(own["concurrency"] or ())))
    if closed and ROUNDS * loads[-1] > _MOST_REQUESTS:
        raise UsageError(
            f"at most {_MOST_REQUESTS // ROUNDS:,} clients are simulated",
            help_text="lower --concurrency",
        )
    if not loads:
        top = most.get(CONTINUOUS) or compare.capacity(
            policy_named(CONTINUOUS, settings), mix, step_time
        )
        if top is None:
            raise UsageError(
                "all requests end at one time: no capacity to choose --rates from",
                help_text="--rates 5,10,20",
            )
        loads = compare.ladder(top)
        _check_size(max(loads), own["duration_seconds"])
    limit, limit_source = own["slo_p99_seconds"], "--slo-p99-seconds"
    if limit is None:
        alone = compare.alone_p99_seconds(mix, step_time)
        limit = own["knee_factor"] * alone
        limit_source = f"{own['knee_factor']:g} × the p99 of requests served alone"
    progress, points = Progress("comparing"), []
    options = {"closed": closed, "seconds": own["duration_seconds"], "limit_seconds": limit}
    for policy in policies:
        for load in loads:
            points.append(compare.measure(policy, mix, step_time, load, **options))
            progress(len(points), len(policies) * len(loads))
    progress.close()
    knees = tuple(
        compare.knee([p for p in points if p.policy == policy.name], limit) for policy in policies
    )
    return Comparison(
        settings=settings,
        step_time=step_time,
        closed=closed,
        loads=tuple(float(load) for load in loads),
        points=tuple(points),
        capacities=most,
        limit_seconds=limit,
        limit_source=limit_source,
        knees=knees,
        fits=compare.fits(points),
        requests=len(mix.prompt_tokens),
        mean_prompt_tokens=float(mix.prompt_tokens.mean()),
        mean_generation_tokens=float(mix.generation_tokens.mean()),
        seed=own["seed"],
        notes=setup.notes,
    )

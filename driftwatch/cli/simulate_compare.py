"""``driftwatch simulate compare``: ways of batching on one clock, one law, the same requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.simulate_compare_options import Counts, compare_options
from driftwatch.cli.simulate_options import engine_from, engine_options
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.cli.simulate_compare_text import Comparison
    from driftwatch.cli.simulate_options import EngineAsked
    from driftwatch.simulate.batchers.mixes import Mix
    from driftwatch.simulate.batchers.policies import Settings

_EXIT_NO_VERDICT = 4
_MOST_REQUESTS = 2_000_000


@click.command("compare")
@compare_options
@engine_options
@click.option("--padding", is_flag=True, help="Print only what padding wastes of these lengths.")
@click.option("--lengths", type=Counts(), help="With --padding: these lengths, in tokens.")
@click.option(
    "--causes",
    is_flag=True,
    help="Print only where the factor from static to continuous comes from, at one rate.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw throughput, latency and time to first token: FILE.svg or FILE.png.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
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
    step-time law. Exit code 4: no policy keeps up at any load.
    """
    own, engine = _apart(options)
    if lengths is not None and not padding:
        raise UsageError("--lengths belongs to --padding")
    if padding:
        from driftwatch.cli.simulate_compare_padding import print_padding

        found = lengths if lengths is not None else _mix(own).prompt_tokens
        _refuse_value_errors(
            lambda: print_padding(
                found, own["batch_size"], own["buckets"] or (), lengths is None, as_json
            )
        )
        return
    if plot is not None and plot.suffix not in (".svg", ".png"):
        raise UsageError(f"{plot}: --plot writes .svg or .png")
    if own["rates"] and own["concurrency"]:
        raise UsageError("--rates and --concurrency exclude each other")
    mix = _mix(own)
    asked = engine_from(**engine)
    for note in asked.notes:
        click.echo(f"note: {note}", err=True)
    settings = _settings(own, asked)
    from driftwatch.cli import simulate_compare_text as text

    if causes:
        rate, found = _refuse_value_errors(lambda: _causes(own, settings, mix, asked))
        text.print_causes(rate, found, as_json)
        return
    compared = _refuse_value_errors(lambda: _compare(own, settings, mix, asked))
    text.print_comparison(compared, as_json)
    if plot is not None:
        from driftwatch.cli.simulate_compare_plot import draw

        draw(plot, compared, text.title(compared))
    if not any(fit.best for fit in compared.fits):
        click.get_current_context().exit(_EXIT_NO_VERDICT)


def _apart(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """This command's options, and those of the engine."""
    from driftwatch.cli.simulate_compare_options import OWN

    own = {name: value for name, value in options.items() if name in OWN}
    return own, {name: value for name, value in options.items() if name not in OWN}


def _refuse_value_errors(answer: Any) -> Any:
    """What the simulator calls impossible is a wrong command line here."""
    try:
        return answer()
    except ValueError as error:
        raise UsageError(str(error)) from error


def _mix(own: dict[str, Any]) -> Mix:
    """The requests that are served at every load."""
    from driftwatch.simulate.batchers.mixes import Mix, lognormal_lengths

    generated = own["prompt_tokens"] is not None or own["generation_tokens"] is not None
    if own["requests_file"] is not None:
        if generated:
            raise UsageError(
                "--requests and --prompt-tokens/--generation-tokens exclude each other"
            )
        from driftwatch.simulate.workload import read_requests

        read = read_requests(own["requests_file"])
        prompts, generations = read.prompt_tokens, read.generation_tokens
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
    return Mix(prompts, generations, own["seed"], own["cancel_ratio"], own["cancel_after_seconds"])


def _settings(own: dict[str, Any], asked: EngineAsked) -> Settings:
    from driftwatch.simulate.batchers.policies import Settings

    return Settings(
        configuration=asked.configuration,
        batch_size=own["batch_size"],
        max_wait_seconds=own["max_wait_seconds"],
        bucket_tokens=own["buckets"] or (),
        prefill_share_ratio=own["prefill_share"],
        queue_limit=own["queue_limit"],
        reject_share_ratio=own["reject_share"],
        retry_seconds=own["retry_seconds"],
        timeout_seconds=own["timeout_seconds"],
        free_given_up=own["free_given_up"],
    )


def _causes(own: dict[str, Any], settings: Settings, mix: Mix, asked: EngineAsked) -> Any:
    """The rate (80 % of the static batch's own capacity unless one is given) and the rungs."""
    from driftwatch.simulate.batchers.causes import causes
    from driftwatch.simulate.batchers.comparison import capacity
    from driftwatch.simulate.batchers.policies import STATIC, policy_named

    if own["concurrency"]:
        raise UsageError("--causes needs a rate, not --concurrency")
    rates = own["rates"]
    if rates and len(rates) > 1:
        raise UsageError("--causes takes one rate")
    if rates:
        rate = rates[0]
    else:
        most = capacity(policy_named(STATIC, settings), mix, asked.step_time)
        if most is None:
            raise UsageError("all requests end at one time: give more of them, or --rates")
        rate = float(f"{0.8 * most:.2g}")
    _check_size(rate, own["duration_seconds"])
    return rate, causes(settings, mix, asked.step_time, rate, seconds=own["duration_seconds"])


def _check_size(rate: float, seconds: float) -> None:
    if rate * seconds > _MOST_REQUESTS:
        raise UsageError(
            f"{rate:g} requests/s for {seconds:g} s are {rate * seconds:,.0f} requests; at most "
            f"{_MOST_REQUESTS:,} are simulated",
            help_text="give a smaller --duration-seconds",
        )


def _compare(own: dict[str, Any], settings: Settings, mix: Mix, asked: EngineAsked) -> Comparison:
    from driftwatch.cli.options import Progress
    from driftwatch.cli.simulate_compare_text import Comparison
    from driftwatch.simulate.batchers import comparison as compare
    from driftwatch.simulate.batchers.comparison import ROUNDS
    from driftwatch.simulate.batchers.policies import CONTINUOUS, policy_named

    law = asked.step_time
    policies = [policy_named(name, settings) for name in own["policies"]]
    closed = bool(own["concurrency"])
    if own["rates"]:
        _check_size(max(own["rates"]), own["duration_seconds"])
    most = {p.name: compare.capacity(p, mix, law) for p in policies}
    loads = own["rates"] or tuple(sorted(set(own["concurrency"] or ())))
    if closed and ROUNDS * loads[-1] > _MOST_REQUESTS:
        raise UsageError(f"at most {_MOST_REQUESTS // ROUNDS:,} clients are simulated")
    if not loads:
        top = most.get(CONTINUOUS) or compare.capacity(policy_named(CONTINUOUS, settings), mix, law)
        if top is None:
            raise UsageError("all requests end at one time: no capacity to choose --rates from")
        loads = compare.ladder(top)
        _check_size(max(loads), own["duration_seconds"])
    limit, said = own["slo_p99_seconds"], "--slo-p99-seconds"
    if limit is None:
        alone = compare.alone_p99_seconds(mix, law)
        limit = own["knee_factor"] * alone
        said = f"{own['knee_factor']:g} × the p99 of requests served alone"
    progress = Progress("comparing")
    points = []
    for policy in policies:
        for load in loads:
            points.append(
                compare.measure(
                    policy,
                    mix,
                    law,
                    load,
                    closed=closed,
                    seconds=own["duration_seconds"],
                    limit_seconds=limit,
                )
            )
            progress(len(points), len(policies) * len(loads))
    progress.close()
    knees = tuple(
        compare.knee([p for p in points if p.policy == policy.name], limit) for policy in policies
    )
    return Comparison(
        settings=settings,
        law=law,
        closed=closed,
        loads=tuple(float(load) for load in loads),
        points=tuple(points),
        capacities=most,
        limit_seconds=limit,
        limit_said=said,
        knees=knees,
        fits=compare.fits(points),
        requests=len(mix.prompt_tokens),
        mean_prompt_tokens=float(mix.prompt_tokens.mean()),
        mean_generation_tokens=float(mix.generation_tokens.mean()),
        seed=own["seed"],
        notes=asked.notes,
    )

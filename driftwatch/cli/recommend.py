"""``driftwatch recommend``: one change that is worth a restart, or none, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT
from driftwatch.cli.options import (
    DURATION,
    FILE,
    NOT_OF_INCIDENTS,
    SLO,
    WINDOW_OPTIONS,
    history_options,
    json_option,
    option,
    repeat_options,
)
from driftwatch.cli.printer import print_json
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.cli.target import Evaluated, TargetWindow
    from driftwatch.model import Advice
    from driftwatch.pipeline.plan import Plan
    from driftwatch.recommend.advice import Answer, Question

_LONGEST = timedelta(hours=1)
_EVIDENCE = timedelta(minutes=10)  # as ``explain`` looks back
_SHORTEST = timedelta(minutes=1)
_LARGEST = 10_000_000  # of a knob: more is a typing error


@click.command(name="recommend")
@click.argument("target", metavar="[SERVER|POOL]", required=False)
@option(
    "--window length",
    DURATION,
    "Length of the window (default: since the traffic last changed, 1h at most).",
)
@option(
    "--slo",
    SLO,
    "Latency targets to judge by: ttft=1s,tpot=50ms,share=0.95 (default: the pool's, else "
    "twice the baseline's p95).",
)
@option(
    "--what-if",
    str,
    "Ask about this value as well: max_num_seqs=512, replicas=3, prefix_hit_ratio=0.5; repeat "
    "it: all of them form one configuration.",
    multiple=True,
    metavar="KNOB=VALUE",
)
@option(
    "--requests log",
    FILE,
    "The request log of the window (JSONL, CSV), in any order: exact arrivals.",
)
@option(
    "--model",
    str,
    "The model, or its config.json (- reads it from standard input).",
    metavar="NAME",
)
@option("--gpu", str, "The GPU, or a YAML file of it, if no metric names it.", metavar="NAME")
@json_option
@history_options(*WINDOW_OPTIONS)
def command(
    target: str | None,
    length: timedelta | None,
    as_json: bool,
    what_if: tuple[str, ...],
    history: History,
    **rest: Any,
) -> int:
    """Simulate a server's traffic under other settings: advise one change or none, with its cost.

    Of a pool, driftwatch takes a server that an open page concerns, else the one with the longest
    queue.

    driftwatch rebuilds the requests (from --recording, else the database), fits the step time of
    the server, and simulates vLLM's scheduler with other settings. It never changes a server: it
    prints the change. Exit code 0: answered, also where nothing is to be changed; 4: no advice, and
    the output names the check that failed and what would settle it.
    """
    from driftwatch.cli.target import target_window
    from driftwatch.clock import SystemClock
    from driftwatch.pipeline.explain import DEFAULT_TREE
    from driftwatch.recommend.advise import advise
    from driftwatch.simulate.hardware import shipped_hardware

    values, today = parse_what_ifs(what_if), SystemClock().now().date()
    tables = shipped_hardware()
    for name, read in ((rest["model"], tables.model), (rest["gpu"], tables.gpu)):
        if name is not None:
            read(name)
    if length is not None and length < _SHORTEST:
        raise UsageError(
            f"--window {length.total_seconds():g}s holds no whole minute", help_text="--window 10m"
        )
    with target_window(target, history, _EVIDENCE, today=today, until_last=True) as scope:
        evaluated = scope.evaluated(length or _LONGEST, DEFAULT_TREE, finding_needed=False)
        moment = replace(evaluated.moment, before=_page_advice(scope))
        evaluated = replace(evaluated, moment=moment)
        question = _question(evaluated, scope.plan, length, values, rest)
    advice = advise(question, hardware=tables)
    if as_json:
        _print_json(advice, scope)
    else:
        _print(advice, scope)
    refused = advice.advice.action == "insufficient"
    return EXIT_NO_VERDICT if refused else EXIT_ANSWERED


def _page_advice(scope: TargetWindow) -> Advice | None:
    """The change that an open page of the server advises."""
    end = scope.window.end + timedelta(seconds=1)
    for one in scope.incidents():
        for row in reversed(scope.store.advices(one.firing_at or end, end)):
            if row.incident_id == one.id and row.answer.advice.action == "change":
                return row.answer.advice
    return None


def _question(
    evaluated: Evaluated,
    plan: Plan,
    length: timedelta | None,
    what_if: dict[str, float],
    options: dict[str, Any],
) -> Question:
    from driftwatch.pipeline.question import Options, question_for
    from driftwatch.simulate.workload.requests_file import read_requests

    log = options.pop("log")
    requests = None if log is None else read_requests(log, any_order=True)
    stated = Options(window=length, what_if=what_if, log=requests, **options)
    diagnosis = None if evaluated.finding is None else evaluated.finding.diagnosis
    leaf = None if diagnosis is None else diagnosis.leaf
    return question_for(evaluated.moment, plan, leaf, stated)


def _print_json(advice: Answer, scope: TargetWindow) -> None:
    """The advice with whose it is and the change as people type it."""
    from driftwatch.notify.advice import vllm_arguments

    moves, target = advice.advice.moves, scope.target
    document = {
        "target": {
            "instance": target.key.instance,
            "engine": target.key.engine,
            "pool": target.pool,
            **dict(sorted(target.labels.items())),
        },
        **advice.document(),
        "change": {"vllm_arguments": vllm_arguments(moves).split()} if moves else None,
    }
    print_json(document, indent=2)


def _print(advice: Answer, scope: TargetWindow) -> None:
    from driftwatch.cli.recommend_text import rendered
    from driftwatch.notify.layout import paint
    from driftwatch.receivers.stdout import wants_colour

    text = rendered(
        advice,
        scope.target.key.text,
        today=scope.today,
        next_command=_next(advice, scope),
        piped=not sys.stdout.isatty(),
    )
    click.echo(paint(text, wants_colour(sys.stdout)))


def _next(advice: Answer, scope: TargetWindow) -> str | None:
    """What to type once the advice was followed; None where it names what it lacks."""
    target, action = scope.target.key.text, advice.advice.action
    if action == "change":
        return f"driftwatch verify {target}{repeat_options(without=['baseline'])}"
    if action == "insufficient" or not scope.history.is_stored:
        return None
    return f"driftwatch incidents{repeat_options(without=NOT_OF_INCIDENTS)}"


def parse_what_ifs(texts: tuple[str, ...]) -> dict[str, float]:
    """``--what-if`` texts as knob → value; errors as :func:`knob_values`."""
    from driftwatch.recommend.alternatives import WHAT_IFS

    return knob_values(texts, "--what-if", WHAT_IFS)


def knob_values(texts: tuple[str, ...], option: str, names: Sequence[str]) -> dict[str, float]:
    """``max_num_seqs=64`` of an option as knob → value; ``names``: those that it takes.

    Raises UsageError: with every text that cannot be.
    """
    from driftwatch.yaml_models import near

    targets: dict[str, float] = {}
    wrong: list[str] = []
    for text in texts:
        name, equals, amount = (piece.strip() for piece in text.partition("="))
        name = name.replace("-", "_")
        if not equals:
            wrong.append(f"{text!r} is no KNOB=VALUE")
        elif name not in names:
            wrong.append("; ".join(filter(None, (f"no knob {name!r}", near(name, names)))))
        elif name in targets:
            wrong.append(f"{name} is given twice")
        elif (value := _knob_value(name, amount)) is None:
            bound = "between 0 and 1" if name.endswith("_ratio") else "a whole number of 1 or more"
            wrong.append(f"{name} is {bound}, not {amount!r}")
        else:
            targets[name] = value
    if wrong:
        raise UsageError(f"{option}: {'; '.join(wrong)}", help_text=f"knobs: {', '.join(names)}")
    return targets


def _knob_value(name: str, amount: str) -> float | None:
    try:
        value = float(amount)
    except ValueError:
        return None
    if name.endswith("_ratio"):
        return value if 0 <= value < 1 else None
    return value if 1 <= value <= _LARGEST and value == int(value) else None

"""What the judge is asked on the command line, and which stretches that means."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from driftwatch.fleet.scenario.file import shipped_scenarios
from truth_judge.mixed_pools import HELD_OUT, WORKING, Traces
from truth_judge.recordings import recorded_cases
from truth_judge.sets import SETS, SIZES, Draw, detection_draws, draws

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
EXPLAINS = {"quick": 0, "smoke": 2, "standard": 8, "full": 24}
WHATIFS = {"quick": 0, "smoke": 2, "standard": 5, "full": 24}


def options_of(argv: Sequence[str] | None, description: str) -> argparse.Namespace:
    """The options; exits where they do not go together."""
    parser = _parser(description)
    given = parser.parse_args(argv)
    if given.merge:
        return given
    if given.seed is None:
        parser.error("the following arguments are required: --seed")
    for name, most in (("explain_moments", EXPLAINS), ("recommend_episodes", WHATIFS)):
        if getattr(given, name) is None:  # detection alone asks neither
            setattr(given, name, 0 if given.detection else most[given.set])
    if not given.only:
        return given
    every = drawn(given)
    known = {draw.name for draw in every} | {case.name for case in recorded_cases(vllm_runs(given))}
    if unknown := sorted(set(given.only) - known - {draw_name(draw) for draw in every}):
        parser.error(
            f"no stretch of the set {given.set} is called {', '.join(unknown)}; "
            f"there are: {', '.join(sorted(known))}, and NAME-SEED for one draw"
        )
    return given


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=_seed, help="everything is drawn from it")
    parser.add_argument("--set", choices=SETS, default="smoke")
    parser.add_argument("--detection", action="store_true", help="the detection figures alone")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="all figures, for machines")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("--data", type=Path, default=DATA, help="recorded runs, golden schedules")
    parser.add_argument("--servegen", type=Path, metavar="DIR", help="the whole ServeGen dataset")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="only these stretches; NAME-SEED (its folder under --keep): one draw of several",
    )
    for option, each in (("--explain-moments", EXPLAINS), ("--recommend-episodes", WHATIFS)):
        parser.add_argument(
            option,
            type=_seed,
            metavar="N",
            help="of a stretch, drawn by its seed, at most; "
            + ", ".join(f"{name} {most}" for name, most in each.items()),
        )
    parser.add_argument(
        "--held-out", action="store_true", help="traffic that nobody works with: at the end, once"
    )
    parser.add_argument(
        "--show",
        choices=("false", "wrong", "missed"),
        help="print each false page, each wrong one, or each episode that nobody was told of",
    )
    parser.add_argument("--prometheus", action="store_true", help="once through a real Prometheus")
    parser.add_argument("--page", type=Path, help="a Markdown page whose figures are made anew")
    parser.add_argument("--date", help="printed beside the figures")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep recordings and truth there, and use those that are",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        metavar="FILE.json",
        help="run nothing: put together what --out wrote of several runs",
    )
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def draw_name(draw: Draw) -> str:
    """What names one draw of several: its files, and it alone to ``--only``."""
    return f"{draw.name}-{draw.seed}"


def drawn(given: argparse.Namespace) -> list[Draw]:
    if given.detection:
        return list(detection_draws(given.set, given.seed, given.servegen))
    shipped = {s.name: s.servers * s.duration / 3600 for s in shipped_scenarios()}
    return list(draws(SIZES[given.set], given.seed, shipped, _traces(given)))


def _traces(given: argparse.Namespace) -> Traces:
    """Whose requests the mixed fleets get: those for working, unless the end has come."""
    folder = given.servegen or given.data / "servegen"
    of = HELD_OUT if given.held_out else WORKING
    return replace(of, servegen=folder if folder.is_dir() else None)


def vllm_runs(given: argparse.Namespace) -> Path:
    return Path(given.data) / "vllm-0.32"

"""What the judge is asked on the command line, and which stretches that means."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from driftwatch.fleet.scenario.file import shipped_scenarios
from truth_judge.mixed_pools import HELD_OUT, WORKING
from truth_judge.recordings import recorded_cases
from truth_judge.sets import SETS, SIZES, Draw, draws

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def options_of(argv: Sequence[str] | None, description: str) -> argparse.Namespace:
    """The options; exits where they do not go together."""
    parser = _parser(description)
    given = parser.parse_args(argv)
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
    parser.add_argument("--seed", type=_seed, required=True, help="everything is drawn from it")
    parser.add_argument("--set", choices=SETS, default="smoke")
    parser.add_argument("--out", metavar="FILE.json", help="all figures, for machines", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("--data", default=DATA, help="recorded runs", type=Path)
    parser.add_argument("--servegen", metavar="DIR", help="the whole ServeGen dataset", type=Path)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="these alone; or NAME-SEED"
    )
    parser.add_argument(
        "--held-out", action="store_true", help="traffic that nobody works with: at the end, once"
    )
    parser.add_argument(
        "--show",
        choices=("false", "wrong", "missed"),
        help="print each false page, each wrong one, or each episode that nobody was told of",
    )
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="NAME=TREE",
        type=_tree,
        help="replay with the driftwatch of another checkout too, and print its figures beside",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep what came of each draw, to go on with"
    )
    parser.add_argument("--page", help="a Markdown page whose figures are made anew", type=Path)
    parser.add_argument("--date", help="printed beside the figures")
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _tree(text: str) -> tuple[str, Path]:
    name, _, tree = text.partition("=")
    if not (Path(tree) / "driftwatch").is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: {tree or 'no folder'} has no driftwatch/")
    return name, Path(tree).resolve()


def draw_name(draw: Draw) -> str:
    """What names one draw of several: its files, and it alone to ``--only``."""
    return f"{draw.name}-{draw.seed}"


def drawn(given: argparse.Namespace) -> list[Draw]:
    """Everything of the set; its traffic is for working, unless the end has come."""
    shipped = {s.name: s.servers * s.duration / 3600 for s in shipped_scenarios()}
    folder = given.servegen or given.data / "servegen"
    of = HELD_OUT if given.held_out else WORKING
    traces = replace(of, servegen=folder if folder.is_dir() else None)
    return list(draws(SIZES[given.set], given.seed, shipped, traces))


def vllm_runs(given: argparse.Namespace) -> Path:
    return Path(given.data) / "vllm-0.32"

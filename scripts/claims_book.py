"""What ``scripts/claims`` is made of: a claim, its request files, and how commands are run."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from driftwatch.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("build/claims")
TRACE = "driftwatch/fleet/traffic_data/azure_2023_conv.parquet"
LONGEST = 16_000  # tokens of a prompt that was made longer


@dataclass(frozen=True)
class Ran:
    """What one command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output, which must be JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Claim:
    """One line of the book.

    Attributes:
        title: the claim in a few words; a heading of docs/claims.md.
        met: the claim as the field puts it; empty where that is the title.
        commands: that measure it, run from the repository's root; each starts with driftwatch.
        measured: what their answers say: a verdict and a sentence with the figures.
        therefore: what driftwatch does.
        files: names in FILES that the commands read.
        cheap: run by the tests.
    """

    title: str
    met: str
    commands: tuple[str, ...]
    measured: Callable[[Sequence[Ran]], tuple[str, str]]
    therefore: str
    files: tuple[str, ...] = ()
    cheap: bool = False


@dataclass(frozen=True)
class RequestFile:
    """A request log that is made, not shipped.

    Attributes:
        recipe: how, in words; all that is needed to make it again.
        make: its columns.
    """

    recipe: str
    make: Callable[[], dict[str, np.ndarray]]

    def write(self, path: Path) -> None:
        """CSV with a header; times to the microsecond."""
        columns = self.make()
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            shown = [
                [f"{v:.6f}" for v in values] if values.dtype.kind == "f" else values.tolist()
                for values in columns.values()
            ]
            writer.writerows(zip(*shown, strict=True))


@dataclass
class Runner:
    """Runs commands once each, however many claims share them.

    Attributes:
        answers: by command, as run so far.
    """

    answers: dict[str, Ran] = field(default_factory=dict)

    def run(self, command: str) -> Ran:
        """The command's answer: driftwatch's own entry point, its output taken as if piped."""
        if command not in self.answers:
            words = shlex.split(command)
            if words[0] != "driftwatch":
                raise ValueError(f"{command}: not a command of driftwatch")
            out, err = io.StringIO(), io.StringIO()
            kept = sys.argv
            code: object = 0
            try:
                sys.argv = words
                with redirect_stdout(out), redirect_stderr(err), contextlib.chdir(ROOT):
                    main()
            except SystemExit as left:
                code = left.code or 0
            finally:
                sys.argv = kept
            if not isinstance(code, int):
                raise TypeError(f"{command}: exit code {code!r}")
            self.answers[command] = Ran(code, out.getvalue(), err.getvalue())
        return self.answers[command]


def arrivals(rate: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Poisson."""
    return np.cumsum(rng.exponential(1 / rate, count))


def azure(count: int | None = None) -> dict[str, np.ndarray]:
    """The shipped trace's arrivals and lengths."""
    table = pl.read_parquet(ROOT / TRACE).head(count or 10**9)
    return {
        "arrival_seconds": table["arrival_seconds"].cast(pl.Float64).to_numpy(),
        "prompt_tokens": table["prompt_tokens"].cast(pl.Int64).to_numpy(),
        "generation_tokens": table["generation_tokens"].cast(pl.Int64).to_numpy(),
    }

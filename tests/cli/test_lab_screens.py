"""The screens of plan, sweep, simulate and compare, whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
H100 = ("plan", "--gpu", "H100-80GB", "--model", "llama-3.1-8b", "--max-model-len", "16384")
SHORT = ("--prompt-tokens", "300", "--generation-tokens", "40", "--max-num-seqs", "64")
FLAT = ("--step-time", "0.004,0,0,0", "--prompt-tokens", "20", "--generation-tokens", "6")
COMPARE = (
    *("compare", "--prompt-tokens", "200", "--generation-tokens", "20"),
    *("--step-time", "0.007,2e-5,2e-5,1e-8", "--max-num-seqs", "64"),
)
LOG = "arrival_seconds,prompt_tokens,generation_tokens\n"
RUN = ("simulate", "--requests", "log.csv", "--step-time", "0.02,1e-4,1e-3,0")

SCREENS: dict[str, tuple[str, ...]] = {
    "plan": (*H100, *SHORT, "--slo", "tpot=20ms"),
    "plan-too-big": ("plan", "--gpu", "H100", "--model", "llama-3.1-70b"),
    "sweep": ("plan", *FLAT, "--max-num-seqs", "8", "--users", "2,4,8,16,32"),
    "sweep-refused": (
        *("plan", *FLAT, "--max-num-seqs", "2", "--max-num-queued-reqs", "2"),
        *("--users", "2,8"),
    ),
    "simulate": (*RUN, "--max-num-seqs", "2"),
    "simulate-waits": (
        *("simulate", "--concurrency", "4", "--prompt-tokens", "300", "--max-num-seqs", "1"),
        *("--step-time", "0.02,1e-4,1e-3,0"),
    ),
    "compare": (*COMPARE, "--rates", "5,20,60"),
}


@pytest.fixture
def files(run: Run) -> None:
    rows = "".join(f"{i},300,40\n" for i in range(200))
    Path("log.csv").write_text(LOG + rows)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(
    run: Run, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(*SCREENS[name], terminal=True)
    notes = "".join(f"{line}\n" for line in err.splitlines() if line.startswith("note: "))
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "…" not in out and "\t" not in out
    golden(f"lab/{name}.txt", f"{out}{notes}exit {code}\n")

"""`helm template . | driftwatch rules check -`, and files that are no regular ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHART = (Path(__file__).parent / "corpus" / "leaderworkerset.yaml").read_text(encoding="utf-8")
RULES = (Path(__file__).parents[2] / "rules" / "gpu.yaml").read_text(encoding="utf-8")


def _check(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "driftwatch", "rules", "check", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_a_rendered_chart_comes_through_a_pipe() -> None:
    code, output, errors = _check("-", "--vllm-version", "0.32", stdin=CHART)
    assert (code, errors) == (1, "")
    assert output.splitlines()[-1] == "2 errors in 1 file, 1 command line"
    assert (
        "<stdin>:16:70: error[removed-flag] vLLM 0.32 has no --swap-space: 0.18 removed it"
        in output
    )


def test_nothing_comes_through_the_pipe() -> None:
    code, output, _ = _check("-")
    assert (code, output.splitlines()) == (
        3,
        [
            "<stdin>: warning[no-command-line] no command line of vLLM is here: "
            "nothing was checked",
            "1 warning in 1 file, 0 command lines",
        ],
    )


def test_rules_come_through_a_named_pipe(tmp_path: Path) -> None:
    import os

    pipe = tmp_path / "rules.yaml"
    os.mkfifo(pipe)
    with subprocess.Popen(
        ["sh", "-c", f"cat > {pipe}"], stdin=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        writer.stdin.write(RULES)
        writer.stdin.close()
        code, output, _ = _check(str(pipe))
    assert code == 0
    assert output.startswith("0 errors in 1 file, ")

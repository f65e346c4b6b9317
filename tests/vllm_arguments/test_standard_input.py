"""`helm template . | driftwatch check -`, and files that are no regular ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHART = (Path(__file__).parent / "corpus" / "leaderworkerset.yaml").read_text(encoding="utf-8")
RULES = (Path(__file__).parents[2] / "rules" / "gpu.yaml").read_text(encoding="utf-8")


def _check(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "driftwatch", "check", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_a_rendered_chart_comes_through_a_pipe() -> None:
    code, output, errors = _check("-", stdin=CHART)
    assert (code, errors) == (3, "")
    assert output.startswith(
        "<stdin>:16:70: warning[removed-flag] vLLM 0.18 removed --swap-space\n"
    )
    assert output.splitlines()[-1] == "1 warning in 1 file, 1 command line"


def test_rules_come_through_a_named_pipe(tmp_path: Path) -> None:
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

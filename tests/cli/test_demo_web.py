"""``driftwatch demo --web``: what was played, in a browser."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from driftwatch.cli.demo.command import command
from driftwatch.cli.demo.web import is_for_web


def test_the_recorded_servers_incident_is_served_as_it_fires_until_ctrl_c(tmp_path: Path) -> None:
    typed = [sys.executable, "-m", "driftwatch", "demo", "--fast", "--web"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(typed, text=True, cwd=tmp_path, **pipes) as demo:
        assert demo.stdout is not None and demo.stderr is not None
        try:
            lines: list[str] = []
            while not lines or "sign in with the token" not in lines[-1]:
                lines.append(next(demo.stdout))
            address = re.search(r"^open: +(http://127\.0\.0\.1:\d+/incidents/\w{12})$", lines[-3])
            assert address is not None, "".join(lines[-5:])
            assert lines[-2] == "         as of 08:44 UTC; it is served until Ctrl-C\n"
            view = httpx.get(f"{address[1]}.json", trust_env=False, timeout=30).json()
            assert (view["state"], view["alert"]) == ("firing", "BatchLimitBinding")
            assert view["change"]["vllm_arguments"] == "--max-num-seqs=16"
            assert view["headline"] in " ".join("".join(lines).split())  # as it was printed
            demo.send_signal(signal.SIGINT)
            assert (demo.wait(30), demo.stderr.read()) == (0, "")
        finally:
            demo.kill()


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["--scenario", "slower-20", "--web", "--live"], "give --web alone"),
        (["--scenario", "slower-20", "--web", "--write", "x"], "give --web alone"),
        (["--for", "1s"], "--for needs --live or --web"),
        (["--no-web", "--for", "1s"], "--for needs --live or --web"),
    ],
)
def test_options_that_contradict_each_other(typed: list[str], text: str) -> None:
    result = CliRunner().invoke(command, typed)
    assert text in str(result.exception)


def test_only_a_terminal_is_served_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("CI", raising=False)
    assert is_for_web(None, Terminal())
    assert not is_for_web(None, io.StringIO())
    assert not is_for_web(False, Terminal())
    assert is_for_web(True, io.StringIO())
    monkeypatch.setenv("CI", "true")
    assert not is_for_web(None, Terminal())


@pytest.mark.parametrize("typed", [["web", "--db", "none.db"], ["demo", "--web", "--fast"]])
def test_without_the_extra_both_name_it(typed: list[str], tmp_path: Path) -> None:
    missing = "sys.modules['starlette'] = sys.modules['uvicorn'] = None"
    main = "from driftwatch.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; {missing}; {main}", *typed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    error, help_text = ran.stderr.splitlines()
    assert error == "error: the web is not installed" and "'vllm-driftwatch[web]'" in help_text

"""watch and run at servers that answer nothing, and what one tick says it did."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from driftwatch.cli.main import main
from driftwatch.testing.exposition_server import ReplayedExposition

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)

    def typed(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["driftwatch", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, said.out, said.err

    yield typed
    structlog.reset_defaults()  # its stderr is this test's own


@pytest.fixture
def closed() -> str:
    """The address of a port on which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}/metrics"


@pytest.fixture
def server(shared_data: Path) -> Iterator[ReplayedExposition]:
    page = (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()
    with ReplayedExposition([(0.0, page)], clock=lambda: 0.0) as running:
        yield running


def test_watch_that_never_got_a_page(run: Run, closed: str) -> None:
    code, out, _ = run("watch", closed, "--interval", "1s", "--for", "1s")
    assert code == 1
    first, *more = [line for line in out.splitlines() if "NO DATA" in line]
    assert re.fullmatch(r"\d\d:\d\d:\d\d UTC  127.0.0.1:\d+  NO DATA: connection refused", first)
    assert more == []
    assert max(map(len, out.splitlines())) <= 80


def test_watch_calls_two_pages_of_one_host_by_their_paths(run: Run, closed: str) -> None:
    one, other = closed.replace("/metrics", "/a"), closed.replace("/metrics", "/b")
    code, out, _ = run("watch", one, other, "--interval", "1s", "--for", "1s")
    assert code == 1
    named = [line.split("  ")[1] for line in out.splitlines() if "NO DATA" in line]
    assert named == [one.removeprefix("http://"), other.removeprefix("http://")]


def test_watch_that_got_one(run: Run, server: ReplayedExposition) -> None:
    code, _, _ = run("watch", server.url, "--interval", "1s", "--for", "1s")
    assert code == 0


def test_run_once_says_what_it_did(run: Run, server: ReplayedExposition, closed: str) -> None:
    Path("driftwatch.yaml").write_text(f"sources: [{{pages: ['{server.url}', '{closed}']}}]\n")
    code, out, err = run("run", "--once")
    assert code == 0
    assert out == (
        "1 scrapes, 1 failed, 0 minutes evaluated, 0 incidents fired or resolved, 0 pages sent, "
        "0 not taken\n"
    )
    assert "no data" in err and "connection refused" in err


def test_doctor_takes_the_configuration_that_lies_here(run: Run, closed: str) -> None:
    code, _, err = run("doctor")
    assert code == 2
    assert "there is no ./driftwatch.yaml" in err
    Path("driftwatch.yaml").write_text(
        f"sources: [{{pages: ['{closed}']}}]\n"
        "receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]\n"
    )
    code, out, _ = run("doctor")
    text = " ".join(out.split())
    assert code == 1
    assert "connection refused" in text
    assert "is vLLM running there, and is the address right?" in text
    assert "MISSING oncall" in text and "slack.url" in text
    Path("slack.url").write_text("https://hooks.slack.example/x\n")
    assert "MISSING oncall" not in run("doctor")[1]


def test_doctor_without_a_configuration_names_the_flags(
    run: Run, server: ReplayedExposition
) -> None:
    code, out, _ = run("doctor", server.url)
    text = " ".join(out.split())
    assert code == 1
    for flag in ("--max-num-seqs N", "--startup-log FILE", "--baseline FROM..TO"):
        assert flag in text


def test_a_label_that_nothing_has_is_warned_of(run: Run) -> None:
    assert run("db", "upgrade")[0] == 0
    code, out, err = run("silence", "instnce=a", "alert=X", "--for", "1h")
    assert code == 0
    assert out.startswith("silence ")
    assert err == "warning: no target here has a label instnce; did you mean instance?\n"
    assert run("silence", "instance=a", "--for", "1h")[2] == ""

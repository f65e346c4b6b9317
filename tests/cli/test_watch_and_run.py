"""watch and run at servers that answer nothing, and what one tick says it did."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.exposition_server import ReplayedExposition

Run = Callable[..., tuple[int, str, str]]


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
    # the folder's name is as long as it is: a line may end within it
    tight = "".join(out.split())
    assert "MISSINGoncall" in tight and "slack.url" in tight
    Path("slack.url").write_text("https://hooks.slack.example/x\n")
    assert "MISSING oncall" not in run("doctor")[1]


def test_a_silence_of_a_server_that_is_not_there_yet(run: Run) -> None:
    assert run("db", "upgrade")[0] == 0
    assert run("silence", "instance=a", "--for", "1h")[0] == 0  # no server is known at all


def test_watch_says_at_once_that_a_server_answers(run: Run, server: ReplayedExposition) -> None:
    _, out, _ = run("watch", server.url, "--interval", "1s", "--for", "1s")
    first = " ".join(out.splitlines()[:2])
    assert re.match(r"\d\d:\d\d:\d\d UTC  127.0.0.1:\d+  answers; its first minute is", first)


@pytest.mark.parametrize(
    ("url", "why", "help_text"),
    [
        ("foo", "'foo' names no port", "driftwatch watch http://foo:8000/metrics"),
        ("http://me:secret@h:8000/metrics", "holds a user or a password", "proxy"),
    ],
)
def test_watch_refuses_an_address_that_is_none(
    run: Run, url: str, why: str, help_text: str
) -> None:
    code, out, err = run("watch", url, "--for", "1s")
    assert (code, out) == (2, "")
    assert why in err
    assert help_text in err
    assert "secret" not in err


def test_a_configuration_that_is_not_there_names_init(run: Run) -> None:
    code, _, err = run("run")
    assert code == 2
    assert "there is no configuration driftwatch.yaml" in err
    assert "driftwatch init writes one" in err


def test_a_full_disk_is_an_error_without_a_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/x/scrapes.parquet")

    monkeypatch.setattr("driftwatch.cli.main.command_of", full)
    code, _, err = run("demo")
    assert code == 2
    assert err == "error: /x/scrapes.parquet: No space left on device\n"


def test_a_queue_of_its_own_needs_a_database_that_several_processes_write_to(run: Run) -> None:
    Path("driftwatch.yaml").write_text("sources: [{pages: [http://h:8000/metrics]}]\n")
    code, _, error = run("run", "--queue", "ticks")
    assert code == 2
    assert "--queue needs PostgreSQL, and the database is" in error

"""watch and run at servers that answer nothing, and what one tick says it did."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_cases import Run
from fakes.exposition_server import ReplayedExposition

from driftwatch.cli.watch import _Screen
from driftwatch.evidence import BY_NAME, TEXTS
from driftwatch.pipeline.state import Outcome
from driftwatch.signals.minutes import MINUTE_SCHEMA


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


def test_watch_asks_only_for_the_flags_that_are_missing(
    capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    row: dict[str, Any] = dict.fromkeys((*BY_NAME, *TEXTS, *MINUTE_SCHEMA))
    row |= {"instance": "a:1", "engine": "0", "end": datetime(2026, 1, 5, 12, tzinfo=UTC)}
    row |= {"scrapes": 4.0}
    for given in ({"max_num_seqs": 8.0}, {}):
        minute = pl.DataFrame([row | given])
        _Screen({}, to_stderr=False).show(Outcome(minute, pl.DataFrame()))
        screen = capsys.readouterr().out
        assert ("--max-num-seqs" in screen) == (not given)
        assert "--max-num-batched-tokens" in screen
    golden("cli/watch-nothing-known.txt", screen)


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


def test_what_run_needs_is_named(run: Run) -> None:
    code, _, error = run("run")
    assert code == 2
    assert "there is no configuration driftwatch.yaml" in error
    assert "driftwatch init writes one" in error

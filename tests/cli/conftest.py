"""The command line as it is typed, for every test of a verb."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from command_cases import START, Run

from driftwatch.cli.main import main
from driftwatch.incidents.incident import Incident
from driftwatch.store.store import Store, TickRecord


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """`run("plan", "--gpu", "B200")` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def typed(*words: object, terminal: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["driftwatch", *map(str, words)])
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert isinstance(left.value.code, int)
        return left.value.code, printed.out, printed.err

    yield typed
    structlog.reset_defaults()  # its stderr is this test's own


@pytest.fixture
def fill(tmp_path: Path) -> Callable[..., Path]:
    def with_these(*incidents: Incident, name: str = "driftwatch.db") -> Path:
        path = tmp_path / name
        with Store.open(path) as store:
            store.commit_tick(TickRecord(incidents=incidents, until=START))
            for one in incidents:
                if one.acknowledgement is not None:
                    store.acknowledge(one.id, one.acknowledgement.by, one.acknowledgement.at)
        return path

    return with_these

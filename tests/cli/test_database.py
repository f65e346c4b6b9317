"""Which database a command works on, what it says without one, and driftwatch db."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_cases import Run, incident

from driftwatch.store.tables import SCHEMA_REVISION as SCHEMA

pytestmark = pytest.mark.usefixtures("migrations_run")


VERBS = [("incidents",), ("ack", "a")]


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_database_is_named_and_none_is_made(
    run: Run, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    code, out, err = run(*verb, "--db", "nowhere.db")
    assert (code, out) == (2, "")
    assert "there is no database nowhere.db" in err
    assert "help: " in err
    assert list(tmp_path.iterdir()) == []


def test_which_database_goes_before_which(
    run: Run, fill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"a": "flag.db", "b": "variable.db", "c": "file.db", "d": "driftwatch.db"}
    for digit, name in names.items():
        fill(incident(digit), name=name)
    other = tmp_path / "other"
    other.mkdir()
    (other / "dw.yaml").write_text("database: ../file.db\n")

    def first(*arguments: str) -> str:
        code, out, _ = run("incidents", *arguments)
        assert code == 0
        return out.splitlines()[1][0]

    assert first() == "d"
    assert first("-c", "other/dw.yaml") == "c"
    (tmp_path / "driftwatch.yaml").write_text("database: file.db\n")
    assert first() == "c"
    monkeypatch.setenv("DRIFTWATCH_DATABASE", str(tmp_path / "variable.db"))
    assert first() == "b"
    # the environment goes before `database` of any file, as it does for driftwatch run
    assert first("-c", "other/dw.yaml") == "b"
    assert first("--db", "flag.db", "-c", "other/dw.yaml") == "a"
    assert run("ack", "b" * 12, "--by", "ann")[0] == 0
    monkeypatch.setenv("DRIFTWATCH_DATABASE", "")
    assert first() == "c"


def test_a_configuration_with_a_problem_is_not_passed_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text("databse: file.db\n")
    code, _, err = run("incidents")
    assert code == 2
    assert "driftwatch.yaml:1:1: error[unknown-key]" in err
    assert "did you mean database?" in err


def test_upgrading_and_asking(run: Run, tmp_path: Path) -> None:
    assert run("db", "upgrade")[:2] == (0, f"driftwatch.db: schema none -> {SCHEMA}\n")
    assert run("db", "upgrade")[:2] == (
        0,
        f"driftwatch.db: schema {SCHEMA}, nothing to do\n",
    )
    (tmp_path / "empty.db").touch()
    assert run("incidents", "--db", "empty.db")[0] == 2

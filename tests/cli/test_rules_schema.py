"""`driftwatch rules schema`: the published files, printed or written for an editor."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Run

SCHEMAS = Path(__file__).resolve().parents[2] / "rules" / "schemas"


def test_what_the_command_prints_and_writes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("rules", "tree", "test", "config"):
        assert run("rules", "schema", kind)[1] == (SCHEMAS / f"{kind}.schema.json").read_text()
    assert run("rules", "schema")[1] == run("rules", "schema", "rules")[1]
    code, out, _ = run("rules", "schema", "tree", "--write", "editor/schemas")
    line = "# yaml-language-server: $schema=../schemas/tree.schema.json"
    place = "line 1 of trees in trees/ beside editor/schemas:\n"
    wrote = f"wrote editor/schemas/tree.schema.json\n{place}"
    assert (code, out) == (0, f"{wrote}  {line}\n")
    assert Path("editor/schemas/tree.schema.json").read_text() == run("rules", "schema", "tree")[1]
    Path("file").touch()
    assert run("rules", "schema", "--write", "file/there")[0] == 2

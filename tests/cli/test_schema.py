"""`driftwatch schema`: the schemas, printed or written for an editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Run


def test_what_the_command_prints_and_writes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("page", "rules"):
        assert json.loads(run("schema", kind)[1])["title"] == f"driftwatch {kind}"
    assert "verification" in run("schema")[1].splitlines()
    code, out, _ = run("schema", "tree", "--write", "editor/schemas")
    line = "# yaml-language-server: $schema=../schemas/tree.schema.json"
    place = "line 1 of trees in trees/ beside editor/schemas:\n"
    wrote = f"wrote editor/schemas/tree.schema.json\n{place}"
    assert (code, out) == (0, f"{wrote}  {line}\n")
    assert Path("editor/schemas/tree.schema.json").read_text() == run("schema", "tree")[1]
    Path("file").touch()
    assert run("schema", "--write", "file/there")[0] == 2

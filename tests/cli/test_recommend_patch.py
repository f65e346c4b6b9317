"""``driftwatch recommend --patch``: the file with the change, and a pull request's text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import driftwatch
from driftwatch.cli.main import main

RECORDED = Path(driftwatch.__file__).parent / "_demo" / "run_cap.jsonl.gz"
VALUES = """\
# values of the chart
servingEngineSpec:
  modelSpec:
  - name: "tiny"   # ours
    vllmConfig:
        maxNumSeqs:   8    # tuned in May
        extraArgs: ["--max-num-batched-tokens=2048"]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "values.yaml"
    path.write_text(VALUES, encoding="utf-8")
    return path


def _run(monkeypatch: pytest.MonkeyPatch, *more: str, at: str = "2026-11-21T08:30Z") -> int:
    typed = ["driftwatch", "recommend", "--recording", str(RECORDED), "--at", at, *more]
    monkeypatch.setattr(sys, "argv", typed)
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_the_file_is_patched_and_the_request_has_forecast_price_and_undo(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Callable[[str, str], None],
) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + VALUES.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    beside = file.with_name("link.yaml")
    beside.symlink_to(file)
    assert _run(monkeypatch, "--patch", "link.yaml", "--json") == 0
    out, err = capsys.readouterr()
    assert err == "link.yaml:6:23: max_num_seqs 8 → 16\n"
    after = VALUES.replace("maxNumSeqs:   8 ", "maxNumSeqs:   16 ").replace("\n", "\r\n")
    assert file.read_bytes() == b"\xef\xbb\xbf" + after.encode()
    assert file.stat().st_mode & 0o777 == 0o640 and beside.is_symlink()
    assert sorted(path.name for path in file.parent.iterdir()) == ["link.yaml", "values.yaml"]
    patch = json.loads(out)["patch"]
    edit = {"knob": "max_num_seqs", "line": 6, "column": 23, "from": "8", "to": "16"}
    assert (patch["file"], patch["edits"]) == ("link.yaml", [edit])
    golden("cli/pull_request.txt", patch["pull_request"].replace(str(RECORDED), "RUN") + "\n")
    assert "tuned in May" not in patch["pull_request"]  # no line of the file: it may have secrets


def test_without_advice_nothing_is_written(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--window", "2m", "--patch", "values.yaml")
    assert _run(monkeypatch, *arguments, at="2026-11-21T08:22Z") == 4
    out, err = capsys.readouterr()
    assert out.startswith("No advice for host:8000: ")
    assert "values.yaml: nothing written, no setting is to be changed\n" in err
    assert file.read_text(encoding="utf-8") == VALUES


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("values.yaml", "values.yaml: error[read-only] the file is read-only"),
        ("missing.yaml", "missing.yaml: error[unreadable] cannot be read: no such file"),
        ("values.yaml:3", "values.yaml:6:9: error[several-servers] server 1 of 1 in this file"),
        ("latin.yaml", "latin.yaml:1:6: error[encoding] byte 0xfc is not UTF-8"),
        (".", ".: error[unreadable] cannot be read: is a directory"),
        ("driftwatch.yaml", "driftwatch.yaml:1:1: error[no-server] this is a configuration of"),
    ],
)
def test_a_file_that_cannot_be_patched_is_refused_before_anything_runs(
    file: Path,
    name: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file.with_name("latin.yaml").write_bytes(b"key: \xfc\n")
    own = "sources: [{nvml: true}]\npools: [{name: p, serving: {max_num_seqs: 8}}]\n"
    file.with_name("driftwatch.yaml").write_text(own, encoding="utf-8")
    if name == "values.yaml":
        file.chmod(0o444)
    # the target does not exist: it would be refused, had anything been read of it
    assert _run(monkeypatch, "nobody:1", "--patch", name) == 2
    out, err = capsys.readouterr()
    assert out == "" and problem in err and "nobody" not in err
    assert file.read_text(encoding="utf-8") == VALUES

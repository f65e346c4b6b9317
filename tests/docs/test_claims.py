"""docs/claims.md says what the commands say: the cheap ones are run here, all by make claims."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "claims"
PAGE = ROOT / "docs" / "claims.md"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        loader = importlib.machinery.SourceFileLoader("claims_script", str(SCRIPT))
        spec = importlib.util.spec_from_loader("claims_script", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return module


def test_what_the_page_says_is_what_the_commands_say() -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--check", "--cheap"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_another_figure_on_the_page_is_noticed(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "512 KiB a token" in text
    page = tmp_path / "claims.md"
    page.write_text(text.replace("512 KiB a token", "40 KiB a token"), encoding="utf-8")
    monkeypatch.setattr(script, "PAGE", page)
    assert script.main(["--check", "--cheap"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "The KV cache takes 40 KB a token"


def test_every_claim_stands_on_the_page(script: ModuleType) -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", text, flags=re.M | re.S))
    claims = [claim for _, _, chapter in script.CHAPTERS for claim in chapter]
    assert [claim.title for claim in claims] == list(sections)
    for claim in claims:
        assert bool(claim.commands) != ("**Not measured.**" in sections[claim.title]), claim.title


def test_the_commands_of_every_claim_are_printed(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--commands"]) == 0
    parts = dict(re.findall(r"^# (.+?)\n(.*?)\n\n", capsys.readouterr().out, flags=re.M | re.S))
    claims = [claim for _, _, chapter in script.CHAPTERS for claim in chapter]
    assert {claim.title: "\n".join(claim.commands) for claim in claims} == parts


def test_every_request_file_is_described_and_made_by_its_recipe(
    script: ModuleType, tmp_path: Path
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, file in script.FILES.items():
        assert f"`build/claims/{name}`" in text
        file.write(tmp_path / "one.csv")
        file.write(tmp_path / "two.csv")
        assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    used = {name for _, _, chapter in script.CHAPTERS for c in chapter for name in c.files}
    assert used == set(script.FILES)


def test_a_wrong_argument_is_said(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--fast"]) == 2
    assert "unknown argument --fast" in capsys.readouterr().err

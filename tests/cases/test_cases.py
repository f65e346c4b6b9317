"""Every case of this folder, played; `pytest tests/cases --update-golden` rewrites transcripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from case_files import play, read_case

from driftwatch.cli.main import main

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "data"
CASES = sorted(path.relative_to(HERE).as_posix() for path in HERE.rglob("*.txt"))


@pytest.mark.parametrize("name", CASES)
def test_case(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = read_case(HERE / name)
    shared = SHARED.resolve() if SHARED.is_dir() else None
    if shared is None and "$SHARED" in case.transcript:
        pytest.skip("shared/data is not beside the checkout")

    def run_here(arguments: list[str]) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", arguments)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        output, errors = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, output, errors

    monkeypatch.chdir(tmp_path)
    transcript = play(case, tmp_path, shared, run_here)
    if request.config.getoption("--update-golden"):
        (HERE / name).write_text(case.text(transcript), encoding="utf-8")
        return
    assert transcript == case.transcript, "run pytest tests/cases --update-golden, read the diff"


def test_a_transcript_has_output_errors_and_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "case.txt").write_text(
        "A title\n\n-- a/b.txt --\none\n-- transcript --\n$ cat a/b.txt\nzero\nexit 0\n"
        "$ echo $CASE >&2; pwd; exit 3\n$ driftwatch x 'y z'\n",
        encoding="utf-8",
    )
    case = read_case(tmp_path / "case.txt")
    folder = tmp_path / "folder"
    assert play(case, folder, None, lambda arguments: (1, "|".join(arguments), "why\nnot")) == (
        "$ cat a/b.txt\none\nexit 0\n"
        "$ echo $CASE >&2; pwd; exit 3\n$CASE\n! \nexit 3\n"
        "$ driftwatch x 'y z'\ndriftwatch|x|y z\n! why\n! not\nexit 1\n"
    )

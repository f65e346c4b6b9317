"""Where machine code is kept, and what is said where none can be made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from driftwatch.cli.main import main
from driftwatch.simulate.compiled import (
    cache_directory,
    compiled_kernel,
    is_cached,
    preferred_directory,
    sources_digest,
    why_plain,
)


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)  # as if it were not installed
    monkeypatch.delenv("DRIFTWATCH_COMPILE", raising=False)


@pytest.mark.usefixtures("no_numba")
def test_without_numba_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled_kernel.__wrapped__() is None
    monkeypatch.setattr(sys, "argv", ["driftwatch", "simulate", "run", "no-such-file"])
    with pytest.raises(SystemExit):
        main()
    assert "note: Numba is not installed" in capsys.readouterr().err
    monkeypatch.setenv("DRIFTWATCH_COMPILE", "0")
    assert why_plain() is None  # it was asked for


def test_a_directory_of_ones_own_where_none_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name, folder in (("NUMBA_CACHE_DIR", ""), ("XDG_CACHE_HOME", "driftwatch")):
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        monkeypatch.setenv(name, str(file))
        made = cache_directory()
        assert made is not None and made.parent == tmp_path and made.is_dir()
        monkeypatch.setenv(name, str(tmp_path / "there"))
        expected = tmp_path / "there" / folder / f"kernel-{sources_digest()}"
        assert cache_directory() == expected
        assert expected.is_dir()


def test_an_empty_cache_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    in_this_process = compiled_kernel.cache_info().currsize > 0
    assert is_cached() == in_this_process
    filled = preferred_directory() / "simulate"
    filled.mkdir(parents=True)
    (filled / "kernel.advance.nbc").touch()
    assert is_cached()

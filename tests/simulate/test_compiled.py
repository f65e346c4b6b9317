"""Where the kernel's machine code is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.simulate.kernel.compiling import cache_directory


def test_a_directory_of_its_own_where_none_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name, folder in (("NUMBA_CACHE_DIR", ""), ("XDG_CACHE_HOME", "driftwatch")):
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        monkeypatch.setenv(name, str(file))
        own = cache_directory()
        assert own is not None and own.parent == tmp_path and own.is_dir()
        monkeypatch.setenv(name, str(tmp_path / "there"))
        chosen = cache_directory()
        assert chosen is not None and chosen.parent == tmp_path / "there" / folder
        assert chosen.is_dir()

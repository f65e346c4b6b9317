"""What `driftwatch check` says of a pool's keys, arguments and startup log together."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.service.configuration import configured_argument_problems
from driftwatch.settings import load_settings

LOG = "INFO 11-28 10:00:00 [utils.py:253] non-default args: {'max_num_seqs': 64}\n"


@pytest.mark.parametrize(
    ("serving", "problems"),
    [
        ('startup_log: s.log, arguments: "--max-num-seqs 64"', []),
        ("startup_log: other.log",
         ["error file: other.log: no start of a vLLM server in this log"]),
        ("startup_log: nowhere.log", []),  # `unmet` says so
    ],
)  # fmt: skip
def test_another_log_is_named(serving: str, problems: list[str], tmp_path: Path) -> None:
    (tmp_path / "s.log").write_text(LOG, encoding="utf-8")
    (tmp_path / "other.log").write_text("hello\n", encoding="utf-8")
    path = tmp_path / "driftwatch.yaml"
    path.write_text(f"pools: [{{name: p, serving: {{{serving}}}}}]\n", encoding="utf-8")
    found = configured_argument_problems(load_settings(path), path)
    texts = [f"{one.severity} {one.code}: {one.message}" for one in found]
    assert [text.replace(f"{tmp_path}/", "") for text in texts] == problems

"""Rule tests and series of hostile text: what they say, or an error at its place."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from file_changes import changed_lines, changed_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftwatch.evidence import DType
from driftwatch.rulebook.book import read_named
from driftwatch.ruletests.notation import MOST_MINUTES, NotationError, values_of
from driftwatch.ruletests.reader import read_tests
from driftwatch.yaml_gaps import LINE_BREAK
from driftwatch.yaml_positions import plain, read_yaml

RULES = Path(__file__).parents[2] / "rules"
FILES = sorted((RULES / "tests").glob("*.yaml"))
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in FILES}
PLAIN = {path.name: plain(read_yaml(path).root) for path in FILES}
_DTYPES = st.sampled_from(["float", "bool", "string"])
_PIECES = st.sampled_from(
    ["0", "1", "-1", ".5", "1e3", "1e308", "1e9999999", "1e-9999999", "+", "-", "x", "x3", "x0",
     "x99999999999", "_", "stale", "true", "false", "'a", "b'", "'", "\u0663", "\u00b2", "inf"]
)  # fmt: skip
_TEXTS = st.one_of(st.text(max_size=30), st.lists(_PIECES, max_size=8).map("".join))


@settings(max_examples=400, deadline=None)
@given(texts=st.lists(_TEXTS, max_size=3), dtype=_DTYPES)
def test_any_text(texts: list[str], dtype: DType) -> None:
    text = " ".join(texts)
    try:
        values = values_of(text, dtype)
    except NotationError as error:
        assert 0 <= error.start <= len(text)
        assert error.length >= 1
        return
    assert 0 < len(values) <= MOST_MINUTES
    assert all(math.isfinite(one) for one in values if isinstance(one, float))


@pytest.mark.parametrize("text", ["1e9999999x2", "0+1e9999999x2", "0+1e308x5"])
def test_a_number_beyond_all_others(text: str) -> None:
    with pytest.raises(NotationError, match="a finite number is wanted here"):
        values_of(text, "float")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=st.one_of(changed_lines(TEXTS), changed_values(PLAIN)))
def test_files_with_changes(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tests")
    ((name, text),) = files.items()
    (folder / name).write_text(text, encoding="utf-8", newline="")
    reading = read_tests([read_named(folder / name)], [RULES])
    lines = LINE_BREAK.split(text)
    for one in reading.problems:
        assert one.message
        if one.line is not None and one.path.endswith(name):
            assert 1 <= one.line <= len(lines), one
            assert one.column is not None
            assert 1 <= one.column <= len(lines[one.line - 1]) + 1, one

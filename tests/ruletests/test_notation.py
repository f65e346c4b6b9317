"""The notation is promtool's: the same texts give the same samples there."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftwatch.ruletests.series import NotationError, holds_throughout, values_of

TEXTS = [
    "1",
    "1 2 _ 3",
    "0+10x5",
    "-2+4x3",
    "1-2x4",
    "1x4",
    "4 _x3 stale 5",
    "0x0 _ _x2 1.5+0.25x2",
    "1e3 .5 2.+1x1",
    "-1-1x2",
]


def test_promtool_reads_it_alike(tmp_path: Path) -> None:
    series, expressions = [], []
    for number, text in enumerate(TEXTS):
        series.append({"series": f"s{number}", "values": text})
        for minute, value in enumerate(values_of(text, "float")):
            samples = [] if value is None else [{"labels": "{}", "value": value}]
            expressions.append(
                {
                    # the sample of this minute, not an older one
                    "expr": f"sum(last_over_time(s{number}[30s]))",
                    "eval_time": f"{minute}m",
                    "exp_samples": samples,
                }
            )
    document = {
        "rule_files": [],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": expressions}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    ran = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_words() -> None:
    assert values_of("true falsex1 _ stale", "bool") == [True, False, False, None, None]
    assert values_of("kv_cache 'two words'x1", "string") == ["kv_cache", "two words", "two words"]
    assert values_of("max_num_seqs", "string") == ["max_num_seqs"]


def test_a_count_alone_repeats_no_value() -> None:
    with pytest.raises(NotationError) as error:
        values_of("50 x3", "float")
    assert (error.value.start, error.value.help_text) == (3, "no space: 50x3")


def test_steps_are_exact() -> None:
    assert values_of("0.49+0.01x2", "float") == [0.49, 0.5, 0.51]
    assert values_of("0+0.1x3", "float")[3] == 0.3


@pytest.mark.parametrize(("text", "throughout"), [("1.5", True), ("_", True), ("1x0", False)])
def test_one_value_holds_throughout(text: str, throughout: bool) -> None:
    assert holds_throughout(text) is throughout


@given(st.text(st.sampled_from("0123456789.+-ex_ ' stalebu\t\n"), max_size=30))
def test_any_text_gives_values_or_a_place_inside(text: str) -> None:
    for dtype in ("float", "bool", "string"):
        try:
            values = values_of(text, dtype)
        except NotationError as error:
            assert 0 <= error.start <= len(text)
            assert error.start + error.length <= max(len(text), 1)
            continue
        assert 0 < len(values) <= 10_080
        assert not any(isinstance(one, float) and not math.isfinite(one) for one in values)

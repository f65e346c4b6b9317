"""schema, evidence, and check where nobody names rules: what needs no data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_cases import Run

from driftwatch.evidence import BY_NAME

SHIPPED = "note: no driftwatch.yaml is here, and no file is named: these are the shipped rules\n"


def test_what_schema_prints(run: Run) -> None:
    for kind in ("page", "rules"):
        assert json.loads(run("schema", kind)[1])["title"] == f"driftwatch {kind}"
    assert "verification" in run("schema")[1].splitlines()


@pytest.mark.parametrize("words", [("check",), ("rules", "test", "--run", "^EngineStuck")])
def test_shipped_rules_are_called_so(run: Run, words: tuple[str, ...]) -> None:
    Path("rules").mkdir()  # a folder of that name is not read by itself
    Path("rules/mine.yaml").write_text("not: rules\n")
    code, _, err = run(*words)
    assert (code, err) == (0, SHIPPED)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("Assembly WAITS", "batch_assembly_wait_10m_seconds"),
        ("tokens/s/GPU", "tokens_per_second_per_gpu"),
        ("queue spike", "waiting_requests"),
        ("503", "rejected_requests_per_second"),
        ("vllm:num_requests_waiting", "waiting_requests"),
    ],
)
def test_the_column_that_is_meant_comes_first(run: Run, words: str, first: str) -> None:
    code, out, _ = run("evidence", words)
    assert (code, out.split("\t", 1)[0]) == (0, first)


def test_every_column_is_listed_and_nothing_found_names_the_nearest(run: Run) -> None:
    listed = json.loads(run("evidence", "--json")[1])["columns"]
    assert [column["name"] for column in listed] == list(BY_NAME)
    code, out, err = run("evidence", "DCGM_FI_DEV_GPU_UTIL")
    assert (code, out) == (1, "")
    assert "nearest: gpu_utilization_ratio" in err
    assert run("evidence", "xyzzy")[2].startswith("no column has 'xyzzy'\n")

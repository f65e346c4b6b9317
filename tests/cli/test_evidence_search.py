"""`driftwatch evidence WORDS`: the words that people know, in any order."""

from __future__ import annotations

import json

import pytest
from conftest import Run

from driftwatch.evidence import BY_NAME


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("wait assembly", "batch_assembly_wait_10m_seconds"),
        ("Assembly WAITS", "batch_assembly_wait_10m_seconds"),
        ("tokens/s/GPU", "tokens_per_second_per_gpu"),
        ("GPU_UTIL", "gpu_utilization_ratio"),
        ("queue spike", "waiting_requests"),
        ("503", "rejected_requests_per_second"),
        ("speculative acceptance", "spec_decode_acceptance_ratio"),
        ("vllm:num_requests_waiting", "waiting_requests"),
        ("effective_batch_size", "effective_batch_size"),
    ],
)
def test_the_column_that_is_meant_comes_first(run: Run, words: str, first: str) -> None:
    code, out, _ = run("evidence", words)
    assert (code, out.split("\t", 1)[0]) == (0, first)
    one_by_one = run("evidence", *words.split())
    assert one_by_one[:2] == (code, out)


def test_every_column_is_found_by_its_name(run: Run) -> None:
    names = [column["name"] for column in json.loads(run("evidence", "--json")[1])["columns"]]
    assert names == list(BY_NAME)
    for name in names[::12]:
        assert run("evidence", name)[1].split("\t", 1)[0] == name


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (
            "assembly wate",
            "no column has 'assembly wate'; nearest: batch_assembly_wait_10m_seconds, "
            "reference_batch_assembly_wait_seconds\n",
        ),
        (
            "DCGM_FI_DEV_GPU_UTIL",
            "no column has 'DCGM_FI_DEV_GPU_UTIL'; nearest: gpu_utilization_ratio\n",
        ),
        ("xyzzy", "no column has 'xyzzy'\n"),
    ],
)
def test_nothing_found_names_the_nearest(run: Run, words: str, err: str) -> None:
    code, out, printed = run("evidence", words)
    begin = err.rstrip("\n")
    assert (code, out) == (1, "")
    assert printed.startswith(begin)

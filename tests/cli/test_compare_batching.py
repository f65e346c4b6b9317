"""``driftwatch compare`` as it is typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]
MIX = ("--prompt-tokens", "200", "--generation-tokens", "20")
LAW = ("--step-time", "0.007,2e-5,2e-5,1e-8", "--max-num-seqs", "64")
SHORT = ("--rates", "5,20,60")
POLICIES = ["static", "dynamic", "continuous", "hybrid"]


def compare(run: Run, *words: str) -> dict[str, Any]:
    code, out, err = run("compare", *words, "--json")
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out)
    assert answer["schema_version"] == 2
    return answer


def test_every_policy_at_every_rate(run: Run) -> None:
    found = compare(run, *MIX, *LAW, *SHORT)
    policies = found["policies"]
    assert set(policies) == set(POLICIES)
    for name, one in policies.items():
        assert [p["requests_per_second"] for p in one["points"]] == [5.0, 20.0, 60.0]
        for p in one["points"]:
            late = p["figures"]
            assert late["e2e_seconds_p50"] <= late["e2e_seconds_p99"]
            assert late["ttft_seconds_p99"] <= late["e2e_seconds_p99"]
            classic = name in ("static", "dynamic")
            assert (p["batch_efficiency_ratio"] is not None) == classic
            assert (p["prompt_padding_waste_ratio"] is not None) == classic
        if (holds := one["knee"]["holds_at"]) is not None:  # the answer follows the knees
            assert re.search(rf"{name}[^,]* up to {holds:g} req/s", found["answer"])
            point = next(p for p in one["points"] if p["requests_per_second"] == holds)
            assert point["keeps_up"]
            assert point["figures"]["e2e_seconds_p99"] <= found["limit_e2e_p99_seconds"]
    static, continuous = policies["static"], policies["continuous"]
    assert continuous["capacity_requests_per_second"] > 2 * static["capacity_requests_per_second"]
    # a small load is the worst case of a batch that waits until it is full
    light, more = (p["figures"]["e2e_seconds_p50"] for p in static["points"][:2])
    assert light > more
    assert not static["points"][2]["keeps_up"]


def test_the_same_words_give_the_same_bytes(run: Run) -> None:
    words = ("compare", *MIX, *LAW, *SHORT)
    first, second = run(*words), run(*words)
    assert first == second
    assert first[0] == 0, first[2]


def test_what_a_file_has_and_compare_does_not_use_is_told(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"{i / 10},200,{10 + i % 7},0,64,x\n" for i in range(300))
    names = "arrival_seconds,prompt_tokens,generation_tokens,prefix_group,shared_prefix_tokens,foo"
    (tmp_path / "r.csv").write_text(f"{names}\n{rows}")
    notes = " ".join(compare(run, "--requests", "r.csv", *LAW, "--rates", "5")["notes"])
    assert "foo" in notes
    assert "only the lengths of the file" in notes


def test_no_policy_that_keeps_up_is_no_verdict(run: Run) -> None:
    code, out, _ = run("compare", *MIX, *LAW, "--rates", "900")
    assert code == 4
    assert out.startswith("No way of batching keeps up")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*MIX,), "the step time is unknown"),
        ((*MIX, *LAW, "--rates", "0"), "each number is from 1e-06 to 1e+06"),
        (("--requests", "x", *MIX, *LAW), "--requests and --prompt-tokens, --generation-tokens"),
    ],
)
def test_what_cannot_be_answered_is_said(run: Run, words: tuple[str, ...], said: str) -> None:
    code, out, err = run("compare", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert "help: " in err or "Error: Invalid value" in err

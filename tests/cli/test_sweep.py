"""driftwatch plan --users in the simulator, and its command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


# -- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--users", "1,x", "--step-time", "0.01,0,0,0"), "is no list of whole numbers"),
        (("--users", "1",), "the step time is unknown"),
        (("--step-time", "0.01,0,0,0", "--max-num-seqs", "64", "--max-num-batched-tokens", "32"),
         "vLLM refuses to start"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_usage_error(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("plan", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


# -- simulated -----------------------------------------------------------------------------------

LAW = ("--step-time", "0.01,0,0,0", "--max-num-batched-tokens", "2048")
LOG = "arrival_seconds,prompt_tokens,generation_tokens\n"


@pytest.fixture
def flat(tmp_path: Path) -> tuple[str, ...]:
    """Requests of 16 and 11 tokens, each step 10 ms."""
    (path := tmp_path / "flat.csv").write_text(f"{LOG}0,16,11\n")
    return (*LAW, "--requests", str(path))


def test_simulated_throughput_is_that_of_the_law(run: Run, flat: tuple[str, ...]) -> None:
    """A step of 10 ms whatever is in it: S / (11 steps), and R = N / X beyond the cap."""
    code, out, err = run(
        "plan", *flat, "--max-num-seqs", "8", "--users", "1,2,4,8,16,32",
        "--no-async-scheduling", "--json",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    for level in found["levels"]:
        users, level = level["concurrency"], level["figures"]
        assert level["requests_per_second"] == pytest.approx(min(users, 8) / 0.11, rel=0.02)
        assert level["e2e_seconds_mean"] == pytest.approx(0.11 * max(1, users / 8), rel=0.02)
        assert level["itl_seconds_mean"] == pytest.approx(0.01)
        assert level["e2e_seconds_p99"] is not None
        tokens = level["generation_tokens_per_second"]
        assert tokens == pytest.approx(11 * level["requests_per_second"])
    assert found["latency_degrades"]["holds_to"] == 8
    assert found["latency_degrades"]["degrades_at"] == 16
    assert found["latency_degrades"]["confirmed"] is True
    assert found["configuration"]["max_num_seqs"] == 8
    assert "num_gpu_blocks unknown: the KV cache never binds" in found["notes"]


def test_the_answer_names_the_knee(run: Run, flat: tuple[str, ...]) -> None:
    code, out, err = run("plan", *flat, "--max-num-seqs", "2", "--users", "1,2,4,8")
    assert code == 0, err
    assert out.startswith("Latency starts to degrade at 4 users. From 2 to 4 users")


def test_simulated_it_is_the_same_to_the_byte_and_takes_a_log(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = "".join(f"{i},{50 + 7 * i},{20 + i % 5}\n" for i in range(40))
    rows = rows.replace("\n", ",x\n")
    log.write_text(f"arrival_seconds,prompt_tokens,generation_tokens,foo\n{rows}")
    asked = (
        "plan", "--gpu", "H100-80GB", "--model", "llama-3.1-8b", "--requests", str(log),
        "--users", "4,8", "--json",
    )  # fmt: skip
    first, second = run(*asked), run(*asked)
    assert first[0] == 0, first[2]
    assert first[1] == second[1]
    found = json.loads(first[1])
    assert found["workload"]["prompt_tokens_mean"] == 50 + 7 * 19.5
    assert any("the roofline of H100-80GB" in note for note in found["notes"])
    assert "columns not used: foo" in found["notes"]
    # the log is sent over again from its first line: as many of each length
    levels = [one["figures"] for one in found["levels"]]
    tokens = [x["generation_tokens_per_second"] / x["requests_per_second"] for x in levels]
    assert tokens == pytest.approx([22.0, 22.0], rel=0.01)


def test_simulated_refusals_are_told(run: Run, flat: tuple[str, ...]) -> None:
    """A queue of two: of eight users four are refused, and ask again at once."""
    code, out, _ = run(
        "plan", *flat, "--users", "2,8", "--max-num-seqs", "2",
        "--max-num-queued-reqs", "2", "--json",
    )  # fmt: skip
    assert code == 4
    found = json.loads(out)
    low, high = found["levels"]
    assert low["failed_requests"] == 0
    assert high["failed_requests"] > 1000
    assert high["figures"]["requests"] == 0
    assert "8 users: no request finished" in found["answer"]

"""A change as people type it: arguments, Helm values and a pod's args, read back."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml
from advice_stories import story

from driftwatch.cli.recommend_text import AdviceContext, rendered
from driftwatch.collect.startup import from_arguments
from driftwatch.model import KnobMove, Provenance
from driftwatch.notify.advice import setting_change
from driftwatch.notify.change_text import (
    helm_values_diff,
    pod_args_diff,
    vllm_arguments,
)

SEQS = KnobMove("max_num_seqs", 64.0, 128.0, "config")
BUDGET = KnobMove("max_num_batched_tokens", 512.0, 2048.0, "config")


def _side(diff: tuple[str, ...], sign: str) -> Any:
    """The file before (-) or after (+) as YAML."""
    return yaml.safe_load("\n".join(line[1:] for line in diff if line[0] in (" ", sign)))


def test_driftwatch_reads_its_own_arguments_back() -> None:
    said = vllm_arguments([SEQS, BUDGET])
    read = from_arguments(["vllm", "serve", "m", *said]).serving
    assert read.max_num_seqs is not None
    assert read.max_num_seqs.value == 128
    assert read.max_num_batched_tokens is not None
    assert read.max_num_batched_tokens.value == 2048
    back = from_arguments(shlex.split(" ".join(vllm_arguments([SEQS, BUDGET], undo=True)))).serving
    assert back.max_num_seqs is not None
    assert back.max_num_seqs.value == 64


def test_helm_values_before_and_after() -> None:
    diff = helm_values_diff([SEQS, BUDGET], "meta-llama/Llama-3.1-8B")
    before, after = _side(diff, "-"), _side(diff, "+")
    assert before["servingEngineSpec"]["modelSpec"] == [
        {
            "modelURL": "meta-llama/Llama-3.1-8B",
            "vllmConfig": {"maxNumSeqs": 64, "extraArgs": ["--max-num-batched-tokens=512"]},
        }
    ]
    assert after["servingEngineSpec"]["modelSpec"][0]["vllmConfig"] == {
        "maxNumSeqs": 128,
        "extraArgs": ["--max-num-batched-tokens=2048"],
    }
    only_budget = _side(helm_values_diff([BUDGET], None), "+")
    assert list(only_budget["servingEngineSpec"]["modelSpec"][0]["vllmConfig"]) == ["extraArgs"]


def test_pod_args_before_and_after() -> None:
    diff = pod_args_diff([SEQS, BUDGET])
    assert _side(diff, "-")["containers"] == [
        {"name": "vllm", "args": ["--max-num-seqs=64", "--max-num-batched-tokens=512"]}
    ]
    assert _side(diff, "+")["containers"][0]["args"] == [*vllm_arguments([SEQS, BUDGET])]


@pytest.mark.parametrize(
    ("before", "provenance", "said"),
    [(8.0, "inferred", "inferred"), (None, None, "unknown today"), (8.0, "config", None)],
)
def test_what_is_not_sure_is_said_where_it_stands(
    before: float | None, provenance: Provenance | None, said: str | None
) -> None:
    for diff in (
        helm_values_diff([KnobMove("max_num_seqs", before, 40.0, provenance)], "m"),
        pod_args_diff([KnobMove("max_num_seqs", before, 40.0, provenance)]),
    ):
        marked = [line for line in diff if line[0] in "+-" and "#" in line]
        assert bool(marked) == (said is not None)
        assert all(said is not None and said in line for line in marked)
        assert any(line.startswith("-") for line in diff) == (before is not None)


def test_a_name_with_what_no_terminal_may_be_sent_reads_back_as_it_is() -> None:
    name = "mod\u00e8le\u202egnp\x9b\x85\u2028\x1b[2J"
    diff = helm_values_diff([SEQS], name)
    assert "\n".join(diff).replace("\n", "").isprintable()
    assert _side(diff, "+")["servingEngineSpec"]["modelSpec"][0]["modelURL"] == name
    "\n".join(helm_values_diff([SEQS], "\ud800")).encode()


def test_both_knobs_of_a_pair_stand_in_line_1_in_json_and_in_the_printed_change() -> None:
    """A forecast is never for more than what line 1 says."""
    one = story()
    both = one.advice.model_copy(update={"moves": (*one.advice.moves, SEQS)})
    pair = one.model_copy(update={"advice": both})
    text = rendered(pair, AdviceContext("rag-8b", "m"))
    assert "max_num_batched_tokens 512 → 2048, max_num_seqs 64 → 128" in text
    for line in ('+- "--max-num-seqs=128"', '+- "--max-num-batched-tokens=2048"'):
        assert line.replace("+- ", "- ") in text
    assert setting_change(pair.advice) == "max_num_batched_tokens 512 → 2048, max_num_seqs 64 → 128"
    assert pair.document()["advice"]["moves"][1]["to_value"] == 128.0
    assert vllm_arguments(pair.advice.moves, undo=True) == (
        "--max-num-batched-tokens=512",
        "--max-num-seqs=64",
    )

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from driftwatch.knobs import KNOBS
from driftwatch.vllm_arguments.table import (
    CURES,
    FIRST,
    FLAGS,
    LAST,
    VARIABLES,
    abbreviated,
    flag_typed,
    nearest,
    parse_version,
    version_of_image,
)


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_knob_is_a_flag_of_the_newest_release_and_takes_a_whole_number(name: str) -> None:
    flag = flag_typed(KNOBS[name].flag)
    assert flag is not None
    assert flag.knob == name
    assert flag.written == KNOBS[name].flag
    assert flag.is_in(LAST)
    assert flag.is_own
    assert flag.kind in ("int", "size")
    for value in KNOBS[name].values:
        assert value >= float(flag.least)
    if KNOBS[name].can_be_off:
        assert flag.least == "0"
    since = re.search(r"new in (\d+\.\d+)", KNOBS[name].default)
    if since is not None:
        assert parse_version(since[1]) == flag.since


def test_every_cure_names_flags_that_the_newest_release_has() -> None:
    for name, cure in CURES.items():
        assert name not in FLAGS or FLAGS[name].until is not None, f"{name} is there"
        assert cure.why or cure.instead, f"{name} names nothing to do"
        for other in cure.instead:
            flag = FLAGS.get(other) or FLAGS[other.partition(".")[0]]
            assert flag.until is None, f"{other}, instead of {name}, is gone too"


def test_every_row_has_a_kind_and_releases_in_order() -> None:
    kinds = {one.kind for one in FLAGS.values()}
    assert kinds == {"int", "size", "float", "text", "json", "list", "on", "switch", "bool"}
    for one in (*FLAGS.values(), *VARIABLES.values()):
        assert FIRST <= (one.since or FIRST) <= (one.until or LAST) <= LAST, one.name
        for limit in (one.least, one.most):
            float(limit.lstrip("<>") or 0)
    assert len(FLAGS) > 400
    assert len(VARIABLES) > 350


# read in the command lines' own source: vllm/engine/arg_utils.py and vllm/config/scheduler.py
@pytest.mark.parametrize(
    "name,there,gone",
    [
        ("num-scheduler-steps", "0.9", "0.10"),
        ("preemption-mode", "0.10", "0.11"),
        ("swap-space", "0.17", "0.18"),
        ("use-v2-block-manager", "0.9", "0.10"),
        ("scheduler-delay-factor", "0.10", "0.11"),
        ("max-num-partial-prefills", "0.26", "0.27"),
        ("guided-decoding-backend", "0.10", "0.11"),
        ("num-lookahead-slots", "0.11", "0.12"),
        ("speculative-model", "0.7", "0.8"),
        ("max-num-active-seqs", "0.31", "0.30"),
        ("max-num-queued-reqs", "0.29", "0.28"),
        ("async-scheduling", "0.10", "0.9"),
        ("performance-mode", "0.17", "0.16"),
    ],
)
def test_releases_of_a_flag(name: str, there: str, gone: str) -> None:
    assert FLAGS[name].is_in(parse_version(there))
    assert not FLAGS[name].is_in(parse_version(gone))


def test_numbers_with_a_suffix_are_newer_than_some_releases() -> None:
    budget, length = FLAGS["max-num-batched-tokens"], FLAGS["max-model-len"]
    assert [budget.kind_in(v) for v in ((0, 8), (0, 9), None)] == ["int", "size", "size"]
    assert [length.kind_in(v) for v in ((0, 7), (0, 8))] == ["int", "size"]
    assert FLAGS["max-num-seqs"].kind_in((0, 32)) == "int"


@pytest.mark.parametrize(
    "typed,name",
    [
        ("--max_num_seqs", "max-num-seqs"),
        ("-tp", "tensor-parallel-size"),
        ("--tp", None),
        (
            "--speculative-config.num_speculative_tokens",
            "speculative-config.num_speculative_tokens",
        ),
        ("--compilation-config.mode", "compilation-config"),
        ("--Max-Num-Seqs", None),
        ("--", None),
    ],
)
def test_flags_as_typed(typed: str, name: str | None) -> None:
    flag = flag_typed(typed)
    assert (flag.name if flag else None) == name


def test_a_beginning_that_one_flag_has_is_that_flag() -> None:
    flag = abbreviated("tensor-par", (0, 32))
    assert flag is not None
    assert flag.name == "tensor-parallel-size"
    assert abbreviated("max-num", (0, 32)) is None
    assert nearest("max-num-sequence") == "max-num-seqs"
    assert nearest("zzz") is None


@pytest.mark.parametrize(
    "image,version",
    [
        ("vllm/vllm-openai:v0.9.1", (0, 9)),
        ("vllm/vllm-openai:v0.10.1.1-x86_64", (0, 10)),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("vllm/vllm-openai@sha256:0123", None),
        ("vllm/vllm-openai:v0.11.0@sha256:0123", (0, 11)),
        ("localhost:5000/vllm-openai:v0.32.0", (0, 32)),
        ("rocm/vllm:rocm6.4.1_vllm_0.10.0_20250812", (0, 10)),
        ("lmcache/vllm-openai:2025-05-27-v1", None),
        ("ghcr.io/llm-d/llm-d:v0.2.0", None),
        ("lmsysorg/sglang:v0.4.9", None),
    ],
)
def test_versions_of_images(image: str, version: tuple[int, int] | None) -> None:
    assert version_of_image(image) == version


@pytest.mark.parametrize("text", ["", "latest", "v", "0", "0.x", "1234.5", "0.9 or later", "²"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"no version such as 0\.32"):
        parse_version(text)


def test_the_flags_of_recorded_servers_are_in_the_table(shared_data: Path) -> None:
    log = (shared_data / "vllm-0.32" / "server_startup_log.txt").read_text(encoding="utf-8")
    printed = re.search(r"non-default args: (\{.*\})", log)
    assert printed is not None
    names = set(ast.literal_eval(printed[1])) - {"model_tag"}
    info = json.loads((shared_data / "vllm-0.32" / "server_info_config_json.json").read_text())
    assert names > {"max_num_seqs", "max_num_batched_tokens"}
    # fields of the scheduler that no flag sets, or one of another name (--scheduling-policy)
    inner = {"runner_type", "is_multimodal_model", "max_num_encoder_input_tokens"}
    inner |= {"encoder_cache_size", "policy"}
    names |= set(info["vllm_config"]["scheduler_config"]) - inner
    for name in names:
        flag = flag_typed(f"--{name}")
        assert flag is not None, name
        assert flag.is_in((0, 32)), name

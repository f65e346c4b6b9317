"""vLLM's command lines as words, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.knobs import KNOBS, flag_of
from driftwatch.vllm_arguments.flags import FIELDS, GONE, check_text, check_words, plain_words
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile, read_yaml


def _problems(text: str) -> list[str]:
    """``severity code: message`` of each."""
    file = YamlFile("f.yaml")
    check_text(Scalar(Place(3, 7), text, text), file)
    return [f"{p.severity} {p.code}: {p.message}" for p in file.problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--max-num-seqs 4k",
         "error flag-value: --max-num-seqs '4k' is not a number that vLLM would take"),
        ("--max-num-seqs=0", "error flag-value: --max-num-seqs '0' must be above 0"),
        ("--max-num-seqs", "error flag-value: --max-num-seqs has no value"),
        ("--max_num_batched_tokens 1.5K",
         "error flag-value: --max_num_batched_tokens '1.5K' is not a number that vLLM would take"),
        ("--max-num-batched-tokens 64 --max-num-seqs 128",
         "error flag-conflict: max_num_batched_tokens 64 is below max_num_seqs 128: vLLM "
         "refuses to start"),
        ("docker run vllm/vllm-openai --preemption_mode swap",
         "warning removed-flag: vLLM 0.11 removed --preemption-mode"),
        ("--chunked-prefill-batch-size=1",
         "error no-such-flag: no vLLM has a flag --chunked-prefill-batch-size"),
        ("--port '8000", "error quote: a quote is never closed"),
    ],
)  # fmt: skip
def test_what_is_wrong(text: str, problem: str) -> None:
    assert _problems(text) == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --max-num-seqs 256 --max_num_batched_tokens=8K -tp 2",
        "--max-model-len auto --max-num-seqs 1_024 --long-prefill-token-threshold 0",
        "--max-num-seqs $SEQS --max-num-batched-tokens `cat` --port ${PORT:-80}",
        "--max-num-seqs 64 --max-num-seqs 8 --max-num-batched-tokens 8",
        "vllm serve m -- --max-num-seqs zero",
        "",
    ],
)
def test_what_vllm_takes_is_no_problem(text: str) -> None:
    assert _problems(text) == []


def test_a_problem_stands_under_its_flag(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: \"serve 'a b' --max-num-seqs=x --swap-space\\n 4\"\n", encoding="utf-8")
    file = read_yaml(path)
    assert isinstance(file.root, Entries)
    _, text = file.root.entries["a"]
    assert isinstance(text, Scalar)
    check_text(text, file)
    under = [
        (p.source_line or "")[p.column - 1 : p.column - 1 + p.length]
        for p in file.problems
        if p.column
    ]
    assert under == ["--max-num-seqs", "--swap-space"]


def test_a_list_of_words_has_the_problem_at_its_word() -> None:
    file = YamlFile("f.yaml")
    check_words(["serve", "--swap-space", "4"], [Place(1, 1), Place(2, 1), Place(3, 1)], file)
    assert [(p.code, p.line) for p in file.problems] == [("removed-flag", 2)]


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_knob_is_read(name: str) -> None:
    assert FIELDS[flag_of(name)] == name
    assert flag_of(name) not in GONE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a # b\nc", ["a", "c"]),
        ('\'c # d\' "e\\"f" g\\ h', ["c # d", 'e"f', "g h"]),
        ("a \\\n  b", ["a", "b"]),
        ("a\\\nb", ["ab"]),
        ("''", [""]),
    ],
)
def test_words_of_a_shell_text(text: str, words: list[str]) -> None:
    assert plain_words(text) == words


_WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [*FIELDS, *GONE, "vllm", "serve", "--", "'", '"', "\\", "9" * 5000, "$(", "\n", "=4k", "- "]
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_WORDS, max_size=8), st.sampled_from([" ", "", "\n", " \\\n "]))
def test_any_text(words: list[str], between: str) -> None:
    _problems(between.join(words))

"""vLLM's command lines as words, and what is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.knobs import KNOBS
from driftwatch.vllm_arguments.check import line_problems
from driftwatch.vllm_arguments.command_line import plain_words, split
from driftwatch.vllm_arguments.flags import FIELDS, GONE
from driftwatch.vllm_arguments.manifests import is_manifest, read_manifest
from driftwatch.yaml_positions import LINE_BREAK


def _problems(text: str) -> list[str]:
    """``severity code place: message`` of each."""
    return [
        f"{p.severity} {p.code} {text[p.column - 1 : p.column - 1 + p.length]}: {p.message}"
        for p in line_problems(text)
        if p.column is not None
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("--max-num-seqs 4k",
         "error flag-value 4k: --max-num-seqs '4k' is not a number that vLLM would take"),
        ("--max-num-seqs=0", "error flag-value 0: --max-num-seqs '0' must be above 0"),
        ("--max-num-seqs", "error flag-value --max-num-seqs: --max-num-seqs has no value"),
        ("--max_num_batched_tokens 1.5K",
         "error flag-value 1.5K: --max_num_batched_tokens '1.5K' is not a number that vLLM would "
         "take"),
        ("--max-num-batched-tokens 64 --max-num-seqs 128",
         "error flag-conflict 64: max_num_batched_tokens 64 is below max_num_seqs 128: vLLM "
         "refuses to start"),
        ("docker run vllm/vllm-openai --preemption_mode swap",
         "warning removed-flag --preemption_mode: vLLM 0.11 removed --preemption-mode"),
        ("--chunked-prefill-batch-size=1",
         "error no-such-flag --chunked-prefill-batch-size: no vLLM has a flag "
         "--chunked-prefill-batch-size"),
        ("--port '8000", "error quote ': a quote is never closed"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(text: str, problem: str) -> None:
    assert _problems(text) == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --max-num-seqs 256 --max_num_batched_tokens=8K -tp 2",
        "--max-model-len auto --max-num-seqs 1_024 --long-prefill-token-threshold 0",
        "--max-num-seqs $SEQS --max-num-batched-tokens `cat budget` --port ${PORT:-80}",
        "--max-num-seqs 64 --max-num-seqs 8 --max-num-batched-tokens 8",
        "FOO=1 vllm serve m && kubectl --max-num-seqs",
        "vllm serve m -- --max-num-seqs zero",
        "",
    ],
)
def test_what_vllm_takes_is_no_problem(text: str) -> None:
    assert _problems(text) == []


def test_a_problem_in_the_second_line_of_a_text() -> None:
    (problem,) = line_problems("vllm serve m \\\n  --max-num-seqs 'eight'\n")
    assert (problem.line, problem.column, problem.length) == (2, 19, 5)
    assert problem.source_line == "  --max-num-seqs 'eight'"


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_knob_is_read(name: str) -> None:
    assert FIELDS[KNOBS[name].flag] == name
    assert KNOBS[name].flag not in GONE


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a b;c", [["a", "b"], ["c"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ('a#b \'c # d\' "e\\"f" g\\ h', [["a#b", "c # d", 'e"f', "g h"]]),
        ("a$(b c; d) e", [["a$(b c; d)", "e"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a\\\nb", [["ab"]]),
        ("a > out 2>&1 b", [["a", "b"]]),
        ("''", [[""]]),
        ("a 'b", [["a", "b"]]),
        ("a \\", [["a", ""]]),
    ],
)
def test_words_of_a_shell_text(text: str, commands: list[list[str]]) -> None:
    assert [[word.text for word in command] for command in split(text)] == commands


def test_an_open_quote_has_no_words() -> None:
    with pytest.raises(ValueError, match="never closed"):
        plain_words("--port '8000")
    assert plain_words("it\\'s # don't") == ["it's"]


_WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [*FIELDS, *GONE, "vllm", "serve", "--", "'", '"', "\\", "9" * 5000, "$(", "\n", "=4k", "- "]
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_WORDS, max_size=8), st.sampled_from([" ", "", "\n", " \\\n "]))
def test_any_text(words: list[str], between: str) -> None:
    text = between.join(words)
    is_manifest(text)
    lines = LINE_BREAK.split(text)
    for one in (*line_problems(text), *read_manifest("m.yaml", text).problems):
        if one.line is not None and one.column is not None:
            assert 1 <= one.line <= len(lines)
            assert 1 <= one.column <= len(lines[one.line - 1]) + 1
            assert one.source_line == lines[one.line - 1]

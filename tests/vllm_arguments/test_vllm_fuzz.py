"""Hostile command lines and manifests: never an exception, and every place inside the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.errors import Problem
from driftwatch.vllm_arguments import argument_problems, is_manifest, line_problems
from driftwatch.vllm_arguments.table import CURES, FLAGS
from driftwatch.yaml_positions import LINE_BREAK

CORPUS = [
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent / "corpus").glob("*.yaml"))
]
_VERSIONS = st.sampled_from([None, (0, 3), (0, 4), (0, 9), (0, 15), (0, 32), (0, 99)])
_NAMES = st.sampled_from([f"--{name}" for name in (*FLAGS, *CURES)] + ["-tp", "--no-enable-lora"])
_VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=8),
    st.sampled_from(
        ["4k", "4K", "1.5K", "9" * 5000, "1e999", "{}", '{"a": 1}', "[" * 400, "$X", "'", '"', "\\",
         "\x00", "\u202e8", "\u0664\u0662", "--", "-1", "true", "80%", "0x10", "1_000", "\u2013"]
    ),
)  # fmt: skip
_WORDS = st.one_of(
    _NAMES,
    _VALUES,
    st.tuples(_NAMES, st.sampled_from(["=", " ", "\n", ".a=", "\t"]), _VALUES).map("".join),
)


def _are_inside(problems: tuple[Problem, ...], text: str) -> None:
    lines = LINE_BREAK.split(text)
    for one in problems:
        assert one.message
        assert one.severity in ("error", "warning")
        if one.line is not None and one.column is not None:
            assert 1 <= one.line <= len(lines), one
            assert 1 <= one.column <= len(lines[one.line - 1]) + 1, one
            assert one.length >= 1
            assert one.source_line == lines[one.line - 1]


@settings(max_examples=300, deadline=None)
@given(st.lists(_WORDS, max_size=8), st.sampled_from([" ", "\n", " \\\n ", "; "]), _VERSIONS)
def test_command_lines(words: list[str], between: str, version: tuple[int, int] | None) -> None:
    text = between.join(words)
    _are_inside(line_problems(text, version=version), text)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(CORPUS),
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 12), st.one_of(_WORDS, st.text(max_size=4))),
        max_size=4,
    ),
    _VERSIONS,
)
def test_manifests_with_changes(
    text: str, changes: list[tuple[int, int, str]], version: tuple[int, int] | None
) -> None:
    for at, length, new in changes:
        text = text[:at] + new + text[at + length :]
    is_manifest(text)
    _are_inside(argument_problems("m.yaml", text, version=version), text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    is_manifest(text)
    _are_inside(argument_problems("m.yaml", text), text)
    _are_inside(line_problems(text), text)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve " + "--max-num-seqs 8 " * 20_000,
        "vllm serve " + "--x" * 100_000,
        "vllm serve --max-num-seqs " + "9" * 200_000,
        "vllm serve --speculative-config '" + "[" * 100_000,
        "vllm serve " + "$(" * 20_000,
        "vllm serve " + "\\" * 100_000,
        "--" * 100_000,
    ],
    ids=[
        "repeated",
        "long flag",
        "long number",
        "deep json",
        "deep shell",
        "backslashes",
        "dashes",
    ],
)
def test_long_command_lines_end_soon(text: str) -> None:
    import time

    before = time.process_time()
    _are_inside(line_problems(text), text)
    assert time.process_time() - before < 10


def test_a_flag_that_stands_in_many_lines_is_found_soon() -> None:
    import time

    text = "a:\n" + "- [vllm, serve, m, --max-num-seqs, 4k]\n" * 3_000
    before = time.process_time()
    problems = argument_problems("m.yaml", text)
    assert len(problems) == 3_000
    assert time.process_time() - before < 30

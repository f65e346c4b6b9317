"""vLLM's command lines in other people's YAML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driftwatch.rulebook.render import render_problems
from driftwatch.vllm_arguments.manifests import is_manifest, read_manifest

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).parents[2]


def test_every_form_is_read(golden: Callable[[str, str], None]) -> None:
    shown = ""
    for name in ("deployment", "compose", "leaderworkerset"):
        text = (CORPUS / f"{name}.yaml").read_text(encoding="utf-8")
        assert is_manifest(text)
        reading = read_manifest(f"{name}.yaml", text)
        shown += render_problems(reading.problems, files=1, command_lines=reading.command_lines)
        shown += "\n"
    golden("vllm_arguments/manifests.txt", shown)


def _codes(text: str) -> list[str]:
    return [problem.code for problem in read_manifest("m.yaml", text).problems]


def test_another_servers_flags_are_its_own() -> None:
    text = "containers:\n  - image: {}\n    args: [--swap-space, '4', --max-num-seqs, x]\n"
    assert _codes(text.format("lmsysorg/sglang:v0.4.9")) == []
    assert _codes(text.format("vllm/vllm-router:v1")) == []
    assert _codes(text.format("vllm/vllm-openai:v0.9.1")) == ["removed-flag", "flag-value"]


def test_aliases_and_merge_keys_are_followed_and_end() -> None:
    text = (
        "x: &base\n  image: vllm/vllm-openai:v0.32.0\n"
        "services:\n  a:\n    <<: *base\n    command: [--max-num-seqs, 4k]\n"
        "  b:\n    <<: [*base]\n    command: --swap-space 4\n"
    )
    assert _codes(text) == ["flag-value", "removed-flag"]
    assert _codes("a: &x\n  - *x\n  - args: [--max-num-seqs=0]\n") == ["flag-value"]
    lines = ["a0: &a0 {args: [--max-num-seqs=0]}"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert _codes("\n".join(lines)) == ["flag-value"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("apiVersion: v1\nkind: Pod\n\targs: []\n", "yaml"),
        ("apiVersion: v1\na: " + "[" * 60 + "]" * 60, "too-deep"),
        ("apiVersion: v1\n# " + "x" * (1 << 20), "too-large"),
        ("apiVersion: v1\na: \x00\n", "yaml"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, code: str) -> None:
    assert is_manifest(text)
    assert _codes(text) == [code]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grups:\n  - rules:\n      - alert: A\n        summary: raise --max-num-seqs\n", False),
        ("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec: {groups: []}\n", True),
        ("pools:\n  - serving: {arguments: vllm serve m --max-num-seqs 8}\n", False),
        ("x:\n  cmd: vllm serve m\n", True),
        ("name: ci\non: push\n", False),
        ("", False),
        *((path.read_text(encoding="utf-8"), False) for path in (ROOT / "rules").rglob("*.yaml")),
    ],
)
def test_files_are_told_apart_by_their_content(text: str, expected: bool) -> None:
    assert is_manifest(text) is expected

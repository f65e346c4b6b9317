from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from driftwatch.rulebook.render import render_problems
from driftwatch.vllm_arguments import argument_problems, is_manifest, read_arguments
from driftwatch.vllm_arguments.values import CODES

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_form_is_read(path: Path, golden: Callable[[str, str], None]) -> None:
    text = path.read_text(encoding="utf-8")
    assert is_manifest(text)
    reading = read_arguments(path.name, text)
    shown = render_problems(reading.problems, files=1, command_lines=reading.command_lines)
    golden(f"vllm_arguments/{path.stem}.txt", shown + "\n")
    lines = text.splitlines()
    for problem in reading.problems:
        if problem.line is not None and problem.column is not None:
            assert problem.source_line == lines[problem.line - 1]
            assert problem.column + problem.length - 1 <= len(lines[problem.line - 1])


def _codes(text: str, **keys: object) -> list[str]:
    return [problem.code for problem in argument_problems("m.yaml", text, **keys)]  # type: ignore[arg-type]


def _pod(image: str, args: str) -> str:
    return (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
        f"    - image: {image}\n      args: {args}\n"
    )


def test_the_version_of_a_person_wins_over_the_images() -> None:
    text = _pod("vllm/vllm-openai:v0.9.1", "[--num-scheduler-steps, '8']")
    assert _codes(text) == []
    assert _codes(text, version=(0, 32)) == ["removed-flag"]
    (problem,) = argument_problems("m.yaml", text, version=(0, 32))
    assert problem.severity == "error"
    unknown = text.replace("v0.9.1", "latest")
    (problem,) = argument_problems("m.yaml", unknown)
    assert (problem.severity, problem.message) == (
        "warning",
        "vLLM 0.10 removed --num-scheduler-steps",
    )


def test_another_servers_flags_are_its_own() -> None:
    args = "[--max-running-requests, '64', --context-length, 4k]"
    assert _codes(_pod("lmsysorg/sglang:v0.4.9", args)) == []
    assert _codes(_pod("vllm/vllm-openai:v0.9.1", args)) == ["no-such-flag", "no-such-flag"]


def test_an_alias_and_a_merge_key_are_followed() -> None:
    text = (
        "x: &base\n  image: vllm/vllm-openai:v0.32.0\n"
        "services:\n  a:\n    <<: *base\n    command: [--max-num-seqs, 4k]\n"
        "  b:\n    <<: [*base]\n    command: --swap-space 4\n"
    )
    assert _codes(text) == ["flag-value", "removed-flag"]


def test_a_document_that_names_itself_ends() -> None:
    assert _codes("a: &x\n  - *x\n  - --max-num-seqs=0\n") == ["flag-value"]


def test_aliases_of_aliases_take_no_time() -> None:
    lines = ["a0: &a0 [--max-num-seqs=0]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert _codes("\n".join(lines)) == ["flag-value"]


@pytest.mark.parametrize(
    "text,code",
    [
        ("apiVersion: v1\nkind: Pod\n\targs: []\n", "yaml"),
        ("apiVersion: v1\na: " + "[" * 60 + "]" * 60, "too-deep"),
        ("apiVersion: v1\n# " + "x" * (1 << 20), "too-large"),
        ("apiVersion: v1\na: \x00\n", "yaml"),
        ("{{- if .Values.a }}\nargs: []\n{{- end }}\n", "helm-template"),
        ("apiVersion: v1\nargs: {{ toYaml .Values.args }}\n", "helm-template"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, code: str) -> None:
    assert is_manifest(text)
    (problem,) = argument_problems("m.yaml", text)
    assert problem.code == code


def test_values_that_helm_or_a_shell_fills_in_are_unknown() -> None:
    args = "['--max-num-seqs={{ .seqs }}', --max-num-batched-tokens, $(BUDGET), --port, '$P']"
    assert _codes(_pod("vllm/vllm-openai:v0.32.0", args)) == []


@pytest.mark.parametrize(
    "path",
    sorted([*(ROOT / "rules").rglob("*.yaml"), *(ROOT / "deploy").rglob("*.yaml")]),
    ids=lambda path: path.name,
)
def test_driftwatchs_own_files_have_no_problem(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.is_relative_to(ROOT / "rules"):
        assert not is_manifest(text)
    elif "templates" in path.parts:  # of the chart: what helm makes of them is looked at
        assert {one.code for one in argument_problems(path.name, text)} <= {"helm-template"}
    elif is_manifest(text):
        assert argument_problems(path.name, text) == ()


@pytest.mark.parametrize("name", ["RTX4090_Llama-3.1-8B", "RTXPRO6000_Llama-3.1-8B"])
def test_a_recorded_servers_settings_have_no_problem(shared_data: Path, name: str) -> None:
    text = (shared_data / "gpu-runs" / name / "meta.json").read_text(encoding="utf-8")
    reading = read_arguments("meta.json", text, version=(0, 19))
    assert reading.command_lines >= 1
    assert reading.problems == ()
    changed = re.sub(r'("max_num_batched_tokens": )\d+', r"\g<1>1", text, count=1)
    assert [p.code for p in argument_problems("m", changed, version=(0, 19))] == ["flag-conflict"]


@pytest.mark.parametrize(
    "text,expected",
    [
        ("grups:\n  - rules:\n      - alert: A\n        summary: raise --max-num-seqs\n", False),
        ("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec: {groups: []}\n", True),
        ("pools:\n  - serving: {arguments: vllm serve m --max-num-seqs 8}\n", False),
        ("x:\n  cmd: vllm serve m\n", True),
        ("max-num-seqs: 8\nmax-num-batched-tokens: 4\n", True),
        ("name: ci\non: push\n", False),
        ("", False),
    ],
)
def test_files_are_told_apart_by_their_content(text: str, expected: bool) -> None:
    assert is_manifest(text) is expected


def test_a_file_of_arguments_for_config_is_checked() -> None:
    assert _codes("max-num-seqs: 8\nmax-num-batched-tokens: 4\nswap-space: 4\n") == [
        "flag-conflict",
        "removed-flag",
    ]


def test_every_problem_has_a_heading_in_the_docs() -> None:
    headings = set(
        re.findall(r"^### (.*)", (ROOT / "docs/sre/vllm-arguments.md").read_text(), re.MULTILINE)
    )
    codes = {
        call.args[0].value
        for path in (ROOT / "driftwatch/vllm_arguments").glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "Fault"
        and isinstance(call.args[0], ast.Constant)
    }
    assert codes | {"quote", "helm-template", "no-command-line"} == CODES == headings

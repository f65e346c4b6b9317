"""Values replaced in files of other people: every other byte stays, or nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from driftwatch.errors import ConfigError
from driftwatch.model import KnobMove
from driftwatch.rulebook.render import render_problems
from driftwatch.vllm_arguments import read_arguments
from driftwatch.vllm_arguments.patch import server_in

SEQS = KnobMove("max_num_seqs", 64.0, 128.0, "config")
BUDGET = KnobMove("max_num_batched_tokens", 512.0, 2048.0, "config")
CORPUS = Path(__file__).parent / "corpus"

CHART = """\
# values of the chart
servingEngineSpec:
  modelSpec:
  - name: rag   # ours
    vllmConfig:
        maxNumSeqs:   64    # tuned in May
        extraArgs: ["--max-num-batched-tokens=512", '--seed', "1"]
"""
POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.32.0
      args:
        - --model=m
        - --max-num-seqs
        - "64"     # half of what fits
        - '--max_num_batched_tokens=512'
"""
SCRIPT = """\
services:
  rag:
    image: vllm/vllm-openai:v0.32.0
    command: >
      --model m
      --max-num-seqs 64 --max-num-batched-tokens   "512"
"""
RAY = """\
kind: RayService
apiVersion: ray.io/v1
spec:
  serveConfigV2: |
    applications:
      - args:
          engine_kwargs:
            max_num_seqs: 64
            max_num_batched_tokens: 512
"""


def _without(text: str, *values: str) -> str:
    for value in values:
        assert text.count(value) == 1
        text = text.replace(value, "#")
    return text


@pytest.mark.parametrize("text", [CHART, POD, SCRIPT, RAY], ids=["chart", "pod", "script", "ray"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_only_the_values_change(text: str, ends: str) -> None:
    text = text.replace("\n", ends)
    patch = server_in("f.yaml", text).patched(text, (BUDGET, SEQS))
    assert _without(patch.text, "128", "2048") == _without(text, "64", "512")
    assert [(one.knob, one.before, one.after) for one in patch.edits] == [
        ("max_num_seqs", "64", "128"),
        ("max_num_batched_tokens", "512", "2048"),
    ]
    lines = text.split(ends)
    for one in patch.edits:
        at = one.place.column - 1
        assert lines[one.place.line - 1][at : at + len(one.before)] == one.before
    # another reader takes it, and the same file cannot be patched twice
    YAML(typ="safe", pure=True).load(patch.text)
    with pytest.raises(ConfigError, match="here already"):
        server_in("f.yaml", patch.text).patched(patch.text, (SEQS,))


@pytest.mark.parametrize(
    ("before", "typed"), [(1000.0, "1k"), (8192.0, "8K"), (None, "64"), (64.0, '"64"')]
)
def test_a_value_is_compared_as_vllm_reads_it(before: float | None, typed: str) -> None:
    text = f"vllmConfig: {{maxNumSeqs: {typed}}}\n"
    move = KnobMove("max_num_seqs", before, 128.0)
    assert server_in("f.yaml", text).patched(text, (move,)).text == text.replace(
        typed.strip('"'), "128"
    )


def test_a_line_chooses_among_servers() -> None:
    text = POD + "---\n" + POD
    second = len(POD.splitlines()) + 11
    patch = server_in("f.yaml", text, line=second).patched(text, (SEQS,))
    assert patch.text.startswith(POD)
    assert patch.text == POD + "---\n" + POD.replace('"64"', '"128"')


REFUSED = {
    "no server": "replicas: 3\nimage: nginx\n",
    "no argument": POD.replace("--max-num-seqs\n", "--seed\n"),
    "no argument of the chart": CHART.replace("maxNumSeqs:   64    # tuned in May", "dtype: auto"),
    "two servers": POD + "---\n" + POD,
    "anchor": "x-args: &args [vllm, serve, m, --max-num-seqs=64]\n"
    "a: {command: *args}\nb: {command: *args}\n",
    "merged": "x: &x\n  vllmConfig: {maxNumSeqs: 64}\nrag:\n  <<: *x\n  name: rag\n",
    "variable": POD.replace('"64"', "$(MAX_NUM_SEQS)"),
    "template in values": CHART.replace("64", '"{{ .Values.seqs }}"'),
    "template": "{{- if .Values.gpu }}\n" + POD + "{{- end }}\n",
    "twice": POD + "        - --max-num-seqs=32\n",
    "another value": POD.replace('"64"', '"96"'),
    "no number": POD.replace('"64"', "many"),
    "escaped": POD.replace('"64"', r'"\x364"'),
    "no YAML": "a: [1\n",
    "vLLM refuses": POD.replace("tokens=512", "tokens=100"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_replaced(name: str, golden: Callable[[str, str], None]) -> None:
    text = REFUSED[name]
    with pytest.raises(ConfigError) as refused:
        server_in("values.yaml", text).patched(text, (SEQS,))
    shown = render_problems(refused.value.problems)
    golden(f"vllm_arguments/patch/{name.replace(' ', '-')}.txt", f"{shown}\n")
    assert all(problem.line for problem in refused.value.problems)


def test_every_move_is_refused_at_once() -> None:
    text = POD.replace('"64"', '"96"').replace("512", "1024")
    with pytest.raises(ConfigError) as refused:
        server_in("values.yaml", text).patched(text, (SEQS, BUDGET))
    assert [one.code for one in refused.value.problems] == ["other-value", "other-value"]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_file_of_the_corpus_keeps_every_other_byte(path: Path) -> None:
    """Each of its command lines, with whatever values it has, or a problem at a line."""
    text = path.read_text(encoding="utf-8")
    for line in range(1, len(text.splitlines()) + 1):
        for knob in ("max_num_seqs", "max_num_batched_tokens"):
            try:
                server = server_in(path.name, text, line=line)
                patch = server.patched(text, (KnobMove(knob, None, 4099.0),))
            except ConfigError as error:
                assert all(one.line is not None for one in error.problems)
                continue
            (edit,) = patch.edits
            before, after = text.split("\n"), patch.text.split("\n")
            at = edit.place.line - 1
            assert (before[:at], before[at + 1 :]) == (after[:at], after[at + 1 :])
            assert len(after[at]) - len(before[at]) == 4 - len(edit.before)
            assert "4099" in after[at]
            assert read_arguments("f", patch.text).command_lines > 0

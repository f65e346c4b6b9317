"""What is read by libyaml agrees with ruamel.yaml, to the place and the character."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from driftwatch import yaml_events
from driftwatch.vllm_arguments.documents import Documents
from driftwatch.yaml_events import Unsure, pure_events, quick_events
from driftwatch.yaml_positions import LINE_BREAK, Composer, YamlFile, compose_quickly, parse_yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    path
    for folder in ("rules", "deploy", "tests/data")
    for path in sorted((ROOT / folder).rglob("*.y*ml"))
]

TEXT = """\
# rules
groups:
  - name: mine # a name
    rules:
      - alert: Queue
        when: >-
          waiting_requests > 20
          AND slo_missed
        for: 1h30m
        labels: {team: a, level: 3}
        inhibited_by: [Other, "x y", 'z']
        enabled: true
        annotations:
          summary: "more than # 20"
          runbook_url: https://host/a#b
      -   alert: Other
          empty: []
          none: {}
          text: |
            one
            two

          list:
          - -0.5
          - 1e3
          - ~
tree: last
"""


def by_libyaml(text: str, composer: type[Composer]) -> YamlFile | None:
    return compose_quickly(YamlFile("x", LINE_BREAK.split(text)), text, composer)


def agrees(text: str) -> bool:
    """Whether libyaml reads the text; it does so as ruamel.yaml does."""
    is_quick = False
    for composer in (Composer, Documents):
        quick = by_libyaml(text, composer)
        if quick is not None:
            file = YamlFile("x", quick.lines)
            file.root = composer(file, text).document(pure_events(text))
            assert file.problems == []
            # 1, 1.0 and True are equal
            assert repr(quick.root) == repr(file.root)
            is_quick = is_quick or composer is Composer
    return is_quick


def test_the_files_of_the_repository() -> None:
    quick = [path for path in FILES if agrees(path.read_text(encoding="utf-8"))]
    assert {path.name for path in (ROOT / "rules").glob("*.yaml")} <= {p.name for p in quick}


def test_every_form_that_it_reads() -> None:
    assert agrees(TEXT)
    assert agrees(TEXT.rstrip("\n"))
    assert agrees(TEXT + "\n\n# the end\n")
    assert agrees("- a\n- b: c\n  d: e\n")
    assert agrees("- |\n  no line break at the end")
    assert agrees("a: b\n  c\nd: 'e\n\n  f'\ng: [h\n]\n'i': \"\\u0041\\n\"\n")
    assert agrees("# 😀 é\na: '😀' # 😀\nb: 😀 c\nd: [😀, e]\n")


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("letter", ["a", "😀"])
@pytest.mark.parametrize("length", [1023, 1024, 1025])
def test_long_keys(length: int, letter: str, quote: str) -> None:
    key = f"{quote}{letter * length}{quote}"
    agrees(f"{key}: 1\n")
    agrees(f"- {{{key}: 1, b: 2}}\n")
    agrees(f"- [{key} : 1]\n")


@pytest.mark.parametrize(
    "text",
    [
        *("a: &x 1\n", "a: *x\n", "a: !t 1\n", "a: ! 1\n", "a: !!str 1\n", "a: 1\na: 2\n"),
        *("a:\tb\n", "a:\nb: 1\n", "a: \nb: 1\n", "{a}\n", "- \n", "? a\n", "a: b: c\n"),
        *("a\n...\n...\n", "a: b\n  c: d\n", "a: 'b\n---\nc'\n"),
        *("a: b\r\n", "a: b\x85\n", "a: b\u2028\n", "\ufeffa: b\n", "a: x\x07\n", "a: \ud800\n"),
        *("%YAML 1.1\n---\na: 010\n", '{"a":1}\n', "[a, 'b':c]\n", "<<: {a: 1}\n", "a: 1\n---\n"),
        *("a: |1\n  b\n", "a: |#b\n c\n", "a: >\n   \n b\n", "|\n...\n", ">-\n---\na\n", "|\na\n"),
        "[" * 51 + "1" + "]" * 51,
    ],
)  # fmt: skip
def test_what_is_left_to_ruamel(text: str) -> None:
    assert by_libyaml(text, Composer) is None
    agrees(text)


def test_without_libyaml_all_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (TEXT, TEXT.replace("  - name", " - name"), TEXT.replace("Queue", "&x Queue"))
    quick = [parse_yaml(text, "x") for text in texts]
    monkeypatch.setattr(yaml_events, "LIBYAML", None)
    with pytest.raises(Unsure):
        next(quick_events(TEXT))
    assert [parse_yaml(text, "x") for text in texts] == quick


PIECES = [
    *("\n", " ", "  ", "- ", "#", " #", ": ", ":", ", ", "[", "]", "{", "}", "'", '"', "&", "*"),
    *("!", "|", ">", ">-", "|-", "%", "@", "a", "b: c", "~", "-", "--- ", "\t", "\r", "1", "é"),
    *("\n\n", "\n  ", "\n        ", "...", "?", "? ", "<<: ", "\u00a0", "\u2028", "null", "yes"),
    *("\n...\n", "\r\n", "\x85", "\\", "\\n", "😀", "\ufeff", "%YAML 1.1\n---\n", "&x ", "*x", "`"),
    *("!t ", "!!str ", "|+", ">2", "=", "010", "0o7", "a:b", "'a':b", '"a":b', "?a", "\n \n"),
]  # fmt: skip
pieces = st.sampled_from(PIECES)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(TEXT)), st.integers(0, 12), pieces), min_size=1, max_size=3
    )
)
@example([(0, 0, "a: b\n")])
def test_a_text_with_some_changes(changes: list[tuple[int, int, str]]) -> None:
    text = TEXT
    for at, length, piece in changes:
        text = text[:at] + piece + text[at + length :]
    agrees(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(pieces, max_size=14).map("".join))
def test_any_text(text: str) -> None:
    agrees(text)
    agrees(f"k: {text}\nl: 1\n")
    agrees(f"- {text}\n- x: [{text}]\n")

"""The corpus of wrong rule and tree files: what `driftwatch check` prints of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_tree_files import TREE

from driftwatch.rulebook.book import read_rulebook
from driftwatch.rulebook.render import render_problems

RULE = "alert: A, when: scrapes > 1, severity: page, "
RULES = [
    "alert: A, expr: up == 0, severity: page",
    "alert: A, when: restarted, severity: page, anotations: {}",
    "alert: A, when: restarted, severity: critical",
    "alert: A, when: restarted, severity: pag",
    "alert: A, when: restarted",
    "alert: A, severity: page",
    "when: restarted, severity: page",
    "alert: A, when: restarted, severity: page, for: -5m",
    "alert: A, when: restarted, severity: page, for: 5",
    "alert: A, when: restarted, severity: page, enabled: false",
    "alert: A, when: restarted, severity: page, enabled: nope",
    "alert: A, when: restarted, severity: page, labels: {x: 1}",
    "alert: A, when: restarted, severity: page, labels: {severity: page}",
    "alert: A B, when: restarted, severity: page",
    "alert: A, when: restarted, severity: page, tree: batch-size-drif",
    "alert: A, when: [restarted], severity: page",
    "alert: A, when: restarted, severity: page, receivers: oncall",
    "alert: A, when: restarted and, severity: page",
    "alert: A, when: scrapes > 1, severity: ticket, by: pool",
    "alert: A, when: 1 > 2, severity: page",
    "record: A, when: scrapes > 1, severity: page",
    RULE + "inhibited_by: [Bigger]",
    RULE + "inhibited_by: [A]",
    RULE + "until: scrapes_ < 1",
    RULE + "page: {says: ['{presnt}']}",
    RULE + "page: {family: trafic}",
    RULE + "page: {aslo: []}",
]
TWINS = """\
groups:
  - name: g
    rules:
      - {alert: A, when: scrapes > 1, severity: ticket}
      - alert: A
        when: scrapes > 2
        severity: page
        overrides: [{pool: a, severity: notice}] # which stand in the configuration now
"""
SHAPES = [
    "",
    "- a\n",
    "rules: []\n",
    "groups: 5\n",
    "groups: [5]\n",
    "groups: [{name: g, rules: [5]}]\n",
    "groups: [{rules: []}]\n",
    "groups: [{name: g, rules: []}, {name: g, rules: []}]\n",
]
# what stands in the tree, and what is written in its place
TREES = [
    ("yes: second", "yes: secnd"),
    ("yes: bad", "yes: first"),
    ("no: good\n  second", "no: first\n  second"),
    ("start: first", "start: second"),
    ("start: first", "start: firs"),
    ("start: first", "start: good"),
    ("yes: bad", "yes: good"),
    ("yes: bad", "yes: undetermined"),
    ("show: [scrapes]", "show: [scrape]"),
    ("ttft_10m_seconds > 1", "ttft_10m_second > 1"),
    ("not_asked: {speed_at_equal_load_ratio: ", "not_asked: {scrapes: "),
    ("cause_on_yes: prompts", "cause_on_yes: prompt"),
    ("question: Slow?", "qestion: Slow?"),
    ("    question: Slow?\n", ""),
    ("kind: healthy", "kind: helthy"),
    (", advice: Do not change a knob; drain it", ""),
    ("kind: none", "kind: change"),
    ("kind: healthy", "kind: healthy, knob: max_num_seqs"),
    ("  good:", "  second:"),
    ("  good:", "  undetermined:"),
    ("start: first\n", ""),
    ("leaves:", "leafs:"),
]


def _problems(name: str, texts: list[str]) -> str:
    """Of each text what is wrong with it; in every one something is."""
    parts = []
    for text in texts:
        Path(name).write_text(text, encoding="utf-8")
        reading = read_rulebook([Path(name)])
        assert reading.problems, text
        parts.append(render_problems(reading.problems, files=1))
    return "\n\n".join(parts) + "\n"


def test_wrong_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    big = "      - {alert: Big, when: scrapes > 1, severity: page}\n"
    texts = [f"groups:\n  - name: g\n    rules:\n      - {{{body}}}\n{big}" for body in RULES]
    golden("rulebook/wrong-rules.txt", _problems("r.yaml", [*texts, *SHAPES, TWINS]))


def test_wrong_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert all(TREE.count(old) for old, _ in TREES)
    texts = [TREE.replace(old, new, 1) for old, new in TREES]
    golden("rulebook/wrong-trees.txt", _problems("tree.yaml", texts))

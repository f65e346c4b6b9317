"""Rule and tree files: what `driftwatch check` prints of each wrong one, and a right tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from driftwatch.errors import ConfigError, Problem
from driftwatch.rulebook.book import load_rulebook, read_rulebook
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
    RULE + "page: {says: ['{{ $value }} {presnt}']}",
    "alert: A, when: num_requests_waiting > 5, severity: page",
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
    (", advice: Drain it", ""),
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


LEAVES = """\
leaves:
  good: {kind: healthy, meaning: all is well}
  bad: {kind: none, meaning: it is slow, advice: Drain it}
"""
TREE = (
    """\
tree: mine
start: first
nodes:
  first:
    question: Restarted?
    when: restarted OR speed_at_equal_load_ratio <= 0.85
    not_asked: {speed_at_equal_load_ratio: not measured}
    show: [scrapes]
    cause_on_yes: prompts
    yes: second
    no: good
  second:
    question: Slow?
    when: ttft_10m_seconds > 1
    yes: bad
    no: good
"""
    + LEAVES
)


def load(folder: Path, text: str) -> Path:
    path = folder / "tree.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_rulebook([load(folder, text)])
    return list(caught.value.problems)


def test_a_tree(tmp_path: Path) -> None:
    tree = load_rulebook([load(tmp_path, TREE)]).trees["mine"]
    assert (tree.start, list(tree.nodes), list(tree.leaves)) == (
        "first",
        ["first", "second"],
        ["good", "bad"],
    )
    first = tree.nodes["first"]
    assert (first.yes, first.no, first.show, first.cause_on_yes) == (
        "second",
        "good",
        ("scrapes",),
        "prompts",
    )
    assert first.not_asked == {"speed_at_equal_load_ratio": "not measured"}
    unknown = pl.DataFrame({"restarted": [False], "speed_at_equal_load_ratio": [None]})
    answer = unknown.select(strict=first.when.expression, lenient=first.lenient.expression)
    assert answer.rows() == [(None, False)]
    assert tree.leaves["bad"].advice == "Drain it"


def test_a_long_chain_is_no_recursion(tmp_path: Path) -> None:
    nodes = "".join(
        f"  n{i}: {{question: q, when: restarted, yes: n{i + 1}, no: bad}}\n" for i in range(1500)
    )
    last = "  n1500: {question: q, when: restarted, yes: good, no: bad}\n"
    text = f"tree: mine\nstart: n0\nnodes:\n{nodes}{last}{LEAVES}"
    assert len(load_rulebook([load(tmp_path, text)]).trees["mine"].nodes) == 1501
    (problem,) = problems(tmp_path, text.replace("yes: good", "yes: n0"))[:1]
    assert problem.code == "cycle"


def test_two_trees_of_one_name(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    for path in (first, second):
        path.write_text(TREE, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_rulebook([first, second])
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.code) == (str(second), 1, "duplicate")
    assert problem.message == f"a second tree mine, first in {first}"

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from driftwatch.errors import ConfigError, Problem
from driftwatch.rulebook.book import load_rulebook

LEAVES = """\
leaves:
  good: {kind: healthy, meaning: all is well}
  bad: {kind: none, meaning: it is slow, advice: Do not change a knob; drain it}
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
    assert tree.leaves["bad"].advice == "Do not change a knob; drain it"


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

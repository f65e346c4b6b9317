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
    when: ttft_seconds_mean > 1
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


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "message"),
    [
        ("yes: second", "yes: secnd", "unknown-node", 10, "there is no node or leaf secnd"),
        (
            "yes: bad",
            "yes: first",
            "cycle",
            15,
            "the tree goes in a circle: first → second → first",
        ),
        ("no: good\n  second", "no: first\n  second", "cycle", 11, None),
        ("start: first", "start: second", "unreachable", 4, None),
        ("start: first", "start: firs", "unknown-node", 2, "there is no node firs"),
        ("start: first", "start: good", "unknown-node", 2, "there is no node good"),
        ("yes: bad", "yes: good", "unreachable", 19, "no walk from first reaches leaf bad"),
        ("yes: bad", "yes: undetermined", "unknown-node", 15, None),
        ("show: [scrapes]", "show: [scrape]", "unknown-column", 8, "scrape"),
        ("ttft_seconds_mean > 1", "ttft_second_mean > 1", "unknown-column", 14, None),
        (
            "not_asked: {speed_at_equal_load_ratio: ",
            "not_asked: {scrapes: ",
            "unknown-column",
            7,
            "not_asked names scrapes, which the condition does not read",
        ),
        ("cause_on_yes: prompts", "cause_on_yes: prompt", "value", 9, None),
        ("question: Slow?", "qestion: Slow?", "unknown-key", 13, "unknown key qestion"),
        ("    question: Slow?\n", "", "missing-key", 12, "node second has no question"),
        ("kind: healthy", "kind: helthy", "value", 18, None),
        (", advice: Do not change a knob; drain it", "", "missing-key", 19, None),
        ("kind: none", "kind: change", "missing-key", 19, "leaf bad has no knob"),
        (
            "kind: healthy",
            "kind: healthy, knob: max_num_seqs",
            "value",
            18,
            "a leaf of kind healthy changes no knob",
        ),
        ("  good:", "  second:", "duplicate", 18, "second is a node and a leaf"),
        ("  good:", "  undetermined:", "reserved", 18, None),
        ("start: first\n", "", "missing-key", 1, "the tree has no start"),
        ("leaves:", "leafs:", "unknown-key", 17, "unknown key leafs"),
    ],
)
def test_what_is_wrong_with_a_tree(
    tmp_path: Path, old: str, new: str, code: str, line: int, message: str | None
) -> None:
    assert TREE.count(old) >= 1
    found = problems(tmp_path, TREE.replace(old, new, 1))
    places = [(p.code, p.line) for p in found]
    assert (code, line) in places, places
    assert message is None or message in [p.message for p in found]


def test_a_node_may_be_reached_twice(tmp_path: Path) -> None:
    text = TREE.replace("no: good\n  second", "no: second\n  second")
    tree = load_rulebook([load(tmp_path, text)]).trees["mine"]
    assert tree.nodes["first"].yes == tree.nodes["first"].no == "second"


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

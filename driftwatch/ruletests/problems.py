"""Names and times in a test that do not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from driftwatch.diagnose.tree import UNDETERMINED, Tree
from driftwatch.rulebook.book import Rulebook
from driftwatch.ruletests.cases import Expectation, RuleTest
from driftwatch.ruletests.series import Evidence, Places
from driftwatch.ruletests.timeline import recording_path, window_of
from driftwatch.yaml_models import Location, near


def note_wrong_names(
    test: RuleTest, book: Rulebook, evidence: Evidence | None, places: Places, folder: Path
) -> None:
    """Note every name that does not exist, and every time outside of the series."""
    if evidence is None:
        _note_files(test, folder, places)
    for number, one in enumerate(test.expect):
        here = replace(places, begin=(*places.begin, "expect", number))
        if evidence is not None:
            pools = set(evidence.pools.values())
            for found in outside(one, evidence.minutes, evidence.columns, pools, "test"):
                here.add(*found)
        _note_alerts(one, book, here)
        _note_tree(test, one, book, here)


def tree_of(one: Expectation, book: Rulebook) -> str | None:
    """The tree that it names; else that of its alerts; else the only one that rules name."""
    if one.tree is not None:
        return one.tree
    named = {*(one.alerts or ()), *one.alerts_include}
    of_alerts = {r.tree for r in book.rules if named & {r.alert, r.id} and r.tree is not None}
    trees = of_alerts or {rule.tree for rule in book.rules if rule.tree is not None}
    return trees.pop() if len(trees) == 1 else None


def _note_files(test: RuleTest, folder: Path, places: Places) -> None:
    if not recording_path(test.recording or "", folder).exists():
        message = f"there is no recording {test.recording} beside this file"
        places.add(("recording",), "no-files", message)
    if test.config is not None and not (folder / test.config).exists():
        places.add(("config",), "no-files", f"there is no {test.config} beside this file")
    if test.baseline is not None and window_of(test.baseline) is None:
        places.add(("baseline",), "value", f"{test.baseline} is no FROM..TO", "write 10m..95m")


def outside(
    one: Expectation, minutes: int, targets: Collection[str], pools: Collection[str], what: str
) -> Iterator[tuple[Location, str, str, str | None]]:
    """Time and names of an expectation that a test does not have: key, code, message, help.

    ``what``: the test or its recording.
    """
    if one.at is not None and one.at >= 60 * minutes:
        help_text = "one more value of a series is one more minute" if what == "test" else None
        yield ("at",), "time", f"the {what} ends at {minutes - 1}m", help_text
    for key, name, names in (("pool", one.pool, pools), ("target", one.target, targets)):
        if name is not None and name not in names:
            hint = near(name, names) or f"it has {', '.join(sorted(names)[:4])}"
            yield (key,), f"unknown-{key}", f"there is no {key} {name} in this {what}", hint
    if one.pool is None and one.target is None and len(targets) > 1:
        help_text = f"target: one of {', '.join(sorted(targets)[:4])}; or pool:"
        yield (), "missing-key", f"which target? The {what} has several", help_text


def _note_alerts(one: Expectation, book: Rulebook, here: Places) -> None:
    names = {name for rule in book.rules if rule.enabled for name in (rule.alert, rule.id)}
    off = {name for rule in book.rules for name in (rule.alert, rule.id)} - names
    for key in ("alerts", "alerts_include"):
        for number, name in enumerate(getattr(one, key) or ()):
            location: Location = (key, number)
            if name in off:
                here.add(location, "disabled", f"{name} is off (enabled: false): it never fires")
            elif name not in names:
                message = f"there is no alert {name} in the rules"
                here.add(location, "unknown-alert", message, near(name, names))


def _note_tree(test: RuleTest, one: Expectation, book: Rulebook, here: Places) -> None:
    if one.tree is not None and test.series is None:
        message = "a page walks the tree of its rule"
        here.add(("tree",), "value", message, "leave out tree:, or test it with series:")
        return
    if one.tree is not None and one.tree not in book.trees:
        message = f"there is no tree {one.tree} in the rules"
        here.add(("tree",), "unknown-tree", message, near(one.tree, book.trees))
        return
    if one.pool is not None and test.series is not None and (one.leaf or one.path):
        here.add(("pool",), "value", "only a target has a path, a pool has none", "target: …")
    name = tree_of(one, book)
    if name is None and test.series is not None and (one.leaf or one.path or one.missing):
        if book.trees:
            message = "which tree? The rules name several"
            here.add((), "missing-key", message, f"tree: one of {', '.join(sorted(book.trees))}")
        else:
            here.add((), "unknown-tree", "no rule here has a tree", "tree: is a key of a rule")
        return
    trees = [book.trees[name]] if name is not None else list(book.trees.values())
    _note_leaf_and_path(one, trees, here)


def _note_leaf_and_path(one: Expectation, trees: Collection[Tree], here: Places) -> None:
    leaves = {UNDETERMINED, *(leaf for tree in trees for leaf in tree.leaves)}
    where = f" in tree {next(iter(trees)).name}" if len(trees) == 1 else ""
    if one.leaf is not None and one.leaf not in leaves:
        message = f"there is no leaf {one.leaf}{where}"
        here.add(("leaf",), "unknown-leaf", message, near(one.leaf, leaves))
    nodes = {node for tree in trees for node in tree.nodes}
    for node in one.path:
        if node not in nodes:
            message = f"there is no node {node}{where}"
            here.add(("path", node, "[key]"), "unknown-node", message, near(node, nodes))

"""Docs that cannot rot: every name a user meets has a heading with something said under it.

After datasette's ``tests/test_docs.py``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import click
import pytest

from driftwatch.cli.main import VERBS, command_of
from driftwatch.collect.registry import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*$")


def sections(path: Path) -> dict[str, str]:
    """Heading without its marks → the text up to the next heading of its level or above.

    The text is only that of the section itself: what stands under a heading below it counts too,
    so that a chapter may begin with its first part. Lines in code fences are no headings.
    """
    found: dict[str, str] = {}
    open_headings: list[tuple[int, str]] = []
    fenced = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        match = None if fenced else HEADING.match(line)
        if match is None:
            for _, name in open_headings:
                found[name] += line + "\n"
            continue
        level, name = len(match[1]), match[2].replace("`", "")
        open_headings = [entry for entry in open_headings if entry[0] < level]
        assert name not in found, f"{path.name}: two headings {name!r}"
        open_headings.append((level, name))
        found[name] = ""
    return found


def said(text: str) -> int:
    """Words under a heading; markers and fences are none."""
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"<!--.*?-->|```\w*", "", text)))


ITEM = re.compile(r"^- ((?:`[^`]+`(?:, )?)+)(.*)")


def entries(path: Path) -> dict[str, str]:
    """Name → what a page says of it, under a heading or in a list item that begins with it."""
    found = sections(path)
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := ITEM.match(line):
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", match[1]), match[2])
    return found


def undocumented(names: Iterator[str], page: str) -> list[str]:
    found = entries(DOCS / page)
    return [name for name in names if said(found.get(name, "")) < 2]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_something_is_said_under_every_heading(path: Path) -> None:
    assert [name for name, text in sections(path).items() if said(text) < 4] == []


@pytest.mark.parametrize(
    "path", sorted((DOCS / "methods").glob("*.md")), ids=lambda path: path.name
)
def test_a_method_says_in_five_lines_what_why_and_how_sure(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()[2:7]
    starts = [line.split("**")[1] for line in lines]
    assert starts == ["What", "Why", "How", "How sure", "Not"]


def test_every_metric_is_documented() -> None:
    assert undocumented((metric.column for metric in REGISTRY), "sre/metrics.md") == []
    text = (DOCS / "sre/metrics.md").read_text(encoding="utf-8")
    names = {m.wire_name for m in REGISTRY} | {o.wire_name for m in REGISTRY for o in m.old_names}
    assert [name for name in sorted(names) if f"`{name}" not in text] == []


def test_every_verb_is_documented() -> None:
    assert undocumented((f"driftwatch {verb}" for verb in VERBS), "sre/commands.md") == []


def _commands() -> Iterator[tuple[str, click.Command]]:
    for verb in VERBS:
        command = command_of(verb)
        yield f"driftwatch {verb}", command
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield f"driftwatch {verb} {name}", inner


def test_every_option_says_what_it_does() -> None:
    silent = [
        f"{path} {parameter.opts[-1]}"
        for path, command in _commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert silent == []


def test_generated_pages_are_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "docs", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def _docs_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("docs_script", str(ROOT / "scripts" / "docs"))
    spec = importlib.util.spec_from_loader("docs_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_page_that_is_out_of_date_is_noticed_and_hand_written_text_is_kept() -> None:
    script = _docs_script()
    text = f"# Before\n\n{script.BEGIN}\nold\n{script.END}\n\nAfter.\n"
    filled = script.filled(text, lambda: iter(["new"]))
    assert filled == f"# Before\n\n{script.BEGIN}\n\nnew\n\n{script.END}\n\nAfter.\n"
    assert script.filled(filled, lambda: iter(["new"])) == filled
    with pytest.raises(SystemExit):
        script.filled("no markers", lambda: iter(["new"]))


# -- links ---------------------------------------------------------------------------------------

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchor(heading: str) -> str:
    """The anchor that a forge makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _linking_pages() -> list[Path]:
    outside = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [*outside, *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("path", _linking_pages(), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        there = page.exists()
        if there and fragment:
            there = fragment in {anchor(heading) for heading in sections(page)}
        if not there:
            broken.append(target)
    assert broken == []


def test_a_decision_says_what_and_why_under_its_number() -> None:
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        assert "**Decided.**" in text and "**Why.**" in text, path.name


# -- rules ---------------------------------------------------------------------------------------


def test_every_field_of_a_rule_file_is_documented() -> None:
    from driftwatch.rulebook.rules import RuleInFile
    from driftwatch.rulebook.trees import LeafInFile, NodeInFile
    from driftwatch.rulebook.values import PHRASES, PageForm

    models = {"rule": RuleInFile, "page": PageForm, "node": NodeInFile, "leaf": LeafInFile}
    fields = [(n, key, one) for n, m in models.items() for key, one in m.model_fields.items()]
    names = [f"{name}: {field.alias or key}" for name, key, field in fields]
    names += [f"tree file: {key}" for key in ("tree", "start", "nodes", "leaves")]
    text = (DOCS / "sre/rules.md").read_text(encoding="utf-8")
    assert [name for name in PHRASES if f"| `{name}` |" not in text] == []
    assert undocumented(iter(names), "sre/rules.md") == []


def test_every_field_of_a_rule_test_is_documented() -> None:
    from driftwatch.ruletests import cases

    parts = {
        "test file": cases.RuleTestFile,
        "test": cases.RuleTest,
        "expect": cases.Expectation,
    }
    names = [f"{part}: {key}" for part, model in parts.items() for key in model.model_fields]
    assert undocumented(iter(names), "sre/rule-tests.md") == []


def test_every_word_that_a_field_takes_is_in_the_docs() -> None:
    from driftwatch.diagnose.tree import LeafKind
    from driftwatch.model import Severity
    from driftwatch.rulebook.trees import Cause

    found = entries(DOCS / "sre/rules.md")
    for section, words in {
        "rule: severity": get_args(Severity),
        "leaf: kind": get_args(LeafKind),
        "node: cause_on_yes": get_args(Cause),
    }.items():
        assert [word for word in words if f"`{word}`" not in found[section]] == []


def test_the_example_of_a_rule_file_is_one(tmp_path: Path) -> None:
    from driftwatch.rulebook.book import load_rulebook

    text = (DOCS / "sre/rules.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(groups:.*?)```", text, flags=re.S)
    file = tmp_path / "rules.yaml"
    file.write_text(example)
    assert [rule.alert for rule in load_rulebook([file]).rules] == ["QueueLong"]


def test_every_shipped_alert_and_leaf_is_in_the_runbook() -> None:
    from driftwatch.rulebook.book import load_rulebook

    book = load_rulebook()
    names = {rule.alert for rule in book.rules}
    names |= {leaf for tree in book.trees.values() for leaf in tree.leaves} | {"undetermined"}
    assert len(names) > 10
    assert undocumented(iter(sorted(names)), "oncall/runbook.md") == []


def test_every_shipped_alert_is_in_the_readme_with_its_severities() -> None:
    from driftwatch.rulebook.book import load_rulebook

    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it reports")[2]
    rows = re.findall(r"^\| ([a-z, ]+) \| (.*?) \|", table.partition("\n## ")[0], flags=re.M)
    listed = {alert: cell for cell, names in rows for alert in re.findall(r"`([A-Z]\w+)`", names)}
    rules = load_rulebook().rules
    assert listed.keys() == {rule.alert for rule in rules}
    shown = {rule.alert: rule.severity if rule.enabled else "off" for rule in rules}
    assert [name for name, word in shown.items() if word not in listed[name]] == []
    assert f"counts {sum(rule.enabled for rule in rules)} that" in table


def test_the_runbook_names_the_severities_that_ship() -> None:
    from driftwatch.rulebook.book import load_rulebook

    found = entries(DOCS / "oncall/runbook.md")
    for rule in load_rulebook().rules:
        text = found[rule.alert].lower()
        assert (f"**{rule.severity}" in text) or (not rule.enabled and "**off" in text), rule.id


# -- own metrics ---------------------------------------------------------------------------------


def test_every_metric_of_driftwatch_itself_is_documented() -> None:
    from driftwatch.service.metrics import PREFIX, TARGET_COLUMNS, OwnMetrics

    text = (DOCS / "sre/operations.md").read_text(encoding="utf-8")
    assert [column for column in TARGET_COLUMNS if f"`{column}`" not in text] == []
    gauges = {PREFIX + column for column in TARGET_COLUMNS}
    endings = {"counter": "_total", "info": "_info"}
    names = [
        name
        for family in OwnMetrics().registry.collect()
        if (name := family.name + endings.get(family.type, "")) not in gauges
    ]
    assert "driftwatch_ticks_total" in names
    assert undocumented(iter(names), "sre/operations.md") == []
    listed = {n for n in entries(DOCS / "sre/operations.md") if n.startswith("driftwatch_")}
    assert listed == set(names)


# -- words -----------------------------------------------------------------------------------------

# The glossary has another word, or the sentence has no actor.
REPLACED_WORDS = re.compile(
    r"\b(twins?|laws?|worlds?|arming|anomal\w+|degraded|optimal"
    r"|(?:is|are|was|were) (?:said|told|asked|seen))\b(?<!Little's law)",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", _linking_pages(), ids=lambda path: path.name)
def test_a_page_uses_the_words_of_the_glossary(path: Path) -> None:
    if path.name in ("CHANGELOG.md", "glossary.md"):
        return
    text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
    assert sorted({match[0] for match in REPLACED_WORDS.finditer(" ".join(text.split()))}) == []

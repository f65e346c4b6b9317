"""The JSON Schemas of rules, trees, tests of rules and the configuration, from their models.

They say which keys there are and of what type; what keys say together ``driftwatch check`` finds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, create_model
from pydantic.json_schema import GenerateJsonSchema

from driftwatch.errors import UsageError
from driftwatch.rulebook.overrides import OverrideInFile
from driftwatch.rulebook.rules import RuleFile, RuleInFile, RulesInFile
from driftwatch.rulebook.trees import LeafInFile, NodeInFile, TreeInFile
from driftwatch.ruletests.cases import RuleTestFile
from driftwatch.settings import Settings
from driftwatch.settings.rules import RuleSettings

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_GROUP: Any = create_model(
    "Rules",
    __base__=RulesInFile,
    rules=(tuple[RuleInFile, ...], RulesInFile.model_fields["rules"]),
)
_RULES: Any = create_model(
    "RuleSettings",
    __base__=RuleSettings,
    overrides=(tuple[OverrideInFile, ...], RuleSettings.model_fields["overrides"]),
)
# name → model, and what an editor shows of the file
FILES: Mapping[str, tuple[type[BaseModel], str]] = {
    "rules": (
        create_model(
            "RuleFile",
            __base__=RuleFile,
            groups=(tuple[_GROUP, ...], RuleFile.model_fields["groups"]),
        ),
        "driftwatch rules",
    ),
    "tree": (
        create_model(
            "TreeFile",
            __base__=TreeInFile,
            nodes=(dict[str, NodeInFile], ...),
            leaves=(dict[str, LeafInFile] | None, None),
        ),
        "a driftwatch tree",
    ),
    "test": (RuleTestFile, "driftwatch rule tests"),
    "config": (
        create_model(
            "Settings",
            __base__=Settings,
            rules=(tuple[str, ...] | _RULES, Settings.model_fields["rules"]),
        ),
        "driftwatch configuration",
    ),
}
# definition → the first word of its keys in DESCRIPTIONS
DESCRIBED = {
    "RuleInFile": "rule",
    "OverrideInFile": "rule",
    "PageForm": "page",
    "TreeFile": "tree file",
    "NodeInFile": "node",
    "LeafInFile": "leaf",
    "RuleTestFile": "tests",
    "RuleTest": "test",
}
# What a property is, where its field does not say it.
DESCRIPTIONS: Mapping[str, str] = {
    "rule: alert": "the name: letters, digits and _",
    "rule: when": "the condition that fires",
    "rule: given": "a second condition: while it is not true, the rule is unknown",
    "rule: until": "the condition that ends a firing incident; default: when is false",
    "rule: for": "how long when must be true before the rule fires, in whole minutes; default 0s",
    "rule: keep_firing_for": "how long the end must hold before the incident resolves; default 0s",
    "rule: severity": "page (wakes somebody), ticket (this week) or notice (information)",
    "rule: per": "target (default): one incident per target; pool: one per pool, without tree and "
    "group",
    "rule: group": "one incident for the servers of a pool",
    "rule: inhibited_by": "alerts that keep this rule from firing on a target while they fire",
    "rule: enabled": "false: the rule is read and checked, but not evaluated",
    "rule: reason": "why it is off; required with enabled: false",
    "rule: tree": "the tree that finds the cause",
    "rule: labels": "static labels, part of the identity",
    "rule: page": "what its page prints; a group may have one for all of its rules",
    "rule: annotations": "summary (line 1 of your own alerts) and runbook_url (a link on the page)",
    "rule: receivers": "names of the receivers that get this rule",
    "page: says": "the middle of line 1: what is wrong; the longest text first",
    "page: since": "the text after the start time",
    "page: cause": "the Cause line",
    "page: also": "the Also line",
    "page: over": "the end of line 1 of the resolved page: tokens come again",
    "page: advice": "what to do if neither the tree's leaf nor a recommendation says it",
    "page: advice_of_many": "the same on a page about several targets",
    "page: lengths": "which ratio of lengths the phrases use: over the baseline's mean (default), "
    "the nearest earlier hours, the other servers, or 24 h over the baseline's",
    "page: columns": "the evidence that the page carries: columns, or groups of them",
    "page: family": "how the weekly report counts it; retune: a decision, none: no drift",
    "tree file: tree": "the tree's name",
    "tree file: continues": "the tree whose nodes and leaves the ways of this one lead on to",
    "tree file: start": "the first node",
    "tree file: nodes": "node names with their fields",
    "tree file: leaves": "leaf names with their fields; undetermined needs no entry",
    "node: question": "the question as printed",
    "node: when": "the condition; true is yes, false is no",
    "node: yes": "the node or leaf after a yes",
    "node: no": "the node or leaf after a no",
    "node: not_asked": "column → reason; while it is unknown, its comparisons are false here",
    "node: show": "more columns to print beside the answer",
    "node: cause_on_yes": "the cause that a yes establishes",
    "leaf: kind": "change (one knob may help), none (no knob helps), notice (something moved, "
    "nothing is wrong), healthy",
    "leaf: meaning": "one line for the reader",
    "leaf: knob": "the vLLM setting to change, in snake case; for the kind change only",
    "leaf: advice": "what to do, as an imperative; required for the kind none",
    "tests: tests": "what goes in, and what is expected",
    "test: name": "its name in the output and for --run",
    "test: expect": "what driftwatch says at these times",
}


class _Generator(GenerateJsonSchema):
    """Without warnings about defaults: they are left out."""

    ignored_warning_kinds = frozenset(("skipped-choice", "non-serializable-default"))  # type: ignore[assignment]


def schema_of(name: str) -> Schema:
    """One kind of file's schema; every property has a description.

    Raises ValueError: one has none.
    """
    model, title = FILES[name]
    schema = model.model_json_schema(
        by_alias=True, ref_template="#/$defs/{model}", schema_generator=_Generator
    )
    parts = {model.__name__: schema, **schema.get("$defs", {})}
    for part, of in parts.items():
        for key, value in of.get("properties", {}).items():
            value.pop("title", None)
            value.pop("default", None)
            said = DESCRIPTIONS.get(f"{DESCRIBED.get(part)}: {key}")
            value["description"] = value.get("description") or said
            if not value["description"]:
                raise ValueError(f"{part}.{key} has no description: its Field, or DESCRIPTIONS")
        of["title"] = _plain_title(part)
        of.pop("description", None)  # of the source, not of the file
        if part == "NodeInFile":
            of.pop("required", None)  # a tree that continues another one may say less of a node
    return {
        "$schema": DIALECT,
        "title": title,
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _plain_title(name: str) -> str:
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name.removesuffix("InFile").removesuffix("Settings"))
    return words.lower()


def schema_text(name: str) -> str:
    """The JSON Schema of ``rules``, ``tree``, ``test`` or ``config`` files."""
    return json.dumps(schema_of(name), indent=1, ensure_ascii=False) + "\n"


def write_schemas(folder: Path, names: Iterable[str]) -> list[Path]:
    """The files that were written or were there already, as they are in this version.

    Raises UsageError: the folder cannot be written.
    """
    paths = []
    for name in names:
        path = folder / f"{name}.schema.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(schema_text(name), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
        paths.append(path)
    return paths


def modeline(path: Path | str) -> str:
    """Line 1 of a YAML file whose schema this is, seen from there."""
    return f"# yaml-language-server: $schema={path}"

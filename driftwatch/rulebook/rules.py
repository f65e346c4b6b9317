"""Rules as data, and rule files laid out as Prometheus users expect.

```yaml
groups:
  - name: batch-limits
    rules:
      - alert: BatchLimitBinding
        when: limit_binding_share_10m_ratio >= 0.5
        for: 0s
        keep_firing_for: 5m
        severity: page
        tree: batch-size-drift
        labels: {}
        annotations: {summary: ...}
        receivers: [oncall]
```
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar

import polars as pl
from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from driftwatch.condition import Condition
from driftwatch.model import Severity
from driftwatch.rulebook.values import PageForm, RulePart, When, disabled_needs_reason
from driftwatch.yaml_models import (
    Duration,
    fault,
    mappings_at,
    note_duplicates,
)
from driftwatch.yaml_partly import read_model, read_partly
from driftwatch.yaml_positions import Entries, Items, Scalar, YamlFile

M = TypeVar("M", bound=RulePart)
Instead = Mapping[str, tuple[str, str]]
# columns that say that a latency target is missed
MISSED = frozenset({"target_missed", "slo_missed"})
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_NAME = re.compile(NAME)
_LABEL = re.compile(rf'{NAME}="(?:[^"\\]|\\.)*"')
# What the target brings, and what is a key of its own.
_RESERVED = ("alert", "alertname", "severity", "instance", "engine", "pool", "model_name")


# What an editor has of a label's name.
LABEL: Any = {"pattern": f"^{NAME}$", "not": {"enum": list(_RESERVED)}}


def _alert_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        help_text = "letters, digits and _, as in Prometheus"
        raise fault("value", f"{text!r} is not an alert name", help_text)
    return text


def _label_name(text: str) -> str:
    if text in _RESERVED or not _NAME.fullmatch(text):
        hint = "severity: is a key of the rule" if text == "severity" else None
        raise fault("value", f"{text} cannot be a label", hint)
    return text


def pool_pattern(names: Collection[str]) -> str:
    """The regular expression of pools' names in which * stands for any text.

    >>> pool_pattern(["chat-*", "rag.1"])
    '^(?:chat\\\\-.*|rag\\\\.1)$'
    """
    texts = (re.escape(name).replace(r"\*", ".*") for name in names)
    return rf"^(?:{'|'.join(texts)})$"


@dataclass(frozen=True, slots=True)
class Override:
    """What a rule is in the pools that it names."""

    pools: tuple[str, ...]  # names; * stands for any text
    rule: Rule  # the whole rule as it is there, without overrides of its own
    place: str = ""  # file and line of its ``alert``

    @property
    def fits(self) -> pl.Expr:
        """Whether a row's ``pool`` is one of them."""
        return pl.col("pool").str.contains(pool_pattern(self.pools))

    def fits_pool(self, pool: str | None) -> bool:
        """Whether a pool is one of them; None is none."""
        return pool is not None and re.search(pool_pattern(self.pools), pool) is not None


class RuleInFile(RulePart):
    """A rule as a file has it."""

    INSTEAD: ClassVar[Instead] = {
        "overrides": ("", "in driftwatch.yaml: rules: {overrides: [{alert: …, pools: […]}]}"),
        "expr": ("when", "conditions are SQL predicates, not PromQL"),
        "record": ("alert", "driftwatch has no recording rules; evidence columns take their place"),
    }

    # several rules may share it
    alert: Annotated[
        str,
        AfterValidator(_alert_name),
        WithJsonSchema({"type": "string", "pattern": f"^{NAME}$"}),
    ]
    when: When  # NULL is unknown, which neither fires nor resolves
    # minutes in which this does not hold have no verdict; None = every minute has one
    precondition: When | None = Field(None, alias="given")
    # a server that met the rule stays concerned until this holds (hysteresis), also where ``when``
    # does not hold any more; unknown keeps it. None = until ``when`` is false
    until: When | None = None
    for_seconds: Duration = Field(0.0, alias="for")  # how long it must hold before it fires
    # how long it keeps firing after it last held
    keep_firing_for_seconds: Duration = Field(0.0, alias="keep_firing_for")
    severity: Severity
    # alerts that this rule says nothing beside (:func:`driftwatch.pipeline.incidents.inhibited`)
    inhibited_by: tuple[str, ...] = ()
    # a disabled rule is loaded, checked and listed, but never evaluated
    enabled: bool = Field(True, strict=True)
    reason: str | None = Field(None, coerce_numbers_to_str=True)  # why it is disabled
    tree: str | None = None  # name of the tree that explains it, None = no diagnosis
    # static, part of the identity
    labels: dict[Annotated[str, AfterValidator(_label_name)], str] = Field(
        default_factory=dict, json_schema_extra={"propertyNames": LABEL}
    )
    page: PageForm | None = None  # None = its group's
    # free texts for the page (summary, runbook_url)
    annotations: dict[str, str] = Field(default_factory=dict)
    receivers: tuple[str, ...] = ()  # names; empty = every receiver that takes the severity

    @model_validator(mode="after")
    def _check(self) -> Self:
        disabled_needs_reason(self.enabled, self.reason)
        if self.alert in self.inhibited_by:
            inner = ("inhibited_by", self.inhibited_by.index(self.alert))
            raise fault("value", f"{self.alert} cannot inhibit itself", inner=inner)
        return self


class Rule(RuleInFile):
    """A rule of a rulebook. Made by ``Rule.model_construct``: its parts were checked before."""

    # alert name, then its labels (and severity where only that differs) in braces:
    # ``LengthDrift{direction="longer", signal="prompt_tokens"}``; unique in a rulebook
    id: str
    group: str  # name of the group it stands in
    page: PageForm = Field(default_factory=PageForm)  # its own, else its group's
    overrides: tuple[Override, ...] = ()  # what it is in some pools; the first that fits counts
    path: str = ""  # file it was read from
    line: int = 0  # 1-based line of its ``alert``

    @property
    def verdict(self) -> pl.Expr:
        """True, false, or NULL where an input is missing or ``given`` does not hold; each row by
        its ``pool``, which only a rule with overrides reads. False where the rule is off.
        """
        verdict = self._where_given(self.when) if self.enabled else pl.lit(False)
        for one in reversed(self.overrides):
            verdict = pl.when(one.fits).then(one.rule.verdict).otherwise(verdict)
        return verdict

    @property
    def held(self) -> pl.Expr:
        """Whether a server that met the rule stays concerned; NULL = unknown; each row by its pool.

        True while the condition holds, until ``until`` does; and, of a rule whose condition reads
        one of :data:`MISSED`, while a latency target is missed, whatever ``until`` says.
        """
        when = self._where_given(self.when)
        held = when if self.until is None else ~self._where_given(self.until)
        for column in sorted(self.when.columns & MISSED):
            held = held | pl.col(column)
        held = pl.when(when).then(True).otherwise(held) if self.enabled else pl.lit(False)
        for one in reversed(self.overrides):
            held = pl.when(one.fits).then(one.rule.held).otherwise(held)
        return held

    @property
    def columns(self) -> frozenset[str]:
        """Every evidence column that it reads, in any pool."""
        parts = [part for one in self.variants for part in (one.when, one.precondition, one.until)]
        return frozenset().union(*(part.columns for part in parts if part is not None))

    @property
    def variants(self) -> tuple[Rule, ...]:
        """The rule as it is in general, then as each override makes it."""
        return (self, *(one.rule for one in self.overrides))

    @property
    def is_evaluated(self) -> bool:
        """Whether it is on in general, or in some pool."""
        return any(one.enabled for one in self.variants)

    def has_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether the rule has all these labels; its severity counts as one."""
        return labels.items() <= {**self.labels, "severity": self.severity}.items()

    def is_named(self, name: str) -> bool:
        """Whether this is its alert, alone or with some of its labels in braces."""
        alert, opened, labels = name.partition("{")
        carried = {**self.labels, "severity": self.severity}.items()
        is_here = {*_LABEL.findall(labels)} <= {f"{n}={quoted(v)}" for n, v in carried}
        is_whole = _LABEL.sub("", labels).strip(" ,") == ("}" if opened else "")
        return alert.strip() == self.alert and is_here and is_whole

    def in_pool(self, pool: str | None) -> Rule:
        """The rule as it is in a pool; its identity, labels and tree are the same everywhere."""
        return next((one.rule for one in self.overrides if one.fits_pool(pool)), self)

    def _where_given(self, condition: Condition) -> pl.Expr:
        if self.precondition is None:
            return condition.expression
        return pl.when(self.precondition.expression).then(condition.expression)


class RulesInFile(RulePart):
    """A group of rules as written; its rules are read one by one."""

    name: str = Field(description="the group's name, once in a file")
    page: PageForm = Field(PageForm(), description="the page of each rule that has none")
    rules: tuple[dict[str, Any], ...] = Field(description="its rules")


class RuleFile(RulePart):
    """A rule file as written; its groups are read one by one."""

    INSTEAD: ClassVar[Instead] = {"rules": ("groups", "- name: …, rules: […]")}

    groups: tuple[dict[str, Any], ...] = Field(description="rules that belong together")


@dataclass(frozen=True, slots=True, eq=False)
class ReadRule:
    """A rule and where it stands; ``rule`` is None where it has problems."""

    file: YamlFile
    entries: Entries
    rule: Rule | None
    # of a rule with problems: its keys without them, and the rule of these keys and stand-ins
    partly: tuple[Entries, Rule] | None = None

    @property
    def identified(self) -> Rule | None:
        """The rule; one with problems where its alert and severity are right."""
        if self.rule is not None or self.partly is None:
            return self.rule
        right, rule = self.partly
        return rule if {"alert", "severity"} <= right.entries.keys() else None

    def names(self, key: str) -> Iterator[Scalar]:
        """The texts of a key of the rule: one, or those of a list."""
        node = self.entries.entries[key][1] if key in self.entries.entries else None
        for one in node.items if isinstance(node, Items) else (node,):
            if isinstance(one, Scalar) and isinstance(one.value, str):
                yield one


def read_rules(file: YamlFile, root: Entries) -> Iterator[ReadRule]:
    """Rules of one file; what is wrong is noted in ``file``."""
    read_model(file, root, RuleFile)
    note_duplicates(file, root, "groups")
    for group in mappings_at(root, "groups"):
        there = read_model(file, group, RulesInFile)
        for entries in mappings_at(group, "rules"):
            place = entries.entries["alert"][0] if "alert" in entries.entries else entries.place
            one, right = read_partly(file, entries, RuleInFile, _STAND_INS, place)
            if one is None:
                yield ReadRule(file, entries, None)
                continue
            values = dict(one)
            values["inhibited_by"] = tuple(dict.fromkeys(one.inhibited_by))
            values["page"] = one.page or (there.page if there is not None else PageForm())
            name = "" if there is None else there.name
            values |= {"group": name, "path": file.path, "line": place.line}
            rule = Rule.model_construct(id=one.alert, **values)
            if right is entries and there is not None:
                yield ReadRule(file, entries, rule)
            else:
                yield ReadRule(file, entries, None, (right, rule))


# for a key that is wrong or missing, so that the others can be checked
_STAND_INS: Mapping[str, object] = {"alert": "A", "when": "scrapes >= 0", "severity": "notice"}


def with_ids(rules: Sequence[ReadRule], runbook: str | None = None) -> tuple[Rule, ...]:
    """The rules with their identities; two of one identity are a problem.

    ``runbook``: address of the runbook of rules that name none; ``{alert}`` in it is the alert in
    lower case, as a heading's link.
    """
    known = [(one, rule) for one in rules if (rule := one.identified) is not None]
    plain = Counter(_identity(rule, severity=False) for _, rule in known)
    by_id: dict[str, Rule] = {}
    for one, rule in known:
        rule_id = _identity(rule, severity=plain[_identity(rule, severity=False)] > 1)
        if rule_id in by_id:
            first = by_id[rule_id]
            message = f"a second rule {rule_id}; the first is in {first.path}:{first.line}"
            help_text = "rules of one alert differ in labels or severity"
            one.file.add(one.entries.entries["alert"][1].place, "duplicate", message, help_text)
            continue
        annotations = dict(rule.annotations)
        if runbook is not None:
            annotations.setdefault("runbook_url", runbook.replace("{alert}", rule.alert.lower()))
        by_id[rule_id] = rule.model_copy(update={"id": rule_id, "annotations": annotations})
    whole = {(one.rule.path, one.rule.line) for one in rules if one.rule is not None}
    return tuple(rule for rule in by_id.values() if (rule.path, rule.line) in whole)


def _identity(rule: Rule, *, severity: bool) -> str:
    labels = dict(rule.labels) | ({"severity": rule.severity} if severity else {})
    if not labels:
        return rule.alert
    return rule.alert + "{" + ", ".join(
        f"{name}={quoted(value)}" for name, value in sorted(labels.items())
    ) + "}"  # fmt: skip


def quoted(text: str) -> str:
    """A text as PromQL writes it.

    >>> print(quoted('a"b'))
    "a\\"b"
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

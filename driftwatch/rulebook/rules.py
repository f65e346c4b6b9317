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

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

import polars as pl

from driftwatch.condition import Condition
from driftwatch.model import Severity
from driftwatch.rulebook.fields import Fields, entries_of, items_of
from driftwatch.rulebook.page_form import PageForm, read_form
from driftwatch.yaml_positions import Entries, Items, Node, YamlFile

KEYS = (
    "alert",
    "when",
    "given",
    "until",
    "for",
    "keep_firing_for",
    "severity",
    "per",
    "group",
    "inhibited_by",
    "enabled",
    "reason",
    "tree",
    "labels",
    "page",
    "annotations",
    "receivers",
)
GROUP_KEYS = ("share", "at_least", "within")
Per = Literal["target", "pool"]
_INSTEAD = {
    "by": "the key is `per`: target or pool",
    "expr": "the key is `when`: conditions are SQL predicates, not PromQL",
    "record": "driftwatch has no recording rules; the evidence columns are there already",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What the target brings, and what is a key of its own.
_RESERVED = ("alert", "alertname", "severity", "instance", "engine", "pool", "model_name")


@dataclass(frozen=True, slots=True)
class Group:
    """When one page for a pool takes the place of its targets' pages.

    Attributes:
        share: of the pool's targets; at least so many of them fire.
        at_least: and at least so many of them.
        within_seconds: after one another.
    """

    share: float = 0.3
    at_least: int = 3
    within_seconds: float = 1800.0

    def needed(self, of_targets: int) -> int:
        """How many targets of a pool of this size make a page of the pool.

        >>> Group().needed(8), Group().needed(40)
        (3, 12)
        """
        # a share of 0.3 of 10 is 3, although 0.3 * 10 is a little more in binary
        return max(self.at_least, math.ceil(self.share * of_targets - 1e-9))


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a rule file.

    Attributes:
        id: the identity: alert name, then its labels (and severity where only that differs)
            in braces: ``LengthDrift{signal="prompt_tokens"}``. Unique in a rulebook.
        alert: alert name; several rules may share it.
        group: name of the group it stands in.
        severity: page, ticket or notice.
        when: the condition; NULL is unknown, which neither fires nor resolves.
        given: minutes in which this does not hold have no verdict; None = every minute has one.
        until: while an incident is open it stays so until this holds (hysteresis), also where
            ``when`` does not hold any more; unknown keeps it open. None = until ``when`` is false.
        for_seconds: how long it must hold before it fires.
        keep_firing_for_seconds: how long it keeps firing after it last held.
        per: what one incident is about: a target, or its whole pool. A pool's rule is true where
            it is true for any target of it, else unknown where it is unknown for one.
        together: when one incident of the pool takes the place of its targets' (``group:`` in the
            file); None = never.
        inhibited_by: alerts that keep this rule from firing on a target while they fire there.
        enabled: a disabled rule is loaded, checked and listed, but never evaluated.
        reason: why it is disabled; None where it is enabled and says nothing.
        tree: name of the tree that explains it, None = no diagnosis.
        labels: static labels, part of the identity.
        annotations: free texts for the page (summary, runbook_url).
        page: how its page looks: the rule's own form, else its group's.
        receivers: names of receivers; empty = every receiver that takes the severity.
        path: file it was read from.
        line: 1-based line of its ``alert``.
    """

    id: str
    alert: str
    group: str
    severity: Severity
    when: Condition
    precondition: Condition | None = None
    until: Condition | None = None
    for_seconds: float = 0.0
    keep_firing_for_seconds: float = 0.0
    per: Per = "target"
    together: Group | None = None
    inhibited_by: tuple[str, ...] = ()
    enabled: bool = True
    reason: str | None = None
    tree: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    page: PageForm = field(default_factory=PageForm)
    receivers: tuple[str, ...] = ()
    path: str = ""
    line: int = 0

    @property
    def verdict(self) -> pl.Expr:
        """True, false, or NULL where an input is missing or ``given`` does not hold."""
        return self._where_given(self.when)

    @property
    def over(self) -> pl.Expr | None:
        """Whether ``until`` holds, NULL where that is unknown; None without it."""
        return None if self.until is None else self._where_given(self.until)

    @property
    def columns(self) -> frozenset[str]:
        """Every evidence column that it reads."""
        parts = (self.when, self.precondition, self.until)
        return frozenset().union(*(part.columns for part in parts if part is not None))

    def _where_given(self, condition: Condition) -> pl.Expr:
        if self.precondition is None:
            return condition.expression
        return pl.when(self.precondition.expression).then(condition.expression)


@dataclass(frozen=True, slots=True)
class ReadRule:
    """What could be read of a rule, with its fields, until the whole book is known.

    Attributes:
        fields: where problems are noted.
        tree: tree it names.
        receivers: receivers it names.
        rule: None where it has problems of its own.
        inhibited_by: alerts it names.
        alert: its own alert name.
    """

    fields: Fields
    tree: str | None
    receivers: tuple[str, ...]
    rule: Rule | None = None
    inhibited_by: tuple[str, ...] = ()
    alert: str | None = None


def read_rules(file: YamlFile, root: Entries) -> tuple[ReadRule, ...]:
    """Rules of one file; what is wrong is noted in ``file``."""
    top = Fields(file, root, "a rule file", root.place)
    top.allow(("groups",), {"rules": "rules stand in groups: - name: …, rules: […]"})
    groups = top.get("groups", required=True)
    if groups is None:
        return ()
    accepted: list[ReadRule] = []
    names: set[str] = set()
    for node in items_of(file, groups, "groups"):
        entries = entries_of(file, node, "a group")
        if entries is None:
            continue
        group = Fields(file, entries, "the group", entries.place)
        group.allow(("name", "page", "rules"))
        name = group.text("name", required=True)
        if name is not None and name in names:
            group.problem("name", "duplicate", f"a second group is called {name}")
        names.add(name or "")
        form = read_form(file, group)
        rules = group.get("rules", required=True)
        for item in items_of(file, rules, "rules") if rules is not None else ():
            rule = _read_rule(file, item, name or "", form or PageForm())
            if rule is not None:
                accepted.append(rule)
    return tuple(accepted)


def _read_rule(file: YamlFile, node: Node, group: str, usual: PageForm) -> ReadRule | None:
    entries = entries_of(file, node, "a rule")
    if entries is None:
        return None
    alert_entry = entries.entries.get("alert")
    place = alert_entry[0] if alert_entry else entries.place
    fields = Fields(file, entries, "the rule", place)
    fields.allow(KEYS, _INSTEAD)
    alert = fields.text("alert", required=True)
    if alert is not None:
        fields.what = f"rule {alert}"
        if not _NAME.fullmatch(alert):
            help_text = "letters, digits and _, as in Prometheus"
            fields.problem("alert", "value", f"{alert!r} is not an alert name", help_text)
    # With `expr` instead, the unknown key was named already.
    instead = "expr" in entries.entries and "when" not in entries.entries
    when = None if instead else fields.condition("when")
    precondition = fields.condition("given", required=False)
    until = fields.condition("until", required=False)
    severity = fields.choice("severity", get_args(Severity), required=True)
    enabled, reason = fields.flag("enabled", True), fields.text("reason")
    if not enabled and not reason:
        help_text = 'reason: "why it is off"'
        fields.problem("enabled", "missing-key", "a disabled rule needs a reason", help_text)
    labels = fields.texts("labels")
    for name in labels:
        if name in _RESERVED or not _NAME.fullmatch(name):
            hint = "severity: is a key of the rule" if name == "severity" else None
            fields.problem("labels", "value", f"{name} cannot be a label", hint, inner=name)
    for_seconds, keep_firing_for = fields.seconds("for"), fields.seconds("keep_firing_for")
    per = fields.choice("per", get_args(Per)) or "target"
    tree = fields.text("tree")
    if per == "pool" and tree is not None:
        help_text = "leave out tree: or per: pool"
        fields.problem("tree", "value", "a path is one target's; a pool has none", help_text)
    together = _read_group(file, fields)
    if per == "pool" and together is not None:
        help_text = "leave out group: or per: pool"
        fields.problem("group", "value", "a rule per pool has one incident a pool", help_text)
    inhibited_by = fields.names("inhibited_by")
    if alert is not None and alert in inhibited_by:
        message = f"{alert} cannot inhibit itself"
        fields.problem("inhibited_by", "value", message, inner=alert)
    annotations = fields.texts("annotations")
    receivers = fields.names("receivers")
    page = read_form(file, fields) or usual
    if alert is None or when is None or severity is None:
        return ReadRule(fields, tree, receivers, inhibited_by=inhibited_by, alert=alert)
    rule = Rule(
        id=alert,
        alert=alert,
        group=group,
        severity=cast("Severity", severity),
        when=when,
        precondition=precondition,
        until=until,
        for_seconds=for_seconds,
        keep_firing_for_seconds=keep_firing_for,
        per=cast("Per", per),
        together=together,
        inhibited_by=tuple(dict.fromkeys(inhibited_by)),
        enabled=enabled,
        reason=reason,
        tree=tree,
        labels=labels,
        annotations=annotations,
        page=page,
        receivers=receivers,
        path=file.path,
        line=place.line,
    )
    return ReadRule(fields, tree, receivers, rule, inhibited_by, alert)


def _read_group(file: YamlFile, fields: Fields) -> Group | None:
    node = fields.get("group")
    entries = None if node is None else entries_of(file, node, "group")
    if entries is None:
        return None
    inner = Fields(file, entries, "group", entries.place)
    inner.allow(GROUP_KEYS)
    usual = Group()
    share, at_least = inner.number("share", usual.share), inner.number("at_least", usual.at_least)
    if not 0 < share <= 1:
        inner.problem("share", "value", "share is above 0 and at most 1, of the pool's targets")
    if at_least < 2 or at_least != int(at_least):
        inner.problem("at_least", "value", "at_least is a whole number from 2 on")
    within = inner.seconds("within") if inner.get("within") is not None else usual.within_seconds
    return Group(share, max(2, int(at_least)), within)


def count_rules(root: Entries) -> int:
    """How many rules a file holds, readable or not."""
    groups = root.entries.get("groups")
    count = 0
    for group in groups[1].items if groups and isinstance(groups[1], Items) else ():
        rules = group.entries.get("rules") if isinstance(group, Entries) else None
        count += len(rules[1].items) if rules and isinstance(rules[1], Items) else 0
    return count


def with_ids(rules: tuple[ReadRule, ...]) -> tuple[Rule, ...]:
    """The rules with their identities; two that cannot be told apart are a problem."""
    plain = Counter(_identity(r.rule, severity=False) for r in rules if r.rule is not None)
    by_id: dict[str, Rule] = {}
    for one in rules:
        if (rule := one.rule) is None:
            continue
        needs_severity = plain[_identity(rule, severity=False)] > 1
        rule_id = _identity(rule, severity=needs_severity)
        if rule_id in by_id:
            first = by_id[rule_id]
            message = f"a second rule {rule_id}, first in {first.path}:{first.line}"
            help_text = "rules of one alert differ in labels or severity"
            one.fields.problem("alert", "duplicate", message, help_text)
            continue
        by_id[rule_id] = replace(rule, id=rule_id)
    return tuple(by_id.values())


def _identity(rule: Rule, *, severity: bool) -> str:
    labels = dict(rule.labels) | ({"severity": rule.severity} if severity else {})
    if not labels:
        return rule.alert
    return rule.alert + "{" + ", ".join(
        f'{name}="{_escape(value)}"' for name, value in sorted(labels.items())
    ) + "}"  # fmt: skip


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

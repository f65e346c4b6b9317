"""``rules: {overrides: […]}`` of the configuration: what rules are in some pools.

```yaml
rules:
  overrides:
    - alert: BatchLimitBinding
      pools: [batch-*]
      for: 15m
      severity: ticket
    - alert: DeferredAdmission
      labels: {severity: page} # of the two rules of that name the one that pages
      enabled: false
      reason: nobody is paged for adapters
```
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from driftwatch.model import Severity
from driftwatch.rulebook.rules import Override, Rule, pool_pattern
from driftwatch.rulebook.values import RulePart, When, disabled_needs_reason
from driftwatch.settings import Settings
from driftwatch.yaml_models import Duration, fault, mappings_at, near_or_all, place_of
from driftwatch.yaml_partly import read_partly
from driftwatch.yaml_positions import Entries, YamlFile

# for keys that are wrong or missing, so that the others can be checked
_STAND_INS: Mapping[str, object] = {"alert": "?", "enabled": True}
_SELECTORS = frozenset({"alert", "labels", "pools"})


class OverrideInFile(RulePart):
    """How some pools change a rule, as a file has it; None = as in the rule."""

    INSTEAD: ClassVar[Mapping[str, tuple[str, str]]] = {
        "pool": ("pools", "a list of names; * stands for any text"),
        "rule": ("alert", "the alert's name; labels: tell its rules apart"),
        "match": ("pools", "a pool of the configuration has the labels that its targets carry"),
    }

    alert: str = Field(min_length=1, description="the alert whose rules are meant")
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="of those the rules with these labels, severity is one; default: each",
    )
    pools: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        ("*",), min_length=1, description="names of pools; * stands for any text; default: each"
    )
    when: When | None = None
    precondition: When | None = Field(None, alias="given")
    until: When | None = None
    for_seconds: Duration | None = Field(None, alias="for")
    keep_firing_for_seconds: Duration | None = Field(None, alias="keep_firing_for")
    severity: Severity | None = None
    enabled: bool | None = Field(None, strict=True)
    reason: str | None = Field(None, coerce_numbers_to_str=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        disabled_needs_reason(self.enabled, self.reason)
        if not self.changes.keys() - {"reason"}:
            message = "the override changes nothing"
            raise fault("value", message, "when, for, severity, enabled …", inner=("alert",))
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the rule that it changes."""
        return {k: v for k, v in dict(self).items() if v is not None and k not in _SELECTORS}


@dataclass(frozen=True, slots=True, eq=False)
class ReadOverride:
    """An override, where it stands, and the rules that it makes."""

    file: YamlFile
    entries: Entries
    override: OverrideInFile
    rules: tuple[Rule, ...] = ()
    is_whole: bool = True  # without problems of its own, so that it counts


def overridden(
    rules: Sequence[Rule], configured: Settings | None, alerts: Collection[str] | None = None
) -> tuple[tuple[Rule, ...], tuple[ReadOverride, ...], YamlFile | None]:
    """The rules with the overrides of a configuration, the overrides, and its file with problems.

    ``alerts``: every one that the configuration's files have, readable or not: an override of
    another is a problem; None: the rules are other ones.
    """
    if configured is None or configured.file is None or not configured.rules.overrides:
        return tuple(rules), (), None
    file = replace(configured.file, problems=[])
    applied: dict[str, list[Override]] = {rule.id: [] for rule in rules}
    read = []
    for entries in mappings_at(file.root, "rules", "overrides"):
        override, right = read_partly(file, entries, OverrideInFile, _STAND_INS)
        if override is None:
            continue
        is_whole = right is entries
        of_alert = [rule for rule in rules if rule.alert == override.alert]
        fitting = [rule for rule in of_alert if rule.has_labels(override.labels)]
        if alerts is not None and not fitting:
            _note_no_rule(file, entries, override, rules, alerts)
        _note_severity(file, entries, override, fitting)
        made = tuple(
            rule.model_copy(update=override.changes | {"overrides": ()}) for rule in fitting
        )
        place = f"{Path(file.path).name}:{place_of(entries, ('alert',)).line}"
        for rule in made if is_whole else ():
            applied[rule.id].append(Override(override.pools, rule, place))
        _note_pools(file, entries, override, {pool.name for pool in configured.pools})
        read.append(ReadOverride(file, right, override, made, is_whole))
    ours = ({"overrides": tuple(applied[rule.id])} for rule in rules)
    with_them = (rule.model_copy(update=own) for rule, own in zip(rules, ours, strict=True))
    return tuple(with_them), tuple(read), file


def _note_no_rule(
    file: YamlFile,
    entries: Entries,
    override: OverrideInFile,
    rules: Sequence[Rule],
    alerts: Collection[str],
) -> None:
    """Note that it fits no rule: its alert or its labels are wrong."""
    alert = override.alert
    named = [
        rule.id if "severity=" in rule.id else f"{rule.id} ({rule.severity})"
        for rule in rules
        if rule.alert == alert
    ]
    if alert == _STAND_INS["alert"] or (alert in alerts and not named):
        return  # the override, or the rule, has problems of its own
    if named:
        message = f"no rule of {alert} has these labels"
        place = place_of(entries, ("labels",), to_key=True)
        file.add(place, "unknown-alert", message, f"its rules: {', '.join(named)}")
        return
    hint = near_or_all(alert, alerts, "alerts")
    place = place_of(entries, ("alert",))
    file.add(place, "unknown-alert", f"there is no alert {alert} in the rules", hint)


def _note_severity(
    file: YamlFile, entries: Entries, override: OverrideInFile, fitting: Sequence[Rule]
) -> None:
    """Note a severity that would make two rules of one alert the same."""
    told_apart = any("severity=" in rule.id for rule in fitting)
    if override.severity is not None and told_apart:
        message = f"only the severity tells the rules of {override.alert} apart"
        help_text = "override enabled and when of the rules of both severities"
        file.add(place_of(entries, ("severity",)), "value", message, help_text)


def _note_pools(
    file: YamlFile, entries: Entries, override: OverrideInFile, pools: Collection[str]
) -> None:
    """Warn of every name that no pool of the configuration has."""
    for number, text in enumerate(override.pools if pools else ()):
        if not any(re.search(pool_pattern([text]), pool) for pool in pools):
            message = f"no pool of the configuration is called {text}"
            hint = near_or_all(text, pools, "pools")
            file.add(place_of(entries, ("pools", number)), "unknown-pool", message, hint, "warning")

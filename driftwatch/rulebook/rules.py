"""Rules as data: what makes a minute of a target worth telling somebody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftwatch.condition import Condition
from driftwatch.model import Severity


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
        for_seconds: how long it must hold before it fires.
        keep_firing_for_seconds: how long it keeps firing after it last held.
        enabled: a disabled rule is loaded, checked and listed, but never evaluated.
        reason: why it is disabled; None where it is enabled and says nothing.
        tree: name of the tree that explains it, None = no diagnosis.
        labels: static labels, part of the identity.
        annotations: free texts for the page (summary, runbook_url).
        receivers: names of receivers; empty = every receiver that takes the severity.
        path: file it was read from.
        line: 1-based line of its ``alert``.
    """

    id: str
    alert: str
    group: str
    severity: Severity
    when: Condition
    for_seconds: float = 0.0
    keep_firing_for_seconds: float = 0.0
    enabled: bool = True
    reason: str | None = None
    tree: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    receivers: tuple[str, ...] = ()
    path: str = ""
    line: int = 0

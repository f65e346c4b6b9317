"""Small frozen values that cross walls. Until a Finding everything is a Polars frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

Severity = Literal["page", "ticket", "notice"]
Answer = Literal["yes", "no", "unknown", "not asked"]
Action = Literal["change", "none", "no_action", "insufficient"]
Provenance = Literal[
    "config", "startup log", "arguments", "server_info", "metrics", "inferred", "command line"
]


class TargetKey(NamedTuple):
    """One vLLM engine: the unit of every row.

    ``instance`` is host:port as scraped, ``engine`` vLLM's label ("0" where there is none).
    """

    instance: str
    engine: str

    @property
    def text(self) -> str:
        """How a person reads it: ``host:8000``, or ``host:8000/1`` for engine 1."""
        return self.instance if self.engine == "0" else f"{self.instance}/{self.engine}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is unknown, refused, or not advised.

    Decisions compare ``code`` (``no_pin``), people read ``text``, nothing parses it; ``fix``: what
    to do about it, None = nothing, or the text says it.
    """

    code: str
    text: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A target with what its source says of it.

    Attributes:
        key: instance and engine.
        labels: scrape labels and ``model_name``; what pools are matched on.
        pool: name of its pool, None before pools are assigned.
    """

    key: TargetKey
    labels: Mapping[str, str] = field(default_factory=dict)
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One serving setting and where it was read.

    Attributes:
        value: as vLLM would take it.
        provenance: which source said so.
        detail: file:line, label name, or how it was inferred.
    """

    value: float
    provenance: Provenance
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Serving:
    """A target's serving configuration; None is unknown, never a default.

    ``others`` holds the knobs (:mod:`driftwatch.knobs`) that have no field here.

    vLLM exports none of the first four in any metric.
    """

    max_num_seqs: Setting | None = None
    max_num_batched_tokens: Setting | None = None
    max_num_active_seqs: Setting | None = None
    max_model_len: Setting | None = None
    kv_cache_tokens: Setting | None = None
    kv_block_tokens: Setting | None = None
    api_server_count: Setting | None = None
    others: Mapping[str, Setting] = field(default_factory=dict)

    def setting(self, name: str) -> Setting | None:
        """A setting by its name: one of the fields, or of ``others``."""
        found: Setting | None = self.others.get(name) or getattr(self, name, None)
        return found


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What ran: three groups, for a change of each means another thing (detection.md).

    What is not known is not in it.

    Attributes:
        identity: model, GPU, TP/PP, dtype, quantisation; a change starts over.
        knobs: max_num_seqs, max_num_batched_tokens, KV blocks, other engine flags; the pin stays.
        release: vLLM version, image, driver; the pin stays.
    """

    identity: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, str] = field(default_factory=dict)
    release: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency targets of a pool.

    Attributes:
        ttft_seconds: time to first token, None = no target.
        tpot_seconds: time per output token, None = no target.
        share: the share of requests that must meet each target.
    """

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    share: float = 0.95


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a walked tree.

    Attributes:
        node: node name in the tree file.
        question: as the tree words it.
        answer: yes, no, unknown, or "not asked" where the tree says what an unknown means.
        evidence: the columns the node's condition reads, with their values (None = unknown).
        reason: why it was not asked, or what is missing.
    """

    node: str
    question: str
    answer: Answer
    evidence: Mapping[str, Any]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """How many requests one limit lets run at once.

    Attributes:
        name: max_num_seqs, max_num_batched_tokens or kv_cache.
        allows_requests: concurrent requests it allows at these lengths; None = unknown.
        in_flight_requests: mean running requests of the scrapes in which a limit binds, of the
            window where none does.
        margin_ratio: 1 - in_flight / allows, not below 0; None = unknown.
        binds: it binds in this window; None = unknown.
        note: what is missing, or "inferred".
    """

    name: str
    allows_requests: float | None
    in_flight_requests: float | None
    margin_ratio: float | None
    binds: bool | None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class KnobMove:
    """One knob from a value to another.

    Attributes:
        knob: vLLM argument in snake case, or ``replicas``.
        from_value: what it is now; None = unknown, or off.
        to_value: what to set.
        from_provenance: where the value of now was read; None = unknown.
    """

    knob: str
    from_value: float | None
    to_value: float
    from_provenance: Provenance | None = None


# code of a recommendation's reason → what its sentence begins with
LEADS: Mapping[str, str] = {
    "engine": "do not change a knob",
    "gpus_lost": "do not change a knob",
    "kv_binds": "no knob",
    "no_knob_helps": "no knob helps",
    "not_worth_a_restart": "no knob is worth a restart",
    "not_sure_to_help": "no knob is sure to help",
    "undetermined": "undetermined",
}


def with_lead(reason: Reason) -> str:
    """A recommendation's reason as a sentence of its own: ``no knob helps: …``."""
    lead = LEADS.get(reason.code)
    return f"{lead}: {reason.text}" if lead else reason.text


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One change, of one knob or of two at once, or one of three reasons to change none.

    Attributes:
        action: ``change``; ``none`` (no knob helps: ``instead`` says what does); ``no_action``
            (drift inside the targets with margin); ``insufficient`` (no verdict: the reason names
            the gate and the number).
        knob: vLLM argument in snake case.
        from_value: what it is now.
        from_provenance: where that was read ("inferred" is printed).
        to_value: what to set.
        also: what the same change sets besides; effect and forecast are of all of it together.
        reason: why this, or why nothing, without the lead that :attr:`why` has.
        price: named costs, in words with units.
        undo: how to go back.
        wrong_if: what would falsify it.
        effect: what the change is forecast to bring, in words with numbers.
        not_cured: what stays lost, in words with numbers.
        instead: what helps where no knob does: "+2 replicas", "50 % prefix hits: 27.0 req/s".
        forecast: the numbers behind ``effect``, by name with units, for the track record; None
            without a replay.
        basis: what it was computed by; None = the diagnosis alone.
    """

    action: Action
    reason: Reason
    knob: str | None = None
    from_value: float | None = None
    from_provenance: Provenance | None = None
    to_value: float | None = None
    also: tuple[KnobMove, ...] = ()
    price: tuple[str, ...] = ()
    undo: str | None = None
    wrong_if: str | None = None
    effect: tuple[str, ...] = ()
    not_cured: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    forecast: Mapping[str, Any] | None = None
    basis: Literal["simulation", "closed form", "measured"] | None = None

    @property
    def why(self) -> str:
        """The reason with its lead."""
        return with_lead(self.reason)

    @property
    def moves(self) -> tuple[KnobMove, ...]:
        """All that the change sets, its first knob first; empty where it changes nothing."""
        if self.action != "change" or self.knob is None or self.to_value is None:
            return ()
        first = KnobMove(self.knob, self.from_value, self.to_value, self.from_provenance)
        return (first, *self.also)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the walk ended and how it got there.

    Attributes:
        tree: name of the tree file.
        leaf: name of the leaf, or ``undetermined``.
        cause: ``prompts``, ``generations``, ``prefix_hits``, ``demand`` or None.
        path: every node asked, in order.
        limits: the limits model of the window.
        missing: columns whose absence ended the walk (leaf ``undetermined``).
        advice: the leaf's imperative ("Do not change a knob; ...") or None.
        meaning: the leaf's one line for the reader, None where the tree says none.
    """

    tree: str
    leaf: str
    path: tuple[Step, ...]
    cause: str | None = None
    limits: tuple[Limit, ...] = ()
    missing: tuple[str, ...] = ()
    advice: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule is true for a target in a minute, with everything a page needs.

    Attributes:
        rule: rule id (alert name + its labels make the identity).
        target: the target it is about.
        minute: start of the evaluated minute.
        evidence: one evidence row, column → value (None = unknown).
        reasons: column → why it is unknown or doubtful.
        diagnosis: None where the rule asks for none.
        recommendation: None where the rule asks for none.
        reference: what "before" means: kind, from, to, values; None without one.
        since: when it began, where that is earlier than ``minute`` (a 10-min window).
        concerned: of a pool's finding: the targets that it is about, the worst one first.
        of_targets: of a pool's finding: how many targets the pool has.
        told_before: of those concerned, the ones of which people were told one by one before.
        twins: of a target in a pool: how many there are, how many are slower, and the speed at
            equal load of the others (``of_targets``, ``slower``, ``speed_low_ratio``,
            ``speed_high_ratio``); None where no other's is known.
        histograms: cumulative counts of lengths by edge, of the window and of its reference; empty
            where nobody draws them.
        asked_again: time may bring the answer that a replay could not give.
    """

    rule: str
    target: Target
    minute: datetime
    evidence: Mapping[str, Any]
    reasons: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    recommendation: Recommendation | None = None
    reference: Mapping[str, Any] | None = None
    since: datetime | None = None
    concerned: tuple[TargetKey, ...] = ()
    of_targets: int | None = None
    told_before: tuple[TargetKey, ...] = ()
    twins: Mapping[str, float] | None = None
    histograms: Mapping[str, Sequence[float]] = field(default_factory=dict)
    asked_again: bool = False


IncidentState = Literal["pending", "firing", "resolved"]
Event = Literal["firing", "advised", "verified", "resolved"]


@dataclass(frozen=True, slots=True)
class Incident:
    """One (rule, target group) being true for a while; at most one open per identity.

    Attributes:
        id: stable short id, a hash of the identity and the start of the first true minute.
        key: identity: rule id and target group labels, never values.
        rule: rule id.
        alert: the rule's alert name.
        severity: page, ticket or notice.
        target: labels of the target group (instance, engine, pool, model_name).
        state: pending (``for`` not over), firing, resolved.
        started_at: when the condition became true.
        firing_at: when it fired, None while pending.
        resolved_at: when it resolved, None while open.
        last_true_at: end of the last minute in which the condition was true.
        acknowledged_at: when a person took it, None before.
        acknowledged_by: who.
        page: the page JSON as last rendered, None while pending.
        true_seconds: how long it was seen true; unknown minutes and downtime do not count.
        false_seconds: how long it was seen false since it was last true.
        silenced_by: id of the silence that holds its firing page back, None without one.
        inhibited_by: alert because of which it waits instead of firing, None without one.
    """

    id: str
    key: str
    rule: str
    alert: str
    severity: Severity
    target: Mapping[str, str]
    state: IncidentState
    started_at: datetime
    last_true_at: datetime
    firing_at: datetime | None = None
    resolved_at: datetime | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    page: Mapping[str, Any] | None = None
    true_seconds: float = 0.0
    false_seconds: float = 0.0
    silenced_by: str | None = None
    inhibited_by: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """An incident changed state in a way somebody is told of.

    Attributes:
        incident: the incident after the change.
        event: firing or resolved; of a follow-up advised (an answer that the page had to go
            without) or verified (what came of the change that it advised).
        at: end of the minute that decided it.
        reason: why it resolved although its condition was not seen false, else None.
        concerned: of an incident that speaks for several targets of a pool, those targets.
        of_targets: how many targets that pool has, None for one target's incident.
        told_before: those of them of which people were told one by one before.
    """

    incident: Incident
    event: Event
    at: datetime
    reason: str | None = None
    concerned: tuple[TargetKey, ...] = ()
    of_targets: int | None = None
    told_before: tuple[TargetKey, ...] = ()

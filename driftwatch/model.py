"""Small frozen values that cross walls. Until a Finding everything is a Polars frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from driftwatch.documents import Document

Severity = Literal["page", "ticket", "notice"]
Answer = Literal["yes", "no", "unknown", "not asked"]
Action = Literal["change", "none", "no_action", "insufficient"]
Provenance = Literal[
    "config", "startup log", "arguments", "metrics", "server", "inferred", "command line"
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

    Decisions compare ``code`` (``no_baseline``), people read ``text``, nothing parses it; ``fix``:
    what to do about it, None = nothing, or the text says it.
    """

    code: str
    text: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A target with what its source says of it."""

    key: TargetKey  # instance and engine
    # scrape labels and ``model_name``; what pools are matched on
    labels: Mapping[str, str] = field(default_factory=dict)
    pool: str | None = None  # name of its pool, None before pools are assigned


@dataclass(frozen=True, slots=True)
class Setting:
    """One serving setting and where it was read."""

    value: float  # as vLLM would take it
    provenance: Provenance  # which source said so
    detail: str = ""  # file:line, label name, or how it was inferred


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
        setting: Setting | None = self.others.get(name) or getattr(self, name, None)
        return setting


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What ran: three groups, for a change of each means another thing.

    What is not known is not in it.
    """

    # model, GPU, TP/PP, dtype, quantisation; a change starts over
    identity: Mapping[str, str] = field(default_factory=dict)
    # max_num_seqs, max_num_batched_tokens, KV blocks, other engine flags; the baseline stays
    knobs: Mapping[str, str] = field(default_factory=dict)
    # vLLM version, image, driver; the baseline stays
    release: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency targets of a pool."""

    ttft_seconds: float | None = None  # time to first token, None = no target
    tpot_seconds: float | None = None  # time per output token, None = no target
    share: float = 0.95  # the share of requests that must meet each target


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a walked tree."""

    node: str  # node name in the tree file
    question: str  # as the tree words it
    answer: Answer  # yes, no, unknown, or "not asked" where the tree says what an unknown means
    # the columns the node's condition reads, with their values (None = unknown)
    evidence: Mapping[str, Any]
    reason: str | None = None  # why it was not asked, or what is missing
    before: Mapping[str, Any] = field(
        default_factory=dict
    )  # of these columns the baseline's values


@dataclass(frozen=True, slots=True)
class Limit:
    """How many requests one limit lets run at once."""

    name: str  # max_num_seqs, max_num_batched_tokens or kv_cache
    allows_requests: float | None  # concurrent requests it allows at these lengths; None = unknown
    # mean running requests of the scrapes in which a limit binds, of the window where none does
    in_flight_requests: float | None
    margin_ratio: float | None  # 1 - in_flight / allows, not below 0; None = unknown
    binds: bool | None  # it binds in this window; None = unknown
    note: str | None = None  # what is missing, or "inferred"
    full_ratio: float | None = None  # of the scrapes, those in which any limit is full
    waiting_requests: float | None = None  # in the scrapes in which this one is full
    usage_ratio: float | None = None  # of the KV cache, in these scrapes
    preemptions_per_second: float | None = None  # of the KV cache


@dataclass(frozen=True, slots=True)
class KnobMove:
    """One knob from a value to another."""

    knob: str  # vLLM argument in snake case, or ``replicas``
    from_value: float | None  # what it is now; None = unknown, or off
    to_value: float  # what to set
    from_provenance: Provenance | None = None  # where the value of now was read; None = unknown


# code of an advice's reason → what its sentence begins with
LEADS: Mapping[str, str] = {
    "engine": "do not change a setting",
    "gpus_lost": "do not change a setting",
    "kv_binds": "no knob",
    "no_knob_helps": "no knob helps",
    "not_worth_a_restart": "no knob is worth a restart",
    "not_sure_to_help": "no knob is sure to help",
    "replicas_suffice": "no setting needed",
    "undetermined": "undetermined",
}


class Advice(Document):
    """One change, of one setting or of two at once, or one of three reasons to change none."""

    # ``change``; ``none`` (no setting helps: ``instead`` says what does); ``no_action`` (drift
    # inside the targets with margin); ``insufficient`` (no verdict: the reason names the gate and
    # the number)
    action: Action
    reason: Reason  # why this, or why nothing, without the lead that :attr:`why` has
    moves: tuple[KnobMove, ...] = ()  # all that the change sets; empty where it changes nothing
    price: tuple[str, ...] = ()  # named costs, in words with units
    undo: str | None = None  # how to go back
    wrong_if: str | None = None  # what would falsify it
    queue: str | None = None  # a queue that delays what is forecast, and what to do about it
    effect: tuple[str, ...] = ()  # what the change is forecast to bring, in words with numbers
    not_cured: tuple[str, ...] = ()  # what stays lost, in words with numbers
    # why this value and not the next smaller or larger one, in words; None where there is none
    value_reason: str | None = None
    # what helps where no setting does and can be done at once, the first choice first: "add 2
    # replicas: forecast 99 % of requests in target"
    instead: tuple[str, ...] = ()
    # all together, where ``instead`` adds some, or where the change alone does not serve the load
    replicas: int | None = None
    later: tuple[str, ...] = ()  # what helps and is work for office hours: "use an fp8 KV cache"
    # the numbers behind ``effect``, by name with units, for the track record; None without a replay
    forecast: Mapping[str, Any] | None = None
    # of one server when it was computed: what came, and what today's settings serve in target
    offered_requests_per_second: float | None = None
    capacity_requests_per_second: float | None = None
    at: datetime | None = None  # end of the minutes that it was computed from
    # what it was computed by; None = the diagnosis alone
    basis: Literal["simulation", "measured"] | None = None

    @property
    def why(self) -> str:
        """The reason as a sentence of its own: ``no knob helps: …``."""
        lead = LEADS.get(self.reason.code)
        return f"{lead}: {self.reason.text}" if lead else self.reason.text

    @property
    def settings(self) -> dict[str, float]:
        """Knob → the value that it is to be set to."""
        return {move.knob: move.to_value for move in self.moves}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the walk ended and how it got there."""

    tree: str  # name of the tree file
    leaf: str  # name of the leaf, or ``undetermined``
    path: tuple[Step, ...]  # every node asked, in order
    cause: str | None = None  # ``prompts``, ``generations``, ``prefix_hits``, ``demand`` or None
    limits: tuple[Limit, ...] = ()  # the limits model of the window
    missing: tuple[str, ...] = ()  # columns whose absence ended the walk (leaf ``undetermined``)
    advice: str | None = None  # the leaf's imperative ("Drain it") or None
    meaning: str | None = None  # the leaf's one line for the reader, None where the tree says none


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule is true for a target in a minute, with everything a page needs."""

    rule: str  # rule id (alert name + its labels make the identity)
    target: Target  # the target it is about
    minute: datetime  # start of the evaluated minute
    evidence: Mapping[str, Any]  # one evidence row, column → value (None = unknown)
    # column → why it is unknown or doubtful
    reasons: Mapping[str, str] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None  # None where the rule asks for none
    advice: Advice | None = None  # None where the rule asks for none
    # what "before" means: kind, from, to, values; None without one
    reference: Mapping[str, Any] | None = None
    # when it began, where that is earlier than ``minute`` (a 10-min window)
    since: datetime | None = None
    # of a pool's finding: the targets that it is about, the worst one first
    concerned: tuple[TargetKey, ...] = ()
    of_targets: int | None = None  # of a pool's finding: how many targets the pool has
    # of a target in a pool: how many there are, how many are slower, and the speed at equal load of
    # the others (``of_targets``, ``slower``, ``speed_low_ratio``, ``speed_high_ratio``); None where
    # no other's is known
    peers: Mapping[str, float] | None = None
    # the other servers of the pool that miss a latency target too: name → share of requests
    also_missing: Mapping[str, float] = field(default_factory=dict)
    # prompt, generation → when the open notice says that it moved
    lengths_moved_at: Mapping[str, datetime] = field(default_factory=dict)
    # cumulative counts of lengths by edge, of the window and of its reference; empty where nobody
    # draws them
    histograms: Mapping[str, Sequence[float]] = field(default_factory=dict)
    # the latency targets and the traffic of a simulated answer, in words; None without one
    simulated_for: str | None = None
    # what was changed on its server shortly before, in words; None = nothing, as far as known
    recent_change: str | None = None
    asked_again: bool = False  # time may bring the answer that a replay could not give

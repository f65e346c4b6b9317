"""A scenario as data: a pool, its traffic, the hidden engine, its faults, and the truth.

Every duration and time in a file is text such as ``90m``; times count from the scenario's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from driftwatch.collect.registry import REGISTRY
from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.scenario.demand import (
    Offset,
    Ratio,
    Traffic,
)
from driftwatch.settings.values import Count, Name, Number, Seconds
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.yaml_models import Part

MOST_SERVERS = 10_000


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Scrape(Part):
    """How pages are scraped: every ``interval``, each server at its own phase."""

    interval: Seconds = Field(15.0, description="time between two scrapes of a server")
    jitter_seconds: float = Field(0.05, ge=0, description="sd of a scrape's lateness")
    missed_ratio: Ratio = Field(0.002, description="share of scrapes that time out")
    lost_ratio: Ratio = Field(0.0, description="share of scrapes that leave no sample at all")
    late_ratio: Ratio = Field(0.0, description="share of scrapes late by up to an interval")
    gaps_per_day: float = Field(
        0.0, ge=0, description="stretches of 1 to 15 minutes without any scrape of the pool"
    )
    gpu_offset: Offset = Field(
        0.0, description="how long after their servers the exporters are scraped"
    )
    without_buckets: tuple[str, ...] = Field(
        (), description="histograms (vllm:...) of which only the +Inf bucket is kept"
    )
    without_metrics: tuple[str, ...] = Field(
        (), description="metrics (vllm:...) that are dropped at the scrape"
    )

    @field_validator("without_buckets", "without_metrics")
    @classmethod
    def _check_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(value) - {metric.wire_name for metric in REGISTRY}):
            raise ValueError(f"driftwatch reads no metric {', '.join(unknown)}")
        return value


class Serving(Part):
    """The scheduler's settings, under vLLM's names. A fault's `serving` has the same keys."""

    max_num_seqs: Count = Field(256, description="sequence cap")
    max_num_batched_tokens: Count = Field(2048, description="token budget of a step")
    num_gpu_blocks: Count | None = Field(
        None, description="KV blocks; without it as many as the model leaves room for on the GPU"
    )
    block_size: Count = Field(16, description="tokens of a KV block")
    max_model_len: Count = Field(8192, description="longest context in tokens")
    long_prefill_token_threshold: int = Field(0, ge=0, description="0 is off")
    async_scheduling: bool = Field(True, description="schedule the next step during this one")
    max_num_queued_reqs: Count | None = Field(None, description="503 while this many wait")
    max_loras: Count | None = Field(None, description="adapters that run at a time")

    def configuration(self, num_gpu_blocks: int | None) -> SchedulerConfiguration:
        """The simulator's settings."""
        settings = self.model_dump(exclude={"num_gpu_blocks"})
        return SchedulerConfiguration(
            num_gpu_blocks=self.num_gpu_blocks or num_gpu_blocks, **settings
        )

    def changed(self, change: ServingChange) -> Serving:
        """These settings with those of a change.

        Raises ValidationError: vLLM would refuse the combination.
        """
        settings = {name: getattr(change, name) for name in change.model_fields_set}
        return Serving.model_validate({**self.model_dump(), **settings})

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.configuration(None).check()
        except ImpossibleConfiguration as error:
            raise ValueError(str(error)) from None
        return self


class ServingChange(Serving):
    """Settings after a restart; settings that are not named stay."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        return self  # Serving.changed checks the combination


class Slo(Part):
    """Latency targets, as in driftwatch.yaml."""

    ttft_seconds: Number | None = Field(None, description="target of time to first token")
    tpot_seconds: Number | None = Field(None, description="target of time per output token")
    share: Ratio = Field(0.95, description="share of requests that must meet each")


class Pool(Part):
    """Servers of the same model and settings."""

    name: Name = Field("chat-8b", description="name of the pool")
    replicas: Count = Field(2, le=MOST_SERVERS, description="servers at the start")
    model: str = Field("llama-3.1-8b", description="of the simulator's table of models")
    gpu: str = Field("H100-80GB", description="of the simulator's table of GPUs")
    gpus_per_replica: Count = Field(1, description="tensor parallelism")
    vllm_version: str | None = Field(
        None,
        min_length=1,
        max_length=40,
        description="label of the servers by discovery (compact recordings); none: no label",
    )
    image: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="of the containers, only in kube-state-metrics; none: nowhere",
    )
    dcgm: bool = Field(True, description="with the pages of dcgm-exporter")
    idle_clocks: bool = Field(
        False, description="SM clocks and power of the GPUs fall while no kernel runs"
    )
    declared: bool = Field(
        True, description="driftwatch.yaml has the scheduler's settings; false: unknown"
    )
    serving: Serving = Field(
        default_factory=lambda: Serving.model_validate({}), description="the scheduler's settings"
    )
    slo: Slo | None = Field(None, description="latency targets")


class Coefficients(Part):
    """A step-time model in place of the roofline; graphs and quadratic term stay."""

    c0_seconds: float = Field(gt=0, description="every step")
    c1_seconds_per_prefill_token: float = Field(ge=0, description="each prompt token computed")
    c2_seconds_per_decode_seq: float = Field(ge=0, description="each request that decodes")
    c3_seconds_per_kv_token: float = Field(ge=0, description="each context token read")
    hinge_tokens: int = Field(0, ge=0, description="prompt tokens that cost nothing")


class Engine(Part):
    """The hidden engine: no page and no detector's model has these values.

    By default its step times are more complex than the detectors' models.
    """

    law: Coefficients | None = Field(None, description="without it the roofline of GPU and model")
    times_roofline: float = Field(1.1, ge=1, description="how much slower than the roofline")
    quadratic_ratio: float = Field(1.0, ge=0, description="on the quadratic term of attention")
    cuda_graphs: bool = Field(True, description="decode batches are padded to captured sizes")
    jitter_sigma: float = Field(0.06, ge=0, description="sd of the log of each step's factor")
    wander_sd_ratio: float = Field(0.035, ge=0, description="sd of the slow wander of speed")
    wander_correlation: Seconds = Field(5400.0, description="correlation time of the wander")
    stalls_per_day: float = Field(4.0, ge=0, description="pauses of 0.5 to 5 s")


class Fault(Part):
    """A fault, or only a change, of some of the servers."""

    kind: FaultKind = Field(description="kind of fault")
    at: Offset = Field(description="start")
    until: Offset | None = Field(None, description="end; without it never")
    replicas: tuple[int, ...] = Field((), description="numbers from 0; without it all")
    factor: float | None = Field(None, gt=0, description="on step times: 1.2 is 20 % slower")
    ramp: Offset | None = Field(None, description="how long a slowdown takes to reach its factor")
    down: Seconds | None = Field(None, description="how long the server does not answer (40s)")
    every: Seconds | None = Field(None, description="rollout: from one replica to the next (3m)")
    serving: ServingChange | None = Field(None, description="settings after it; others stay")
    vllm_version: str | None = Field(
        None, min_length=1, max_length=40, description="rollout: its label after it"
    )
    image: str | None = Field(
        None, min_length=1, max_length=200, description="rollout: image of the containers after it"
    )
    to: Count | None = Field(None, le=MOST_SERVERS, description="scale: how many replicas then")
    ratio: Ratio | None = Field(None, description="share of scrapes that are missed")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _, must, may = FAULT_KINDS[self.kind]
        keys = self.model_fields_set - {"kind", "at", "replicas"}
        wrong = []
        if missing := [name for name in must if name not in keys]:
            wrong.append(f"needs {', '.join(missing)}")
        if more := sorted(keys - {*must, *may}):
            wrong.append(f"takes no {', '.join(more)}")
        if wrong:
            raise ValueError(f"{self.kind} {' and '.join(wrong)}")
        return self


class Baseline(Part):
    """The healthy stretch that the settings are tuned for."""

    at: Offset = Field(0.0, description="from")
    until: Offset = Field(description="to")


class Effect(Part):
    """An injected change, and what a perfect driftwatch would report.

    Rules are named by alert name. A rule that is in no list should not fire; of a list one is
    enough, as it may inhibit the others. A finding is expected from ``at`` until ``grace`` after
    ``until``.
    """

    what: str = Field(min_length=1, max_length=120, description="in words")
    kind: Name = Field(description="short stable name, e.g. prompt_length")
    size: float | None = Field(None, description="how large, as a factor or a share")
    at: Offset = Field(description="from")
    until: Offset | None = Field(None, description="to; without it the end of the scenario")
    grace: Offset = Field(900.0, description="how long after it a finding still counts")
    replicas: tuple[int, ...] = Field((), description="of which servers; without it all")
    leaf: str | None = Field(None, description="leaf of the tree; null where no verdict is due")
    knob: str | None = Field(None, description="setting that would help; null: change none")
    pages: tuple[str, ...] = Field((), description="rules that should page")
    tickets: tuple[str, ...] = Field((), description="rules that should open a ticket")
    notices: tuple[str, ...] = Field((), description="rules that should inform")


class Truth(Part):
    """The injected changes, and the stretch before them."""

    baseline: Baseline | None = Field(None, description="reference window for driftwatch")
    effects: tuple[Effect, ...] = Field((), description="what was injected")


class Scenario(Part):
    """A whole scenario file."""

    name: Name = Field(description="as the file, without .yaml")
    title: str = Field(min_length=1, max_length=76, description="one line")
    duration: Seconds = Field(description="how long it is")
    long: bool = Field(False, description="takes minutes to replay: left out of quick sets")
    seed: int = Field(1, ge=0, description="where none is given")
    start: Annotated[datetime, AfterValidator(_utc)] = Field(
        datetime(2026, 11, 16, 8, tzinfo=UTC), description="a Monday morning"
    )
    scrape: Scrape = Field(
        default_factory=lambda: Scrape.model_validate({}), description="how pages are taken"
    )
    pool: Pool = Field(default_factory=lambda: Pool.model_validate({}), description="the servers")
    traffic: Traffic = Field(description="what is sent")
    engine: Engine = Field(
        default_factory=lambda: Engine.model_validate({}), description="the hidden engine"
    )
    faults: tuple[Fault, ...] = Field((), description="what goes wrong")
    truth: Truth = Field(description="what a perfect driftwatch would say")

    @property
    def servers(self) -> int:
        """The largest number of servers at any time."""
        return max([self.pool.replicas, *(f.to for f in self.faults if f.to is not None)])

    @field_validator("start", mode="before")
    @classmethod
    def _time(cls, value: object) -> object:
        return datetime.fromisoformat(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        serving = self.pool.serving
        for fault in sorted(self.faults, key=lambda one: one.at):
            serving = serving if fault.serving is None else serving.changed(fault.serving)
        return self


# fmt: off
FaultKind = Literal[
    "slowdown", "clock_throttle", "wedge", "restart", "rollout", "scale",
    "gone", "stats_disabled", "bucket_layout", "missed_scrapes",
]
# fmt: on


class FaultFields(NamedTuple):
    """A kind of fault: in words, the keys that it needs, and those that it may have."""

    meaning: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


# fmt: off
FAULT_KINDS: Mapping[FaultKind, FaultFields] = {
    "slowdown": FaultFields("steps take `factor` times as long, after a `ramp` if there is one",
        ("factor",), ("until", "ramp")),
    "clock_throttle": FaultFields(
        "steps take `factor` times as long and the SM clock falls by as much",
        ("factor",), ("until",)),
    "wedge": FaultFields("the engine hangs: its page answers, gauges stand still, no token comes",
        (), ("until",)),
    "restart": FaultFields("no answer for `down`, then counters begin at 0",
        (), ("down", "serving")),
    "rollout": FaultFields(
        "replicas restart one after the other, `every` that long, the lowest number first",
        (), ("down", "every", "factor", "serving", "vllm_version", "image")),
    "scale": FaultFields("from then on there are `to` replicas; new ones answer after 40 s",
        ("to",)),
    "gone": FaultFields("the servers run on and their pages no longer answer", (), ("until",)),
    "stats_disabled": FaultFields("a restart with `--disable-log-stats`: no `vllm:` series",
        (), ("down",)),
    "bucket_layout": FaultFields("a restart with `--custom-histogram-buckets`: every second edge",
        (), ("down",)),
    "missed_scrapes": FaultFields("a `ratio` of the scrapes times out", ("ratio",), ("until",)),
}
# fmt: on

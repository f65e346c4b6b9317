"""Findings as the pipeline makes them, one per kind of page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from driftwatch.model import (
    Diagnosis,
    Finding,
    Incident,
    Limit,
    Reason,
    Recommendation,
    Severity,
    Slo,
    Step,
    Target,
    TargetKey,
)
from driftwatch.notify.page import build_page
from driftwatch.rulebook.book import load_rulebook

FORMS = {rule.alert: rule.page for rule in load_rulebook().rules}

BEGAN = datetime(2026, 11, 18, 2, 45, tzinfo=UTC)
AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
SLO = Slo(ttft_seconds=1.0, tpot_seconds=0.05, share=0.95)
NO_REFERENCE = "no reference (a pin, --baseline FROM..TO, or tuned_for in the configuration)"
NO_SLO = "no slo in the configuration"


@dataclass(frozen=True)
class Case:
    """A finding with what else a page is made of."""

    finding: Finding
    incident: Incident
    slo: Slo | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    external_url: str | None = None
    resolved_reason: str | None = None

    def page(self) -> dict[str, Any]:
        return build_page(
            self.finding,
            self.incident,
            "firing",
            AT,
            annotations=self.annotations,
            form=FORMS.get(self.incident.alert),
            external_url=self.external_url,
            slo=self.slo,
        )

    def resolved(self, after: timedelta = timedelta(minutes=71)) -> dict[str, Any]:
        end = BEGAN + after
        incident = replace(
            self.incident, state="resolved", resolved_at=end, last_true_at=end, page=self.page()
        )
        return build_page(
            None,
            incident,
            "resolved",
            end,
            annotations=self.annotations,
            form=FORMS.get(self.incident.alert),
            external_url=self.external_url,
            resolved_reason=self.resolved_reason,
        )


def case(
    alert: str,
    severity: Severity,
    evidence: Mapping[str, Any],
    *,
    labels: Mapping[str, str] | None = None,
    slo: Slo | None = None,
    annotations: Mapping[str, str] | None = None,
    external_url: str | None = None,
    **rest: Any,
) -> Case:
    target = {"instance": "host:8000", "engine": "0"} | dict(labels or {})
    key = TargetKey(target["instance"], target["engine"])
    finding = Finding(
        rule=alert,
        target=Target(key=key, labels=target, pool=target.get("pool")),
        minute=AT - timedelta(minutes=1),
        evidence=evidence,
        since=BEGAN,
        **rest,
    )
    incident = Incident(
        id="3f9c1a7be204",
        key=f'{alert}{{engine="{key.engine}",instance="{key.instance}"}}',
        rule=alert,
        alert=alert,
        severity=severity,
        target=target,
        state="firing",
        started_at=BEGAN,
        firing_at=AT,
        last_true_at=AT,
    )
    return Case(finding, incident, slo, annotations or {}, external_url)


COST = {
    "batch_assembly_wait_10m_seconds": 1.6553,
    "ttft_10m_seconds": 1.7018,
    "queue_share_of_ttft_10m_ratio": 0.9727,
    "limit_binding_share_10m_ratio": 0.958,
    "observed_10m_seconds": 600.0,
}

CAP_EVIDENCE: dict[str, Any] = COST | {
    "duration_seconds": 600.0,
    "scrapes": 120.0,
    "scrapes_10m": 120.0,
    "binding_running_requests": 7.83,
    "binding_waiting_requests": 28.4,
    "requests_per_second": 9.2,
    "running_requests": 6.1,
    "effective_batch_size": 7.9,
    "requests_per_forward_pass": 7.78,
    "waiting_requests": 25.3,
    "waiting_capacity_requests": 28.4,
    "waiting_deferred_requests": 0.0,
    "kv_cache_usage_ratio": 0.042,
    "preemptions_per_second": 0.0,
    "prompt_tokens_mean": 131.2,
    "generation_tokens_mean": 126.9,
    "finished_requests": 552.0,
    "generation_tokens_per_second": 1167.0,
    "max_num_seqs": 8.0,
    "max_num_seqs_inferred": True,
    "binding_limit": "max_num_seqs",
    "binding_margin_ratio": 0.0,
    "restarted": False,
}

CAP_LIMITS = (
    Limit("max_num_seqs", 8.0, 7.83, 0.0, True, "inferred"),
    Limit("max_num_batched_tokens", None, 7.83, None, None, "max_num_batched_tokens unknown"),
    Limit("kv_cache", 186.0, 7.83, 0.958, False, None),
)


def cap_path(binding: str = "max_num_seqs") -> tuple[Step, ...]:
    return (
        Step(
            "throughput",
            "Throughput drops, more than demand explains?",
            "yes",
            {
                "limit_binding_share_10m_ratio": 0.958,
                "batch_assembly_wait_10m_seconds": 1.6553,
                "queue_share_of_ttft_10m_ratio": 0.9727,
            },
        ),
        Step(
            "slower",
            "Is the engine itself slower at equal load?",
            "not asked",
            {"speed_at_equal_load_ratio": None},
            "speed at equal load is not collected by this release",
        ),
        Step(
            "batch_below_demand",
            "Is the batch below what the waiting demand would fill?",
            "yes",
            {"waiting_capacity_requests": 28.4, "running_requests": 7.83},
        ),
        Step(
            "prompts_up",
            "Prompt tokens up?",
            "unknown",
            {"prompt_tokens_mean_ratio": None},
            NO_REFERENCE,
        ),
        Step("which_limit", "Which limit binds?", "yes", {"binding_limit": binding}),
    )


CAP = case(
    "BatchLimitBinding",
    "page",
    CAP_EVIDENCE,
    reasons={"prompt_tokens_mean_ratio": NO_REFERENCE, "slo_missed": NO_SLO},
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="concurrency_cap_binding",
        path=cap_path(),
        limits=CAP_LIMITS,
        meaning="requests wait because max_num_seqs is reached",
    ),
    recommendation=Recommendation(
        action="change",
        knob="max_num_seqs",
        from_value=8.0,
        from_provenance="inferred",
        to_value=40.0,
        reason=Reason(
            "other",
            "36 requests were running or waiting while it bound; 40 is the next capture size",
        ),
        price=("restart", "ITL rises with the batch (now 5.14 ms)", "KV holds 186 requests"),
        undo="--max-num-seqs 8",
        wrong_if="requests still wait over 1 s with max_num_seqs 40 and KV under 85 %",
    ),
    annotations={"runbook_url": "https://wiki.example.net/vllm/batch-limit"},
    external_url="https://driftwatch.example.net/",
)

BUDGET_EVIDENCE = CAP_EVIDENCE | {
    "running_requests": 66.0,
    "binding_running_requests": 68.0,
    "binding_waiting_requests": 28.0,
    "max_num_seqs": 256.0,
    "max_num_seqs_inferred": False,
    "max_num_batched_tokens": 512.0,
    "tokens_per_forward_pass": 512.0,
    "batch_utilization": 1.0,
    "kv_cache_usage_ratio": 0.21,
    "waiting_requests": 28.0,
    "prompt_tokens_mean": 1200.0,
    "prompt_tokens_mean_ratio": 2.34,
    "generation_tokens_mean_ratio": 1.02,
    "finished_requests": 87000.0,
    "requests_per_second_ratio": 1.01,
    "slo_missed": True,
    "ttft_in_target_10m_ratio": 0.013,
    "tpot_in_target_10m_ratio": 1.0,
    "binding_limit": "max_num_batched_tokens",
    "capacity_ratio": 0.51,
    "utilization_ratio": 1.1,
    "capacity_requests_per_second": 15.0,
}

BUDGET = case(
    "BatchLimitBinding",
    "page",
    BUDGET_EVIDENCE,
    labels={"pool": "rag-8b", "model_name": "meta-llama/Llama-3.1-8B"},
    slo=SLO,
    reference={
        "kind": "tuned_for",
        "from": None,
        "to": None,
        "values": {"prompt_tokens_mean": 512.0, "generation_tokens_mean": 211.0},
    },
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="token_budget_binding",
        cause="prompts",
        path=(
            *cap_path("max_num_batched_tokens")[:3],
            Step(
                "prompts_up",
                "Prompt tokens up?",
                "yes",
                {"prompt_tokens_mean_ratio": 2.34, "prompt_tokens_mean": 1200.0},
            ),
            Step("budget_full", "Token budget full?", "yes", {"batch_utilization": 1.0}),
        ),
        limits=(
            Limit("max_num_batched_tokens", 68.0, 68.0, 0.0, True),
            Limit("max_num_seqs", 256.0, 68.0, 0.734, False),
            Limit("kv_cache", 335.0, 68.0, 0.797, False),
        ),
    ),
    recommendation=Recommendation(
        action="change",
        knob="max_num_batched_tokens",
        from_value=512.0,
        from_provenance="config",
        to_value=2048.0,
        reason=Reason(
            "other", "forecast if this demand lasts: 1 % → > 99 % within TTFT 1.0 s and TPOT 50 ms"
        ),
        price=(
            "ITL p99 24.0 → 54.0 ms (TPOT p95 27.0, target 50.0)",
            "KV blocks 27,000 → 26,930",
            "restart",
        ),
        undo="--max-num-batched-tokens 512",
        wrong_if="then over 5 % still miss TTFT 1.00 s and TPOT 50.0 ms at ≤ 16.5 req/s each",
        effect=(
            "forecast if this demand lasts: in target 1 % → > 99 %",
            "capacity 15.0 → 19.0 req/s each (+22–28 %)",
        ),
        not_cured=(
            "tokens/s 5,280 → 2,990 each: longer work, not settings",
            "with 50 % of the prompt tokens cached: 27.0 req/s (today's settings)",
            "the reference's 29.5 req/s needs 13 replicas",
        ),
        forecast={
            "in_target_ratio": 0.998,
            "ttft_seconds": 0.08,
            "capacity_requests_per_second": 19.0,
            "knobs": {"max_num_batched_tokens": 2048.0},
            "today": {"in_target_ratio": 0.013, "capacity_requests_per_second": 15.0},
            "offered_requests_per_second": 16.5,
        },
        basis="simulation",
    ),
)

KV_ADVICE = (
    "Do not change a knob; add a replica or free KV (fp8 KV, prefix caching, shorter contexts), "
    "never raise max_num_seqs"
)
KV = case(
    "BatchLimitBinding",
    "page",
    CAP_EVIDENCE
    | {
        "kv_cache_usage_ratio": 0.54,  # preemption empties it in between
        "binding_kv_cache_usage_ratio": 0.93,
        "preemptions_per_second": 0.83,
        "binding_limit": "kv_cache",
    },
    labels={"engine": "1"},
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="kv_pressure",
        path=cap_path("kv_cache"),
        limits=(Limit("kv_cache", 7.9, 7.83, 0.01, True),),
        meaning="the KV cache is full, requests are preempted or wait for blocks",
        advice=KV_ADVICE,
    ),
    recommendation=Recommendation(action="none", reason=Reason("other", KV_ADVICE)),
)

# the replay's answer: what helps where no knob does
NO_KNOB = replace(
    KV,
    finding=replace(
        KV.finding,
        evidence=KV.finding.evidence
        | {"utilization_ratio": 1.31, "capacity_requests_per_second": 7.02},
        recommendation=Recommendation(
            action="none",
            reason=Reason(
                "no_knob_helps",
                "no other max_num_seqs or max_num_batched_tokens brings more "
                "requests within TTFT 1.0 s",
            ),
            instead=(
                "+2 replicas: forecast 98 % in target",
                "50 % of the prompt tokens cached: 11.4 req/s each",
                "fp8 KV cache: 9.80 req/s each",
            ),
            basis="simulation",
        ),
    ),
)
# a gate that failed, and a limit that binds while the settings allow more
REFUSED = replace(
    CAP,
    finding=replace(
        CAP.finding,
        recommendation=Recommendation(
            "insufficient",
            reason=Reason("other", "replayed TTFT 3.1 s, observed 1.8 s (+69 %, gate 15 %)"),
        ),
    ),
)
KV_REFUSED = replace(
    KV,
    finding=replace(
        KV.finding,
        recommendation=Recommendation(
            "insufficient", reason=Reason("other", "7 busy minutes (gate 10)")
        ),
    ),
)
FINE = replace(
    BUDGET,
    finding=replace(
        BUDGET.finding,
        evidence=BUDGET.finding.evidence
        | {"slo_missed": False, "ttft_in_target_10m_ratio": 0.998, "utilization_ratio": 0.52},
        recommendation=Recommendation(
            "no_action",
            reason=Reason(
                "other",
                "requests stay within TTFT 1.0 s and TPOT 50 ms, load 52 % of capacity "
                "(7.80 of 15.0 req/s)",
            ),
            basis="simulation",
        ),
    ),
)

UNDETERMINED = case(
    "BatchLimitBinding",
    "page",
    CAP_EVIDENCE | {"max_num_seqs": None, "binding_limit": None},
    reasons={"binding_limit": "max_num_seqs is unknown", "max_num_seqs": "not in any metric"},
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="undetermined",
        path=(
            *cap_path()[:3],
            Step(
                "which_limit",
                "Which limit binds?",
                "unknown",
                {"binding_limit": None},
                "max_num_seqs is unknown",
            ),
        ),
        limits=(Limit("max_num_seqs", None, 7.83, None, None, "not in any metric"),),
        missing=("binding_limit",),
    ),
    recommendation=Recommendation(
        action="none", reason=Reason("undetermined", "binding_limit unknown")
    ),
)

STUCK = case(
    "EngineStuck",
    "page",
    {"seconds_since_last_token": 185.0, "running_requests": 8.0, "waiting_requests": 4.0},
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="engine_stuck",
        path=(
            Step(
                "stuck",
                "Requests present and no token?",
                "yes",
                {"seconds_since_last_token": 185.0, "running_requests": 8.0},
            ),
        ),
        meaning="requests are present and no token comes",
        advice="Do not change a knob; drain it, keep its logs, restart it",
    ),
    recommendation=Recommendation(
        action="none",
        reason=Reason("leaf", "Do not change a knob; drain it, keep its logs, restart it"),
    ),
)

DEFERRED_EVIDENCE = {
    "waiting_deferred_requests": 4.0,
    "deferred_requests_10m": 5.0,
    "waiting_deferred_share_10m_ratio": 0.8,
    "running_requests": 3.0,
    "waiting_requests": 5.0,
    "ttft_10m_seconds": 2.2,
}
DEFERRED_TICKET = case("DeferredAdmission", "ticket", DEFERRED_EVIDENCE)
DEFERRED_PAGE = case(
    "DeferredAdmission",
    "page",
    DEFERRED_EVIDENCE
    | {
        "slo_missed": True,
        "ttft_in_target_10m_ratio": 0.38,
        "ttft_in_target_10m_upper_ratio": 0.81,
        "slo_ttft_seconds": 1.2,
        "slo_share": 0.95,
    },
)

COVERAGE = case(
    "CoverageLost",
    "ticket",
    {
        "coverage_missing_seconds": 960.0,
        "coverage_missing_inputs": "queue_seconds, ttft_seconds, waiting_capacity_requests",
        "running_requests": None,
    },
    reasons={"running_requests": "the scrape failed: connection refused"},
)

DRIFT = case(
    "LengthDrift",
    "notice",
    {
        "prompt_tokens_mean_ratio": 2.34,
        "prompt_tokens_usual_ratio": 1.3,
        "prompt_tokens_mean": 1200.0,
        "generation_tokens_mean_ratio": 0.98,
        "generation_tokens_mean": 207.0,
        "finished_requests": 8200.0,
        "requests_per_second_ratio": 1.0,
        "binding_limit": "none",
        "slo_missed": False,
    },
    labels={"instance": "", "pool": "rag-8b"},
    reference={"kind": "baseline", "values": {"prompt_tokens_mean": 512.0}},
    diagnosis=Diagnosis(tree="batch-size-drift", leaf="drifted_within_limits", path=()),
)
DRIFT = replace(DRIFT, incident=replace(DRIFT.incident, started_at=BEGAN.replace(minute=41)))

SLOW = case(
    "ReplicaSlow",
    "page",
    {"speed_at_equal_load_ratio": 0.81, "running_requests": 16.4, "waiting_requests": 0.0},
    annotations={"summary": "19 % slower at equal load"},
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="replica_slow",
        path=(),
        advice="Do not change a knob; drain it",
    ),
)

GPUS = {
    "gpu_count": 2.0,
    "gpu_count_source": "declared, DCGM agrees",
    "gpu_utilization_ratio": 0.99,
    "gpu_tensor_active_ratio": 0.41,
    "gpu_dram_active_ratio": 0.52,
    "gpu_power_watts": 540.0,
    "gpu_sm_clock_hertz": 1.155e9,
    "gpus_lost": 0.0,
}
USUAL = {
    "gpu_sm_clock_hertz": 1.98e9,
    "gpu_power_watts": 610.0,
    "gpu_utilization_ratio": 0.98,
    "tokens_per_second_per_gpu": 1300.0,
}
SLOW_GPU = replace(
    SLOW,
    finding=replace(
        SLOW.finding,
        evidence={
            **SLOW.finding.evidence,
            "gpu_count": 1.0,
            "gpu_count_source": "DCGM by pod",
            "gpu_utilization_ratio": 0.99,
            "gpu_sm_clock_hertz": 1.155e9,
            "gpu_sm_clock_ratio": 0.583,
        },
        reference={"kind": "baseline", "values": USUAL},
    ),
)
STUCK_GPU = replace(
    STUCK,
    finding=replace(
        STUCK.finding,
        evidence={
            **STUCK.finding.evidence,
            **GPUS,
            "gpu_utilization_ratio": 0.96,
            "gpu_tensor_active_ratio": None,
            "gpu_power_watts": 92.0,
            "gpu_sm_clock_hertz": 1.98e9,
            "gpu_clock_event_reasons": "none",
        },
        reasons={"gpu_tensor_active_ratio": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE not exported"},
        reference={"kind": "baseline", "values": USUAL},
    ),
)
GPU_LOST = case(
    "GpuLost",
    "page",
    {"running_requests": 5.0, "waiting_requests": 2.0}
    | GPUS
    | {"gpus_lost": 1.0, "gpu_utilization_ratio": None, "gpu_clock_event_reasons": "hw_slowdown"},
    annotations={"summary": "a GPU of the server fell off the bus"},
    reasons={"gpu_utilization_ratio": "nvmlDeviceGetUtilizationRates: GPU_IS_LOST"},
)
GPU_LOST_NAMED = replace(
    GPU_LOST,
    finding=replace(
        GPU_LOST.finding,
        evidence={
            **GPU_LOST.finding.evidence,
            "duration_seconds": 600.0,
            "running_requests": 5.2,
            "gpus_lost_names": "2 on node-1, GPU-6f1c",
            "gpus_of_server": 8.0,
        },
    ),
    incident=replace(GPU_LOST.incident, target={**GPU_LOST.incident.target, "pool": "rag-8b"}),
    resolved_reason="the target is gone (no longer in the configuration)",
)

CAP_HELD = replace(
    CAP,
    finding=replace(
        CAP.finding,
        recommendation=Recommendation(
            action="none",
            reason=Reason(
                "leaf", "do not raise max_num_seqs: the KV cache holds 9 requests at these lengths"
            ),
        ),
    ),
)
CAP_UNKNOWN = replace(
    CAP,
    finding=replace(
        CAP.finding,
        recommendation=Recommendation(
            action="none", reason=Reason("undetermined", "max_num_seqs unknown")
        ),
    ),
)

DRIFT_GENERATIONS = case(
    "LengthDrift",
    "notice",
    {
        "prompt_tokens_mean_ratio": 1.37,
        "generation_tokens_mean_ratio": 2.13,
        "generation_tokens_mean": 134.0,
        "finished_requests": 8160.0,
    },
    labels={"signal": "generation_tokens"},
    reference={"kind": "baseline", "values": {"generation_tokens_mean": 62.8}},
    diagnosis=Diagnosis(tree="batch-size-drift", leaf="drifted_within_limits", path=()),
)
RATE_DROP = case(
    "TrafficFell",
    "notice",
    {
        "prompt_tokens_mean_ratio": 1.02,
        "generation_tokens_mean_ratio": 0.99,
        "requests_per_second_ratio": 0.23,
        "finished_requests": 240.0,
    },
    reference={"kind": "baseline", "values": {}},
    diagnosis=Diagnosis(tree="batch-size-drift", leaf="request_rate_drop", path=()),
)

COVERAGE_POOL = replace(
    COVERAGE,
    finding=replace(
        COVERAGE.finding,
        concerned=tuple(TargetKey(f"rag-8b-{i}:8000", "0") for i in range(7)),
        of_targets=8,
    ),
    incident=replace(
        COVERAGE.incident, key='CoverageLost{pool="rag-8b"}', target={"pool": "rag-8b"}
    ),
)
COVERAGE_ONE = replace(
    COVERAGE_POOL,
    finding=replace(COVERAGE.finding, concerned=(TargetKey("chat:8000", "1"),), of_targets=1),
    incident=replace(
        COVERAGE_POOL.incident, key='CoverageLost{pool="default"}', target={"pool": "default"}
    ),
)
COVERAGE_UNLISTED = replace(
    COVERAGE_POOL,
    finding=replace(
        COVERAGE_POOL.finding,
        reasons={
            **COVERAGE_POOL.finding.reasons,
            "coverage_missing_inputs": "not listed by prometheus 0",
        },
    ),
)
RETIRED = replace(
    CAP,
    resolved_reason=("the target is gone (scaled down; its traffic moved to the rest of the pool)"),
)

PIN = {
    "kind": "baseline",
    "from": datetime(2026, 10, 27, tzinfo=UTC),
    "to": datetime(2026, 10, 29, tzinfo=UTC),
    "values": USUAL
    | {
        "prompt_tokens_mean": 512.0,
        "generation_tokens_mean": 211.0,
        "effective_batch_size": 12.0,
        "requests_per_forward_pass": 12.1,
        "itl_seconds_mean": 0.0103,
        "batch_assembly_wait_seconds": 0.011,
        "generation_tokens_per_second": 1300.0,
    },
}
NO_PIN = "no armed pin (driftwatch baseline list says what is missing)"
# one slow replica of eight, whose batch hides it
DRAIN = case(
    "SlowerAtEqualLoad",
    "page",
    {
        "duration_seconds": 600.0,
        "scrapes": 120.0,
        "slower_at_equal_load": True,
        "speed_at_equal_load_ratio": 0.81,
        "speed_reference": "own baseline, equal load",
        "speed_calibration": "own",
        "speed_smallest_detectable_loss_ratio": 0.12,
        "pool_speed_at_equal_load_ratio": 1.0,
        "itl_seconds_mean": 0.013,
        "effective_batch_size": 16.4,
        "requests_per_forward_pass": 16.5,
        "tokens_per_second_per_gpu": 1295.0,
        "generation_tokens_per_second": 1295.0,
        "prompt_tokens_mean_ratio": 1.01,
        "generation_tokens_mean_ratio": 0.98,
        "batch_assembly_wait_10m_seconds": 0.012,
        "throughput_factor_batch_ratio": 1.367,
        "throughput_factor_load_ratio": 0.9,
        "throughput_factor_speed_ratio": 0.81,
        "throughput_factor_first_tokens_ratio": 1.0,
        "throughput_factor_gpus_ratio": 1.0,
        "gpu_count": 1.0,
        "gpu_count_source": "DCGM by pod",
        "gpu_utilization_ratio": 0.99,
        "gpu_sm_clock_hertz": 1.155e9,
        "gpu_sm_clock_ratio": 0.583,
        "running_requests": 16.4,
        "waiting_requests": 0.0,
        "prompt_tokens_smallest_detectable_ratio": 1.2,
        "generation_tokens_smallest_detectable_ratio": 1.3,
    },
    labels={"instance": "chat-8b-5:8000", "pool": "chat-8b"},
    reference=PIN,
    peers={
        "of_targets": 8,
        "slower": 1,
        "speed_low_ratio": 0.991,
        "speed_high_ratio": 1.012,
        "utilization_ratio": 0.525,
    },
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="replica_slow",
        path=(
            Step(
                "engine_slower",
                "Is the engine itself slower?",
                "yes",
                {"slower_at_equal_load": True, "speed_at_equal_load_ratio": 0.81},
            ),
            Step(
                "twins_fine",
                "Do its peers keep their speed?",
                "yes",
                {"pool_speed_at_equal_load_ratio": 1.0},
            ),
        ),
        meaning="slower at equal load than its peers",
        advice="Do not change a knob; drain it",
    ),
    recommendation=Recommendation(
        action="none", reason=Reason("leaf", "Do not change a knob; drain it")
    ),
)
# 5 of 8 within half an hour: one page, the worst of them speaks; its batch left the tuned range
SLOW_POOL = replace(
    DRAIN,
    finding=replace(
        DRAIN.finding,
        evidence={
            **DRAIN.finding.evidence,
            "speed_at_equal_load_ratio": None,
            "speed_at_equal_demand_ratio": 0.72,
            "speed_reference": "pool's baseline, equal demand",
            "speed_calibration": "shipped (uncalibrated)",
            "throughput_factor_load_ratio": None,
            "throughput_factor_speed_ratio": None,
        },
        reasons={"speed_at_equal_load_ratio": "outside the tuned range"},
        peers=None,
        concerned=tuple(TargetKey(f"chat-8b-{i}:8000", "0") for i in (5, 1, 2, 3, 7)),
        of_targets=8,
        told_before=(TargetKey("chat-8b-1:8000", "0"), TargetKey("chat-8b-2:8000", "0")),
        diagnosis=Diagnosis(
            tree="batch-size-drift",
            leaf="version_change",
            path=(),
            meaning="slower at equal load than before the release changed",
            advice="Do not change a knob; roll the release back on one replica and compare",
        ),
        recommendation=None,
    ),
    incident=replace(
        DRAIN.incident, key='SlowerAtEqualLoad{pool="chat-8b"}', target={"pool": "chat-8b"}
    ),
)
REPLICA = case(
    "ReplicaSlow",
    "page",
    {
        "slower_than_pool": True,
        "speed_against_pool_ratio": 0.845,
        "speed_unknown_reason": "not judged yet: 15 of 20 minutes of data, load spread 2.1× of 3×",
        "itl_seconds_mean": 0.013,
        "running_requests": 16.4,
        "waiting_requests": 0.0,
    },
    labels={"instance": "chat-8b-5:8000", "pool": "chat-8b"},
    reasons={
        "slower_at_equal_load": "not judged yet: 15 of 20 minutes of data, load spread 2.1× of 3×",
        "prompt_tokens_mean_ratio": NO_REFERENCE,
    },
    diagnosis=Diagnosis(
        tree="batch-size-drift",
        leaf="replica_slow",
        path=(),
        meaning="slower at equal load than its peers",
        advice="Do not change a knob; drain it",
    ),
)
SHIFT = case(
    "TrafficShift",
    "notice",
    {
        "traffic_shifted": True,
        "prompt_tokens_drift_score": 4.2,
        "prompt_tokens_drift_ratio": 2.31,
        "generation_tokens_drift_score": 0.4,
        "generation_tokens_drift_ratio": 0.98,
        "prompt_tokens_moved": "+38 points in 1k-2k, -42 in 200-500",
        "finished_requests": 1640.0,
        "prompt_tokens_mean": 1200.0,
        "prompt_tokens_calibration": "own",
        "prompt_tokens_smallest_detectable_ratio": 1.2,
        "generation_tokens_smallest_detectable_ratio": 1.3,
    },
    labels={"instance": "", "pool": "rag-8b"},
    reference={"kind": "baseline", "values": {"prompt_tokens_mean": 512.0}},
)
UNEVEN = case(
    "UnevenTraffic",
    "notice",
    {
        "traffic_uneven": True,
        "prompt_tokens_peer_ratio": 2.04,
        "prompt_tokens_peer_score": 3.1,
        "generation_tokens_peer_ratio": 1.02,
        "prompt_tokens_calibration": "shipped",
    },
    labels={"instance": "rag-8b-3:8000", "pool": "rag-8b"},
)
STALE = case(
    "RetuneAdvised",
    "ticket",
    {
        "pin_lengths_moved": True,
        "prompt_tokens_pin_score": 0.4,
        "prompt_tokens_pin_ratio": 1.03,
        "generation_tokens_pin_score": 3.3,
        "generation_tokens_pin_ratio": 1.602,
        "ttft_in_target_10m_ratio": 1.0,
        "slo_missed": False,
        "slo_ttft_seconds": 1.0,
        "slo_share": 0.95,
    },
    labels={"instance": "", "pool": "chat-8b"},
    reference=PIN,
)
# the ticket with what the replay says of the last hour
RETUNE = replace(
    STALE,
    finding=replace(
        STALE.finding,
        evidence=STALE.finding.evidence
        | {
            "utilization_ratio": 0.73,
            "capacity_ratio": 0.72,
            "capacity_requests_per_second": 8.7,
        },
        reference=PIN | {"values": PIN["values"] | {"requests_per_second": 6.3}},
        recommendation=Recommendation(
            "change",
            reason=Reason("other", "more capacity within TTFT 1.00 s at these lengths"),
            knob="max_num_seqs",
            from_value=64.0,
            from_provenance="config",
            to_value=128.0,
            price=("ITL p99 24.0 → 31.0 ms", "KV blocks 27,000 → 26,990", "restart"),
            undo="--max-num-seqs 64",
            wrong_if="then over 5 % still miss TTFT 1.00 s at ≤ 9.90 req/s each",
            effect=("capacity 8.70 → 11.0 req/s each (+24–28 %)",),
            basis="simulation",
        ),
    ),
)
CREEP = case(
    "LatencyCreep",
    "ticket",
    {
        "latency_creeps": True,
        "speed_slope_14d_ratio": -0.043,
        "speed_slope_14d_lower_ratio": -0.061,
        "speed_slope_14d_upper_ratio": -0.025,
        "e2e_p99_slope_14d_ratio": 0.012,
        "e2e_p99_slope_14d_lower_ratio": -0.01,
        "e2e_p99_slope_14d_upper_ratio": 0.04,
    },
    labels={"instance": "chat-8b-5:8000", "pool": "chat-8b"},
)
DRIFTED = replace(
    BUDGET,
    finding=replace(
        BUDGET.finding,
        rule="BatchDrift",
        evidence={
            **BUDGET.finding.evidence,
            "slower_at_equal_load": False,
            "speed_at_equal_load_ratio": 1.0,
            "speed_smallest_detectable_loss_ratio": 0.12,
            "requests_per_forward_pass": 67.0,
            "effective_batch_size": 66.0,
            "tokens_per_second_per_gpu": 2990.0,
            "itl_seconds_mean": 0.0223,
            "throughput_factor_batch_ratio": 0.71,
            "throughput_factor_load_ratio": 0.8,
            "throughput_factor_speed_ratio": 1.0,
            "throughput_factor_first_tokens_ratio": 1.0,
            "throughput_factor_gpus_ratio": 1.0,
            "prompt_tokens_moved": "+38 points in 1k-2k, -42 in 200-500",
        },
        reference={
            **PIN,
            "values": {
                "prompt_tokens_mean": 512.0,
                "generation_tokens_mean": 211.0,
                "effective_batch_size": 93.0,
                "requests_per_forward_pass": 94.8,
                "itl_seconds_mean": 0.0178,
                "tokens_per_second_per_gpu": 5280.0,
                "batch_assembly_wait_seconds": 0.01,
            },
        },
    ),
    incident=replace(
        BUDGET.incident,
        alert="BatchDrift",
        rule="BatchDrift",
        key='BatchDrift{pool="rag-8b"}',
        target={"pool": "rag-8b"},
    ),
)
DRIFTED = replace(
    DRIFTED,
    finding=replace(
        DRIFTED.finding,
        concerned=tuple(TargetKey(f"rag-8b-{i}:8000", "0") for i in range(8)),
        of_targets=8,
    ),
)

CASES: dict[str, Case] = {
    "drain": DRAIN,
    "slow_pool": SLOW_POOL,
    "replica": REPLICA,
    "shift": SHIFT,
    "uneven": UNEVEN,
    "stale": STALE,
    "creep": CREEP,
    "batch_drift": DRIFTED,
    "coverage_pool": COVERAGE_POOL,
    "coverage_one": COVERAGE_ONE,
    "coverage_unlisted": COVERAGE_UNLISTED,
    "retired": RETIRED,
    "cap": CAP,
    "budget": BUDGET,
    "kv": KV,
    "no_knob": NO_KNOB,
    "kv_refused": KV_REFUSED,
    "refused": REFUSED,
    "fine": FINE,
    "retune": RETUNE,
    "undetermined": UNDETERMINED,
    "stuck": STUCK,
    "deferred_ticket": DEFERRED_TICKET,
    "deferred_page": DEFERRED_PAGE,
    "coverage": COVERAGE,
    "drift": DRIFT,
    "slow": SLOW,
    "slow_gpu": SLOW_GPU,
    "stuck_gpu": STUCK_GPU,
    "gpu_lost": GPU_LOST,
    "gpu_lost_named": GPU_LOST_NAMED,
    "cap_held": CAP_HELD,
    "cap_unknown": CAP_UNKNOWN,
    "drift_generations": DRIFT_GENERATIONS,
    "rate_drop": RATE_DROP,
}

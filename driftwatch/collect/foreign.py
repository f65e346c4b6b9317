"""What a page without vLLM's series is of, judged by the names on it.

Sources of the names: SGLang, text-generation-inference, Triton, TensorRT-LLM, LMDeploy, llama.cpp
and Dynamo by their documentation of ``/metrics``; Ray's ``ray_vllm_`` from vLLM's Ray stat logger,
which replaces the colon; the router's from vLLM's production stack. ``--disable-log-stats`` leaves
``python_``, ``process_`` and ``http_`` names (a recorded page of vLLM 0.32).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STATS_DISABLED = (
    "stats disabled (--disable-log-stats): the server answers but exports no vllm: metric"
)
NOT_AN_ENGINE = (
    "not a vLLM engine's page: its vllm: series are those of a router, none is of an engine"
)
# vLLM's production stack: its router counts these per server, beside copies of the engines' gauges
ROUTER_NAMES = frozenset(
    (
        "vllm:current_qps",
        "vllm:num_prefill_requests",
        "vllm:num_decoding_requests",
        "vllm:healthy_pods_total",
    )
)
_NAMELESS = "no vllm: series, and no name of an engine that driftwatch knows: "
_SERVER_NAMES = ("python_", "process_", "http_")
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class _Exporter:
    """Who writes such names."""

    prefixes: tuple[str, ...]  # that its names begin with
    what: str  # whose page it is
    fix: str  # what to do

    @property
    def reason(self) -> str:
        begins = " or ".join(self.prefixes)
        return f"not a vLLM engine's page: no vllm: series, it looks like {self.what} ({begins})"


def _engine(prefix: str, what: str) -> _Exporter:
    return _Exporter((prefix,), what, f"driftwatch reads vLLM only: leave {what} out of the pools")


def _beside(prefix: str, what: str) -> _Exporter:
    return _Exporter((prefix,), what, "give the address of the vLLM server, usually port 8000")


_COLON = (
    "scrape vLLM's own /metrics, or put the colon back: metric_relabel_configs with source_labels "
    "[__name__], regex '.*vllm(?::|_)(.+)', target_label __name__, replacement 'vllm:$1'"
)
# vLLM under other names first, then other engines, then what runs beside an engine
_EXPORTERS = (
    _Exporter(
        ("ray_vllm_", "ray_vllm:"),
        "vLLM's metrics as Ray renames them",
        _COLON,
    ),
    _Exporter(
        ("vllm_",),
        "vLLM's metrics under other names, of a recording rule or an OpenTelemetry exporter",
        _COLON,
    ),
    _engine("sglang:", "SGLang"),
    _engine("tgi_", "text-generation-inference"),
    _engine("trtllm_", "TensorRT-LLM"),
    _engine("trtllm:", "TensorRT-LLM"),
    _engine("nv_", "Triton Inference Server"),
    _engine("lmdeploy:", "LMDeploy"),
    _engine("llamacpp:", "llama.cpp"),
    _beside("dynamo_", "a frontend of NVIDIA Dynamo"),
    _beside("litellm_", "LiteLLM"),
    _beside("DCGM_", "dcgm-exporter"),
    _beside("nvidia_smi_", "nvidia_gpu_exporter"),
    _beside("node_", "node_exporter"),
    _beside("kube_", "kube-state-metrics"),
    _beside("container_", "cAdvisor"),
    _beside("prometheus_", "a Prometheus"),
    _beside("envoy_", "Envoy"),
)
_FIXES = {
    STATS_DISABLED: (
        "start vLLM without --disable-log-stats; if another program answers there, give the "
        "address of the vLLM server"
    ),
    NOT_AN_ENGINE: "give the addresses of the vLLM servers behind the router",
    **{exporter.reason: exporter.fix for exporter in _EXPORTERS},
}


# how driftwatch.collect.http words a refusal → what to do about it
_REFUSALS = {
    "answers 401": "the server wants a login. Give an address without one, or the Prometheus that "
    "scrapes it",
    "answers 403": "the server refuses this machine. Allow it, or give the Prometheus that scrapes "
    "it",
    "answers 404": "vLLM serves its page at /metrics. Give http://host:8000/metrics",
    "answers 3": "give the address that it redirects to, if that is the vLLM server's /metrics",
    "answers HTML": "this is a web page. Give vLLM's own address, http://host:8000/metrics",
}


def is_known(names: Iterable[str]) -> bool:
    """Any of the names is of an exporter that is known here."""
    return any(name.startswith(e.prefixes) for name in names for e in _EXPORTERS)


def without_vllm(names: Iterable[str]) -> str:
    """Why a page without a ``vllm:`` series shows nothing of vLLM.

    ``names``: of its samples; any number of times.
    """
    unique = sorted(set(names))
    for exporter in _EXPORTERS:
        if any(name.startswith(exporter.prefixes) for name in unique):
            return exporter.reason
    others = [name for name in unique if not name.startswith(_SERVER_NAMES)]
    if not others:
        return STATS_DISABLED
    more = ", …" if len(others) > _SHOWN_NAMES else ""
    return f"{_NAMELESS}{', '.join(name[:60] for name in others[:_SHOWN_NAMES])}{more}"


def fix_of(reason: str) -> str | None:
    """What to do about a page that is not of an engine of vLLM; None where it is another reason."""
    if reason.startswith(_NAMELESS):
        return "give the address of a vLLM server, usually port 8000"
    refusals = (fix for begin, fix in _REFUSALS.items() if reason.startswith(begin))
    return _FIXES.get(reason) or next(refusals, None)

"""Which program a page without vLLM's series belongs to, judged by the names on it.

Sources of the names: SGLang, text-generation-inference, Triton, TensorRT-LLM, LMDeploy, llama.cpp
and Dynamo by their documentation of ``/metrics``; Ray's ``ray_vllm_`` from vLLM's Ray stat logger,
which replaces the colon; the router's from vLLM's production stack. ``--disable-log-stats`` leaves
``python_``, ``process_`` and ``http_`` names (a recorded page of vLLM 0.32).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

STATS_DISABLED = (
    "stats disabled (--disable-log-stats): the server answers but exports no vllm: metric"
)
# of a Prometheus, which has names of other times as well
NO_SERIES = "no vllm: series: stats disabled (--disable-log-stats), or not a vLLM server"
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


_COLON = (
    "scrape vLLM's own /metrics, or put the colon back: metric_relabel_configs with source_labels "
    "[__name__], regex '.*vllm(?::|_)(.+)', target_label __name__, replacement 'vllm:$1'"
)
_VLLM_ONLY = "driftwatch reads vLLM only: leave it out of the pools"
_BESIDE = "give the address of the vLLM server, usually port 8000"
# What names begin with → whose they are, and what to do: vLLM under other names first, then other
# engines, then what runs beside an engine.
_EXPORTERS: Mapping[str, tuple[str, str]] = {
    "ray_vllm_": ("vLLM's metrics as Ray renames them", _COLON),
    "ray_vllm:": ("vLLM's metrics as Ray renames them", _COLON),
    "vllm_": (
        "vLLM's metrics under other names, of a recording rule or an OpenTelemetry exporter",
        _COLON,
    ),
    "sglang:": ("SGLang", _VLLM_ONLY),
    "tgi_": ("text-generation-inference", _VLLM_ONLY),
    "trtllm_": ("TensorRT-LLM", _VLLM_ONLY),
    "trtllm:": ("TensorRT-LLM", _VLLM_ONLY),
    "nv_": ("Triton Inference Server", _VLLM_ONLY),
    "lmdeploy:": ("LMDeploy", _VLLM_ONLY),
    "llamacpp:": ("llama.cpp", _VLLM_ONLY),
    "dynamo_": ("a frontend of NVIDIA Dynamo", _BESIDE),
    "litellm_": ("LiteLLM", _BESIDE),
    "DCGM_": ("dcgm-exporter", _BESIDE),
    "nvidia_smi_": ("nvidia_gpu_exporter", _BESIDE),
    "node_": ("node_exporter", _BESIDE),
    "kube_": ("kube-state-metrics", _BESIDE),
    "container_": ("cAdvisor", _BESIDE),
    "prometheus_": ("a Prometheus", _BESIDE),
    "envoy_": ("Envoy", _BESIDE),
}


def _reason(prefix: str) -> str:
    what, _ = _EXPORTERS[prefix]
    return f"not a vLLM engine's page: no vllm: series, it looks like {what} ({prefix})"


# How a reason begins → what to do about it; refusals as driftwatch.collect.http words them.
_FIXES = {
    STATS_DISABLED: (
        "start vLLM without --disable-log-stats; if another program answers there, give the "
        "address of the vLLM server"
    ),
    NO_SERIES: "start vLLM without --disable-log-stats; leave other programs out with match",
    NOT_AN_ENGINE: "give the addresses of the vLLM servers behind the router",
    **{_reason(prefix): fix for prefix, (_, fix) in _EXPORTERS.items()},
    _NAMELESS: "give the address of a vLLM server, usually port 8000",
    "answers 401": "the server wants a login. Give an address without one, or the Prometheus that "
    "scrapes it",
    "answers 403": "the server refuses this machine. Allow it, or give the Prometheus that scrapes "
    "it",
    "answers 404": "vLLM serves its page at /metrics. Give http://host:8000/metrics",
    "answers 3": "give the address that it redirects to, if that is the vLLM server's /metrics",
    "answers HTML": "this is a web page. Give vLLM's own address, http://host:8000/metrics",
}


def without_vllm(names: Iterable[str]) -> str:
    """Why a page without a ``vllm:`` series shows nothing of vLLM.

    ``names``: of its samples; any number of times.
    """
    unique = sorted(set(names))
    for prefix in _EXPORTERS:
        if any(name.startswith(prefix) for name in unique):
            return _reason(prefix)
    others = [name for name in unique if not name.startswith(_SERVER_NAMES)]
    if not others:
        return STATS_DISABLED
    more = ", …" if len(others) > _SHOWN_NAMES else ""
    return f"{_NAMELESS}{', '.join(name[:60] for name in others[:_SHOWN_NAMES])}{more}"


def fix_of(reason: str) -> str | None:
    """What to do about a page that is not of an engine of vLLM; None where it is another reason."""
    return next((fix for begin, fix in _FIXES.items() if reason.startswith(begin)), None)

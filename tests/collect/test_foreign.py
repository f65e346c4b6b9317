"""Pages that are not of a vLLM engine are named for what they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.foreign import NOT_AN_ENGINE, STATS_DISABLED, fix_of, without_vllm
from driftwatch.collect.pages import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PAGES = {
    "SGLang": 'sglang:num_running_reqs{model_name="m"} 3\n',
    "text-generation-inference": "tgi_queue_size 0\ntgi_batch_current_size 2\n",
    "node_exporter": "node_load1 0.3\nprocess_open_fds 9\n",
    "dcgm-exporter": 'DCGM_FI_DEV_SM_CLOCK{gpu="0"} 1980\n',
    "as Ray renames them": "ray_vllm_num_requests_running 1\nray_node_cpu_count 2\n",
    "OpenTelemetry": "vllm_num_requests_running 1\nprocess_open_fds 9\n",
}


def reason(page: str) -> str:
    (row,) = PageParser().parse("h:8000", T0, page.encode()).scrapes.to_dicts()
    assert row["ok"] is False
    return str(row["reason"])


@pytest.mark.parametrize(("what", "page"), PAGES.items())
def test_the_page_of_another_exporter_is_named_with_what_to_do(what: str, page: str) -> None:
    told = reason(page)
    assert what in told
    assert "no vllm: series" in told
    assert "stats disabled" not in told
    assert fix_of(told) is not None


def test_a_router_is_not_an_engine() -> None:
    page = 'vllm:current_qps{server="http://a"} 2\nvllm:num_requests_running{server="http://a"} 1\n'
    assert reason(page) == NOT_AN_ENGINE
    assert fix_of(NOT_AN_ENGINE) == "give the addresses of the vLLM servers behind the router"


def test_names_of_nobody_known_are_shown_and_are_not_taken_for_disabled_stats() -> None:
    told = without_vllm(["my_app_jobs", "my_app_errors", "process_open_fds", "a", "b"])
    assert told.endswith("a, b, my_app_errors, …")
    assert fix_of(told) == "give the address of a vLLM server, usually port 8000"


def _api(*names: str) -> PrometheusApi:
    points = [(T0.timestamp() + 10 * i, "1") for i in range(6)]
    return PrometheusApi(
        [Series({"__name__": n, "instance": "b:1", "job": "llm"}, points, 10) for n in names]
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("up", "sglang:num_running_reqs", "scrape_samples_scraped"), "it looks like SGLang"),
        (("up", "process_open_fds", "job:up:sum", "vllm:num_requests_running_old"), STATS_DISABLED),
    ],
)
def test_an_api_is_asked_what_a_target_without_vllm_series_is_once(
    names: tuple[str, ...], said: str
) -> None:
    with _api(*names) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector={"job": "llm"})
        found = [
            source.collect(T0 + timedelta(seconds=at), T0 + timedelta(seconds=at + 20))
            for at in (0, 20)
        ]
        source.close()
        for one in found:
            (what,) = one.scrapes["reason"].unique()
            assert said in what
        assert sum("instance=" in asked["query"] for asked in api.queries) == 1

"""dcgm-exporter's pages, published, broken and recorded, and its series through an API."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl
from fakes.dcgm_exporter import DcgmExporter
from fakes.dcgm_pages import FakeGpu, dcgm_page
from fakes.loopback import Answer
from fakes.manual_clock import ManualClock
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.dcgm import GpuSamples
from driftwatch.collect.dcgm_sources import DcgmPagesSource, DcgmPrometheusSource
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.schema import Collected, SourceProblem

T0 = datetime(2026, 1, 2, tzinfo=UTC)
LATER = T0 + timedelta(seconds=30)
DATA = Path(__file__).resolve().parents[1] / "data" / "dcgm"

SHORT_READ = Bounds(connect_seconds=20, read_seconds=0.4, total_seconds=60)
VLLM = 'vllm:num_requests_running{engine="0",model_name="m"} 3\n'


def read(*pages: str | bytes) -> tuple[pl.DataFrame, tuple[SourceProblem, ...]]:
    batch = GpuSamples()
    for i, page in enumerate(pages):
        body = page.encode() if isinstance(page, str) else page
        batch.page(f"node-{i + 1}:9400", T0, body)
    found = batch.collected()
    return found.gpus, found.problems


def test_a_whole_page_with_its_workload() -> None:
    gpus, problems = read((DATA / "ada_kubernetes.prom").read_bytes())
    assert problems == ()
    (row,) = gpus.to_dicts()
    assert row["uuid"] == "GPU-a8394b51-c086-568a-9f1a-c1e1c934c44c"
    assert row["hostname"] == "lke529760-766837-0a634ab30000"
    assert (row["namespace"], row["pod"]) == ("default", "cuda-75454ffb9f-8ljq7")
    assert row["sm_clock_hertz"] == 2.31e9
    assert row["power_watts"] == 40.979
    assert row["engine_active_ratio"] == 0.004656
    assert row["utilization_ratio"] == row["xid_code"] == 0.0
    assert row["framebuffer_used_bytes"] == 2.0**20
    assert row["lost"] is False
    # the XID series has labels of its own, and is of the same GPU
    assert list(json.loads(row["reasons"])) == ["clock_event_reasons"]


def test_one_exporter_fails_and_the_other_is_read() -> None:
    page = dcgm_page([FakeGpu(0, "GPU-a")])
    with DcgmExporter(page) as bad, DcgmExporter(page) as good:
        source = DcgmPagesSource([bad.url, good.url], ManualClock(T0), SHORT_READ)
        for answer, reason in (
            (Answer(404, "404 page not found\n"), "answers 404 Not Found"),
            (Answer(200, page[:310]), "page cut off at byte 310"),
            (Answer(0, hang=True), "no answer for 0.4 s"),
        ):
            bad.planned.append(answer)
            found = source.collect(T0, LATER)
            assert found.gpus["exporter"].to_list() == [good.instance]
            (problem,) = found.problems
            assert problem.where == bad.instance
            assert problem.reason.startswith(reason)
        source.close()


MINUTE = timedelta(minutes=1)
CLOCK, WATTS = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_POWER_USAGE"


def series(name: str, value: float, gpu: str = "GPU-a", **labels: str) -> Series:
    points = [(T0.timestamp() + 15 * i, str(value + i)) for i in range(40)]
    told = {"instance": "node-1:9400", "job": "dcgm", "UUID": gpu, "gpu": "0", **labels}
    return Series({"__name__": name, **told}, points, 15)


def collected(*held: Series, since: datetime = T0, until: datetime = T0 + MINUTE) -> Collected:
    with PrometheusApi(list(held)) as api:
        source = source_of(api)
        found = source.collect(since, until)
        source.close()
    return found


def source_of(api: PrometheusApi, **selector: str) -> DcgmPrometheusSource:
    return DcgmPrometheusSource(PrometheusAsker(api.address, timeout_seconds=5), selector=selector)


def test_readings_are_those_of_the_scrapes_however_they_are_asked_for() -> None:
    cuts = [T0, T0 + timedelta(seconds=7), T0 + timedelta(seconds=31), T0 + 5 * MINUTE]
    with PrometheusApi([series(CLOCK, 40), series(WATTS, 300)]) as api:
        source = source_of(api)
        pieces = [source.collect(a, b).gpus for a, b in pairwise(cuts)]
        source.close()
    whole = collected(series(CLOCK, 40), series(WATTS, 300), until=cuts[-1])
    assert whole.problems == ()
    assert whole.gpus["time"].to_list() == [T0 + timedelta(seconds=15 * i) for i in range(20)]
    assert whole.gpus["sm_clock_hertz"].to_list() == [1e6 * (40 + i) for i in range(20)]
    assert whole.gpus.equals(pieces[0].vstack(pieces[1]).vstack(pieces[2]))


def test_where_up_cannot_be_asked_there_is_a_problem() -> None:
    # this API knows no "and": the question for up is refused
    found = collected(series(CLOCK, 40, pod="vllm-0", namespace="prod"))
    assert found.gpus["pod"].unique().to_list() == ["vllm-0"]
    (problem,) = found.problems
    assert problem.where.startswith("up and on (job, instance)")


def test_names_in_lower_case_are_read() -> None:
    """As agents of managed clusters write them (dcgm-exporter#577)."""
    labels = {"uuid": "gpu-aaaa", "modelname": "nvidia a100", "gpu": "0", "job": "dcgm"}
    points = [(T0.timestamp(), "80")]
    named = {"__name__": "dcgm_fi_dev_gpu_util", "instance": "n1:9400", **labels}
    (row,) = collected(Series(named, points, 15)).gpus.to_dicts()
    assert (row["uuid"], row["gpu_model"], row["utilization_ratio"]) == (
        "GPU-aaaa",
        "nvidia a100",
        0.8,
    )

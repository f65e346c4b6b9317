"""DCGM through an API: what it costs, what is asked again, and an API that misbehaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.dcgm_sources import DcgmPrometheusSource
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 1, tzinfo=UTC)
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


def test_who_the_exporter_is_that_went() -> None:
    gone = series(CLOCK, 40, instance="node-2:9400")
    with PrometheusApi([series(CLOCK, 40), Series(gone.labels, gone.points[:4], 15)]) as api:
        source = source_of(api)
        first = source.collect(T0, T0 + MINUTE)
        second = source.collect(T0 + 2 * MINUTE, T0 + 3 * MINUTE)
        third = source.collect(T0 + 3 * MINUTE, T0 + 4 * MINUTE)
        source.close()
    assert first.problems == ()
    assert first.gpus["exporter"].unique(maintain_order=True).to_list() == [
        "node-1:9400",
        "node-2:9400",
    ]
    assert [p.where for p in second.problems] == ["node-2:9400"]
    assert third.problems == ()


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

"""The image of a server's container, where kube-state-metrics alone shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.model import TargetKey

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POD = {"namespace": "llm", "pod": "chat-0"}
OLD, NEW = "vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.33.0"
KEY = TargetKey("a:1", "0")


def series(name: str, since: float, until: float, **labels: str) -> Series:
    """A 1 every 10 s."""
    start = T0.timestamp()
    points = [(start + at, "1") for at in range(int(since), int(until), 10)]
    return Series({"__name__": name, **labels}, points, 10)


def server(**labels: str) -> list[Series]:
    own = {"instance": "a:1", "job": "vllm", **labels}
    return [
        series("up", 0, 600, **own),
        series("vllm:num_requests_running", 0, 600, engine="0", **own),
    ]


def info(image: str, container: str = "vllm", since: float = 0, until: float = 600) -> Series:
    return series(
        "kube_pod_container_info", since, until,
        instance="ksm:8080", job="ksm", container=container, image=image, uid=image, **POD,
    )  # fmt: skip


def images(*held: Series, at: tuple[float, ...] = (120,)) -> list[str | None]:
    """The image label of the server after each of these collections."""
    found: list[str | None] = []
    with PrometheusApi(held) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector={"job": "vllm"})
        before = 0.0
        for until in at:
            span = (T0 + timedelta(seconds=before), T0 + timedelta(seconds=until))
            found.append(source.collect(*span).targets[KEY].labels.get("kube_image"))
            before = until
        source.close()
    return found


def test_a_pod_that_is_replaced_under_its_name_has_another_image() -> None:
    held = [*server(**POD), info(OLD, until=200), info(NEW, since=220)]
    assert images(*held, at=(120, 205, 300)) == [OLD, OLD, NEW]


@pytest.mark.parametrize(
    ("labels", "held", "expected"),
    [
        ({}, [info(OLD)], None),  # nothing says which pod it is
        ({**POD, "pod": "other"}, [info(OLD)], None),
        (POD, [], None),  # no kube-state-metrics
        (POD, [info(OLD), info("istio/proxy:1", "istio-proxy")], OLD),
        (POD, [info("corp/llm:7", "main"), info("istio/proxy:1", "istio-proxy")], None),
        (
            {**POD, "container": "main"},
            [info("corp/llm:7", "main"), info("x:1", "y")],
            "corp/llm:7",
        ),
        ({**POD, "container": "gone"}, [info(OLD)], None),
        (POD, [info(OLD), info(NEW)], None),  # both at once: it is being replaced
    ],
)
def test_whose_image_it_is(
    labels: dict[str, str], held: list[Series], expected: str | None
) -> None:
    assert images(*server(**labels), *held) == [expected]


def test_a_refused_question_is_a_problem_and_what_was_known_stays() -> None:
    with PrometheusApi([*server(**POD), info(OLD)]) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector={"job": "vllm"})
        first = source.collect(T0, T0 + timedelta(seconds=100))
        api.faults.append(("kube_pod", Answer(503, "busy")))
        second = source.collect(T0 + timedelta(seconds=100), T0 + timedelta(seconds=200))
        source.close()
    assert first.problems == ()
    assert [problem.where for problem in second.problems] == [
        'kube_pod_container_info{namespace="llm"}'
    ]
    assert second.targets[KEY].labels["kube_image"] == OLD

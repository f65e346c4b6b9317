"""Situations that people report in public, and the image that kube-state-metrics shows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.doubles import with_own_names
from driftwatch.collect.pages import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected
from driftwatch.model import TargetKey
from tests.collect.field_cases import T0, Fleet, engine, load_vsim


@pytest.fixture(scope="module")
def vsim(shared_data: Path) -> ModuleType:
    return load_vsim(shared_data)


def collected(fleet: Fleet) -> Collected:
    """The first minute."""
    with PrometheusApi(fleet.series()) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector={})
        found = source.collect(T0, T0 + timedelta(minutes=1))
        source.close()
    return found


def test_01_another_prefix(vsim: ModuleType) -> None:
    """KServe's PodMonitor renames every metric and adds labels that `up` does not have."""
    fleet, page, plain = Fleet(), engine(vsim, 1, 4.0), Fleet()
    labels = {"instance": "10.1.0.5:8000", "job": "models/kserve", "namespace": "models"}
    for at in range(0, 60, 15):
        body = page(at)
        plain.page(at, body, labels)
        fleet.page(at, body, labels, lambda name: f"kserve_{name}", {"llm_isvc_name": "chat"})
    found = collected(fleet)
    assert found.problems == ()
    assert found.scrapes.equals(collected(plain).scrapes)


@pytest.mark.parametrize("prefix", ["ray_vllm_", "vllm_omni:", "acme_llm:vllm:"])
def test_01_any_prefix_on_a_page(vsim: ModuleType, prefix: str) -> None:
    body = engine(vsim, 1, 4.0)(0)
    ours = PageParser().parse("h:1", T0, body.replace("vllm:", prefix).encode())
    truth = PageParser().parse("h:1", T0, body.encode())
    assert ours.problems == ()
    assert ours.scrapes.equals(truth.scrapes)


def vllm(namespace: str, **labels: str) -> list[Series]:
    of = {"instance": "vllm-0:metrics", "job": "pods", "namespace": namespace, **labels}
    names = ("up", "vllm:num_requests_running", "vllm:generation_tokens_total")
    points = [(T0.timestamp() + 15 * i, "1") for i in range(40)]
    return [Series({"__name__": name, **of}, points, 15) for name in names]


def names_of(source: PrometheusSource, api: PrometheusApi, *held: list[Series]) -> dict[str, str]:
    """Namespace → name, as the source tells of a fleet."""
    api.series = [series for server in held for series in server]
    found = source.collect(T0, T0 + timedelta(minutes=1))
    return {one.labels["namespace"]: key.instance for key, one in found.targets.items()}


def test_a_name_is_kept_while_others_come_and_go() -> None:
    prod, dev = vllm("prod"), vllm("dev")
    with PrometheusApi([]) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector={})
        assert names_of(source, api, prod) == {"prod": "vllm-0:metrics"}
        both = {"prod": "vllm-0:metrics", "dev": "dev/vllm-0:metrics"}
        assert names_of(source, api, prod, dev) == both
        assert names_of(source, api, dev) == {"dev": "dev/vllm-0:metrics"}
        # nobody else gets the name of one that is away
        test = {"test": "test/vllm-0:metrics"}
        assert names_of(source, api, dev, vllm("test")) == {"dev": "dev/vllm-0:metrics", **test}
        assert names_of(source, api, prod, dev) == both
        # a pod that takes its place does
        assert names_of(source, api, vllm("prod", pod="other"), dev) == both
        source.close()


def test_two_sources_with_one_name_for_two_servers(vsim: ModuleType) -> None:
    """Two clusters, each with a Prometheus of its own and the same names."""
    labels = {"instance": "vllm-0:8000", "job": "pods"}
    answers = []
    for seed in (1, 40):
        labels["pod"] = f"chat-{seed}"
        fleet, page = Fleet(), engine(vsim, seed, 1.5)
        for at in range(seed % 7, 60, 15):
            fleet.page(at, page(at), labels)
        answers.append(collected(fleet))
    one, other = with_own_names(answers, ["prometheus a", "prometheus b"], {}, {})
    assert one == answers[0]
    assert [key.instance for key in other.targets] == ["b/vllm-0:8000"]
    assert set(other.scrapes["instance"]) == {"b/vllm-0:8000"}
    assert "another source has this name" in other.problems[0].reason
    # from then on its own source calls it so
    with PrometheusApi(fleet.series()) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector={})
        source.remember(other.targets)
        again = source.collect(T0, T0 + timedelta(minutes=1))
        source.close()
    assert again.targets.keys() == other.targets.keys()


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
        (POD, [info(OLD), info("istio/proxy:1", "istio-proxy")], None),
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

"""A source that is asked for the scrapes of some targets brings these as if it had read all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from fakes import prometheus_server
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series
from fakes.prometheus_server import PrometheusServer, backfill
from polars.testing import assert_frame_equal

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.query import MOST_BYTES, narrowed
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.model import Target, TargetKey

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
JOB = {"job": "vllm"}
# what a regular expression, or its text in a question, could take for something else
ODD = ("a.b:1", "axb:1", "a|b:1", 'q"uote:1', "back\\slash:1", "plus+(1)[2]{3}$^:1", "blank -:1")

Listed = Mapping[TargetKey, Target]


def of(wanted: Callable[[Target], bool]) -> Callable[[Listed], Collection[TargetKey]]:
    return lambda listed: [key for key, target in listed.items() if wanted(target)]


def ups(namespaces: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"instance": name, "namespace": space, **JOB} for name, space in namespaces.items()]


def asked(own: Collection[str], namespaces: Mapping[str, str]) -> list[str]:
    up = ups(namespaces)
    return narrowed({"job": ["vllm"]}, own, up, up)


def test_a_label_that_tells_them_from_all_others_is_asked_for() -> None:
    spaces = {"a:1": "x", "b:1": "x", "c:1": "y.z", "d:1": "w"}
    assert asked({"a:1", "b:1"}, spaces) == ['job="vllm",namespace="x"']
    assert asked({"a:1", "b:1", "c:1"}, spaces) == ['job="vllm",namespace=~"x|y\\\\.z"']
    assert asked(spaces.keys(), spaces) == ['job="vllm"']
    assert asked((), spaces) == []


def test_a_label_that_others_have_too_does_not_tell() -> None:
    spaces = {"a:1": "x", "b:1": "x", "c:1": "y"}
    assert asked({"a:1"}, spaces) == ['job="vllm",instance="a:1"']
    assert asked({"a:1", "c:1"}, spaces) == ['job="vllm",instance=~"a:1|c:1"']


def test_questions_are_short_enough_for_every_database() -> None:
    spaces = {f"10.1.{i // 250}.{i % 250}:8000": "x" for i in range(5000)}
    own = set(list(spaces)[::2])
    texts = asked(own, spaces)
    assert 3 < len(texts) < 12
    assert max(len(text.encode()) for text in texts) < MOST_BYTES + 100
    assert sum(text.count(":8000") for text in texts) == len(own)


@pytest.fixture(scope="module")
def prometheus(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    """Servers with odd names in three namespaces; one of them is down for a while."""
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)
    blocks = tmp_path_factory.mktemp("blocks")
    page = (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()
    for number, name in enumerate(ODD):
        labels = {**JOB, "instance": name, "namespace": f"n{number % 3}"}
        at = [T0.timestamp() + 3 + number + 15 * scrape for scrape in range(8)]
        down = number == 4
        own = page.replace("1.7952248941790836e+09", f"{1_795_224_894 + number}")
        pages = [(one, None if down and scrape > 3 else own) for scrape, one in enumerate(at)]
        backfill(pages, labels, blocks)
    with PrometheusServer(blocks=blocks) as server:
        yield server


def source_of(address: str) -> PrometheusSource:
    return PrometheusSource(PrometheusAsker(address), selector=JOB)


@pytest.mark.prometheus
@pytest.mark.parametrize("by", ["namespace", "instance"])
def test_parts_together_are_what_is_read_at_once(prometheus: PrometheusServer, by: str) -> None:
    parts: list[Callable[[Target], bool]] = [
        (lambda target: target.labels["namespace"] == "n0")
        if by == "namespace"
        else (lambda target: target.key.instance in ODD[::2])
    ]
    parts.append(lambda target: not parts[0](target))
    sources = [source_of(prometheus.url) for _ in range(3)]
    for minute in range(2):
        span = (T0 + minute * MINUTE, T0 + (minute + 1) * MINUTE)
        whole = sources[0].collect(*span)
        halves = [
            source.collect(*span, of(part)) for source, part in zip(sources[1:], parts, strict=True)
        ]
        assert len(whole.scrapes) == 4 * len(ODD)
        assert 0 < len(halves[0].scrapes) < len(whole.scrapes)
        assert_frame_equal(
            pl.concat([half.scrapes for half in halves]).sort("instance", "engine", "time"),
            whole.scrapes,
        )
        for half in halves:
            assert half.targets == whole.targets
            assert half.looks is not None
            assert half.looks.to_list() == [span[0]]
            assert half.problems == whole.problems
    assert whole.scrapes.filter(~pl.col("ok"))["instance"].unique().to_list() == [ODD[4]]
    for source in sources:
        source.close()


def test_only_two_questions_are_about_the_whole_fleet() -> None:
    held = [*server("a:1"), *server("b:1")]
    with PrometheusApi(held) as api:
        source = source_of(api.address)
        found = source.collect(T0, T0 + MINUTE, of(lambda target: target.key.instance == "a:1"))
        source.close()
        texts = [one["query"] for one in api.queries]
    assert set(found.scrapes["instance"]) == {"a:1"}
    wide = [text for text in texts if "instance=" not in text and text.endswith("ms]")]
    assert len(wide) == 2 and wide[0] == 'up{job="vllm"}[60000ms]'
    assert wide[1].startswith('{__name__=~"vllm:num_requests_running|')
    assert len(texts) > 10


def test_without_the_list_of_engines_nobody_can_be_told_apart() -> None:
    with PrometheusApi([*server("a:1"), *server("b:1")]) as api:
        source = source_of(api.address)
        own = of(lambda target: target.key.instance == "a:1")
        source.collect(T0, T0 + MINUTE, own)
        api.faults.append(("num_requests_running", Answer(503, "busy")))
        found = source.collect(T0 + MINUTE, T0 + 2 * MINUTE, own)
        source.close()
    assert found.silent is not None and "503" in found.silent
    assert set(found.scrapes["instance"]) == {"a:1", "b:1"}
    assert not found.scrapes["ok"].any()


def points(value: int) -> list[tuple[float, str]]:
    return [(T0.timestamp() + 10 * i, str(value)) for i in range(12)]


def server(instance: str) -> Sequence[Series]:
    own = {"engine": "0", "model_name": "m", "instance": instance, **JOB}
    return [
        Series({"__name__": "up", "instance": instance, **JOB}, points(1), 10),
        Series({"__name__": "vllm:num_requests_running", **own}, points(3), 10),
        Series({"__name__": "vllm:num_requests_waiting", **own}, points(0), 10),
    ]


def test_a_process_that_is_scraped_twice_is_listed_once() -> None:
    began = [(at, "1767225600.25") for at, _ in points(1)]
    held = [*server("a:1"), *server("b:1")]
    for number, instance in enumerate(("a:1", "b:1")):
        own = {"engine": "0", "instance": instance, **JOB}
        later = [(at + number, value) for at, value in began]
        counted = [(at + number, str(7 + i)) for i, (at, _) in enumerate(began)]
        held += [
            Series({"__name__": "vllm:generation_tokens_created", **own}, later, 10),
            Series({"__name__": "vllm:generation_tokens_total", **own}, counted, 10),
        ]
    with PrometheusApi(held) as api:
        source = source_of(api.address)
        found = source.collect(T0, T0 + MINUTE, of(lambda target: True))
        source.close()
    assert [key.instance for key in found.targets] == ["b:1"]
    assert set(found.scrapes["instance"]) == {"b:1"}
    (problem,) = found.problems
    assert problem.reason.endswith("read once")

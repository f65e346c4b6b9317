"""The scrape table from a Prometheus API, and which servers it shows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from api_cases import (
    JOB,
    MINUTE,
    RUNNING,
    T0,
    UP,
    collect,
    minutes,
    names,
    seconds,
    series,
    server,
    source_of,
)
from fakes import prometheus_server
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series, recorded
from fakes.prometheus_server import PrometheusServer, backfill
from polars.testing import assert_frame_equal

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.query import MOST_BYTES, narrowed
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import SCRAPE_SCHEMA, Collected
from driftwatch.model import Target, TargetKey


def test_one_row_a_scrape_in_the_published_schema() -> None:
    found = collect(UP, RUNNING)
    assert dict(found.scrapes.schema) == dict(SCRAPE_SCHEMA)
    assert found.problems == ()
    assert seconds(found) == [0, 10, 20, 30, 40, 50]
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert found.scrapes["ok"].all()
    assert found.scrapes["reason"].null_count() == 6
    assert found.scrapes["generation_tokens_total"].null_count() == 6
    assert found.scrapes["model_name"].unique().to_list() == ["m"]
    (target,) = found.targets.values()
    assert target.key == TargetKey("a:1", "0")
    assert target.labels == {"instance": "a:1", "engine": "0", "model_name": "m", **JOB}


def test_a_failed_scrape_is_a_row_for_each_engine() -> None:
    found = collect(
        series("up", [1, 1, 0, 0, 1, 1]),
        *(
            series("vllm:num_requests_running", [4, 4], engine=engine, first=first)
            for engine in ("0", "1")
            for first in (0, 40)
        ),
    )
    down = found.scrapes.filter(~pl.col("ok"))
    assert down.select("engine", "reason").rows() == [
        *[("0", "up == 0")] * 2,
        *[("1", "up == 0")] * 2,
    ]
    assert down["running_requests"].null_count() == 4
    assert found.scrapes.filter("ok").height == 8


NODE = Series({"__name__": "up", "instance": "node:9100", "job": "node"}, UP.points, 10)
LATE = Series(RUNNING.labels, [(at - 1, value) for at, value in RUNNING.points[1:]], 10)
NO_UP = Series({**RUNNING.labels, "instance": "b:1"}, RUNNING.points, 10)


@pytest.mark.parametrize(
    ("held", "instances", "times"),
    [
        ([UP, RUNNING, NODE], ["a:1"], 6),  # another exporter is no vLLM server
        ([RUNNING], ["a:1"], 6),  # without up samples are their own proof
        ([UP, RUNNING, NO_UP], ["a:1", "b:1"], 12),
        ([UP, LATE], ["a:1"], 5),  # samples with times of their own are no failed scrapes
    ],
)
def test_which_scrapes_there_are(held: list[Series], instances: list[str], times: int) -> None:
    found = collect(*held, selector={})
    assert found.scrapes["instance"].unique().sort().to_list() == instances
    assert sorted({key.instance for key in found.targets}) == instances
    assert (len(found.scrapes), found.scrapes["ok"].all()) == (times, True)
    assert found.problems == ()


def test_a_series_without_instance_is_left_out() -> None:
    bare = Series({"__name__": "vllm:num_requests_running", **JOB}, RUNNING.points, 10)
    found = collect(UP, RUNNING, bare)
    assert (found.scrapes.height, len(found.targets)) == (6, 1)


def test_a_histogram_whose_edges_change() -> None:
    name = "vllm:request_prompt_tokens_bucket"
    own = {"engine": "0", "model_name": "m"}
    held = server("a:1", scrapes=12)
    held += [
        series(name, [1] * 6, first=first, le=le, **own) for le, first in (("1.0", 0), ("2.0", 60))
    ]
    before, after = minutes(held)
    for found, edge in ((before, 1.0), (after, 2.0)):
        assert found.scrapes["prompt_tokens_edges"].to_list() == [[edge, float("inf")]] * 6
    with PrometheusApi(held) as api:  # and in the middle of one answer
        source = source_of(api)
        whole = source.collect(T0, T0 + timedelta(minutes=2))
        source.close()
    assert whole.scrapes.equals(pl.concat([before.scrapes, after.scrapes]))


@pytest.mark.parametrize(
    "note",
    [
        *("{x}", '],["values":[[', '"values":[[1,"2"]]}', "a\\\nb\x1f\t", "\u00e9{\u2028}", "]]}"),
        '"quotes" \\ <!channel>\n]},{"metric": ,"values":[ é ' + "x" * 4096,
    ],
)
def test_labels_that_look_like_an_answer_are_labels(note: str) -> None:
    plain = [*server("a:1"), *server("b:1")]
    odd = [Series({**one.labels, "note": note}, one.points, 10) for one in plain]
    answers: list[Collected] = []
    for held in (plain, odd, [*plain[: len(plain) // 2], *odd[len(plain) // 2 :]]):
        with PrometheusApi(held) as api:
            source = source_of(api)
            for _ in range(2):  # as new series, and as known ones
                answers.append(source.collect(T0, T0 + timedelta(minutes=1)))
                assert answers[-1].problems == ()
            source.close()
    for one in answers[1:]:
        assert_frame_equal(one.scrapes, answers[0].scrapes, check_exact=True)
    assert {target.labels.get("note") for target in answers[2].targets.values()} == {note}


def _recorded(path: Path) -> tuple[dict[str, list[dict[str, Any]]], Collected]:
    """Series of the recorded answers by name, and what is collected of them."""
    held = json.loads(gzip.decompress(path.read_bytes()))
    answers = {name: one.get("response", one) for name, one in held["queries"].items()}
    with PrometheusApi(recorded(answers, step_seconds=5)) as api:
        source = source_of(api)
        first, last = (datetime.fromtimestamp(held[end], UTC) for end in ("start", "end"))
        found = source.collect(first - timedelta(seconds=5), last + timedelta(seconds=10))
        source.close()
    assert found.problems == ()
    return {name: one["data"]["result"] for name, one in answers.items()}, found


def test_the_main_run_as_a_real_prometheus_answered(shared_data: Path) -> None:
    answers, found = _recorded(shared_data / "vllm-0.32/run_main/query_range.json.gz")
    good = found.scrapes.filter("ok")
    # the first three scrapes found no server yet
    assert found.scrapes.height == len(answers["up"][0]["values"])
    assert found.scrapes.filter(~pl.col("ok"))["reason"].to_list() == ["up == 0"] * 3
    for name, column in {
        "num_requests_running": "running_requests",
        "generation_tokens_total": "generation_tokens_total",
        "iteration_tokens_total_sum": "iteration_tokens_sum",
        "request_queue_time_seconds_count": "queue_seconds_count",
        "kv_cache_usage_perc": "kv_cache_usage_ratio",
    }.items():
        truth = [float(value) for _, value in answers[name][0]["values"]]
        assert good[column].to_list() == truth, column
    buckets = sorted(
        answers["request_prompt_tokens_bucket"], key=lambda s: float(s["metric"]["le"])
    )
    last = good.row(-1, named=True)
    assert last["prompt_tokens_buckets"] == [float(s["values"][-1][1]) for s in buckets]
    assert last["prompt_tokens_edges"] == [float(s["metric"]["le"]) for s in buckets]
    config = json.loads(last["cache_config"])
    assert config["kv_cache_size_tokens"] == "262144"
    assert not {"instance", "job", "deployment", "engine", "__name__"} & config.keys()


@pytest.mark.parametrize(
    ("other", "name"),
    [
        # a PodMonitor and an operator's own monitor, which scrapes the service (runlore#308)
        ({"instance": "chat.models.svc:1", "job": "services"}, "chat.models.svc:1"),
        ({"job": "another"}, "a:1"),
    ],
)
def test_one_process_that_is_scraped_twice_is_one_server(other: dict[str, str], name: str) -> None:
    def scraped(first: float, **labels: str) -> list[Series]:
        own = {"engine": "0", **labels}
        counted = [100 * i + first for i in range(6)]
        return [
            series("up", [1] * 6, first=first, **labels),
            series("vllm:num_requests_running", [2] * 6, first=first, **own),
            series("vllm:generation_tokens_created", [7.125] * 6, first=first, **own),
            series("vllm:generation_tokens_total", counted, first=first, **own),
        ]

    twice = [*scraped(0), *scraped(4, **other)]
    with PrometheusApi(twice) as api:
        source = source_of(api, selector={})
        for own in (None, lambda listed: listed.keys()):
            found = source.collect(T0, T0 + MINUTE, own)
            assert found.scrapes["instance"].to_list() == [name] * 6
            assert len(found.targets) == 1
            assert "scraped more than once" in found.problems[0].reason
        source.close()


def test_a_pod_reborn_within_one_answer_is_the_new_one() -> None:
    """Old and new pod are both in the answer of the tick between them; `b:1` lives on."""
    held = server("a:1", scrapes=9, pod="old", node="n") + server("b:1", scrapes=12, pod="b")
    held += server("a:1", first=10, scrapes=8, pod="new", node="n")
    found = minutes(held, 3)
    pods = [{key.instance: t.labels.get("pod") for key, t in f.targets.items()} for f in found]
    assert pods == [{"a:1": "old", "b:1": "b"}, {"a:1": "new", "b:1": "b"}, {"a:1": "new"}]
    assert found[1].problems == ()


def test_a_partial_answer_about_up_says_nothing_of_who_left() -> None:
    with PrometheusApi(server("a:1", scrapes=12) + server("b:1")) as api:
        source = source_of(api)
        source.collect(T0, T0 + MINUTE)
        api.warnings = ["store-1 did not answer"]
        found = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
        api.warnings = []
        then = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
        source.close()
    assert found.silent == "Partial: store-1 did not answer"
    assert names(found) == {"a:1", "b:1"}
    assert found.scrapes["instance"].unique().to_list() == ["a:1"]
    assert (names(then), then.silent) == ({"a:1"}, None)


# --- one batch's own targets

# what a regular expression, or its text in a question, could take for something else
ODD = ("a.b:1", "axb:1", "a|b:1", 'q"uote:1', "back\\slash:1", "plus+(1)[2]{3}$^:1", "blank -:1")


def of(wanted: Callable[[Target], bool]) -> Callable[..., Collection[TargetKey]]:
    return lambda listed: [key for key, target in listed.items() if wanted(target)]


def test_questions_are_short_enough_for_every_database() -> None:
    assert narrowed({"job": ["vllm"]}, ["a:1"]) == ['job="vllm",instance="a:1"']
    assert narrowed({"job": ["vllm"]}, ["a.b:1", "c:1"]) == ['job="vllm",instance=~"a\\\\.b:1|c:1"']
    own = {f"10.1.{i // 250}.{i % 250}:8000" for i in range(2500)}
    texts = narrowed({"job": ["vllm"]}, own)
    assert 3 < len(texts) < 12
    assert max(len(text.encode()) for text in texts) < MOST_BYTES + 100
    assert sum(text.count(":8000") for text in texts) == len(own)


@pytest.fixture(scope="module")
def prometheus(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    """Servers with odd names; one of them is down for a while."""
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)
    blocks = tmp_path_factory.mktemp("blocks")
    page = (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()
    for number, name in enumerate(ODD):
        labels = {**JOB, "instance": name}
        at = [T0.timestamp() + 3 + number + 15 * scrape for scrape in range(8)]
        down = number == 4
        own = page.replace("1.7952248941790836e+09", f"{1_795_224_894 + number}")
        pages = [(one, None if down and scrape > 3 else own) for scrape, one in enumerate(at)]
        backfill(pages, labels, blocks)
    with PrometheusServer(blocks=blocks) as running:
        yield running


@pytest.mark.prometheus
def test_parts_together_are_what_is_read_at_once(prometheus: PrometheusServer) -> None:
    parts: list[Callable[[Target], bool]] = [
        lambda target: target.key.instance in ODD[::2],
        lambda target: target.key.instance not in ODD[::2],
    ]
    sources = [PrometheusSource(PrometheusAsker(prometheus.url), selector=JOB) for _ in range(3)]
    for minute in range(2):
        span = (T0 + minute * MINUTE, T0 + (minute + 1) * MINUTE)
        whole = sources[0].collect(*span)
        halves = [
            source.collect(*span, of(part)) for source, part in zip(sources[1:], parts, strict=True)
        ]
        assert len(whole.scrapes) == 4 * len(ODD)
        assert 0 < len(halves[0].scrapes) < len(whole.scrapes)
        both = pl.concat([half.scrapes for half in halves]).sort("instance", "engine", "time")
        assert_frame_equal(both, whole.scrapes)
        for half in halves:
            assert (half.targets, half.problems) == (whole.targets, whole.problems)
    assert whole.scrapes.filter(~pl.col("ok"))["instance"].unique().to_list() == [ODD[4]]
    for source in sources:
        source.close()


def test_only_two_questions_are_about_the_whole_fleet_and_without_the_list_nobody_is_known() -> (
    None
):
    with PrometheusApi([*server("a:1", scrapes=12), *server("b:1", scrapes=12)]) as api:
        source = source_of(api)
        own = of(lambda target: target.key.instance == "a:1")
        found = source.collect(T0, T0 + MINUTE, own)
        texts = [one["query"] for one in api.queries]
        api.faults.append(("num_requests_running", Answer(503, "busy")))
        lost = source.collect(T0 + MINUTE, T0 + timedelta(minutes=2), own)
        source.close()
    assert set(found.scrapes["instance"]) == {"a:1"}
    wide = [text for text in texts if "instance=" not in text and text.endswith("ms]")]
    assert len(wide) == 2 and wide[0] == 'up{job="vllm"}[60000ms]'
    assert wide[1].startswith('{__name__=~"vllm:num_requests_running|')
    assert len(texts) > 10
    assert lost.silent is not None and "503" in lost.silent
    assert set(lost.scrapes["instance"]) == {"a:1", "b:1"}
    assert not lost.scrapes["ok"].any()

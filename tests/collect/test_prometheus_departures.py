"""Targets that come and go, are reborn, or of which nothing is said: who is listed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
JOB = {"job": "vllm"}


def server(instance: str, first: int = 0, scrapes: int = 6, **labels: str) -> list[Series]:
    """An engine that is scraped every 10 s, from the ``first`` scrape on."""
    at = [T0.timestamp() + 10 * i for i in range(first, first + scrapes)]
    common = {"instance": instance, **JOB, **{k: v for k, v in labels.items() if k != "model_name"}}
    model = {"model_name": labels.get("model_name", "m"), "engine": "0"}
    named = "vllm:num_requests_running"
    return [
        Series({"__name__": "up", **common}, [(t, "1") for t in at], 10),
        Series({"__name__": named, **model, **common}, [(t, "3") for t in at], 10),
        *(
            Series(
                {"__name__": f"vllm:request_prompt_tokens_{part}", **model, **common, **le},
                [(t, "5") for t in at],
                10,
            )
            for part, le in (("bucket", {"le": "+Inf"}), ("sum", {}), ("count", {}))
        ),
    ]


def collected(held: Sequence[Series], minutes: int = 2) -> list[Collected]:
    with PrometheusApi(held) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        found = [source.collect(T0 + i * MINUTE, T0 + (i + 1) * MINUTE) for i in range(minutes)]
        source.close()
    return found


def instances(found: Collected) -> set[str]:
    return {key.instance for key in found.targets}


def test_one_twenty_one() -> None:
    held = server("a:1", scrapes=18)
    for i in range(19):
        held += server(f"b-{i}:1", first=6)
    one, many, last = collected(held, 3)
    assert [len(instances(f)) for f in (one, many, last)] == [1, 20, 1]
    assert [f.scrapes.height for f in (one, many, last)] == [6, 120, 6]
    assert [f.silent for f in (one, many, last)] == [None] * 3
    assert all(f.scrapes["ok"].all() and f.problems == () for f in (one, many, last))


def test_a_pod_reborn_under_the_same_address() -> None:
    held = server("a:1", pod="old") + server("a:1", first=6, pod="new")
    before, after = collected(held)
    (old,), (new,) = before.targets.values(), after.targets.values()
    assert old.key == new.key
    assert (old.labels["pod"], new.labels["pod"]) == ("old", "new")
    assert after.scrapes["running_requests"].to_list() == [3] * 6
    assert after.problems == ()


def test_a_server_that_serves_another_model() -> None:
    held = server("a:1", model_name="one") + server("a:1", first=6, model_name="two")[1:]
    held[0] = Series(held[0].labels, [(T0.timestamp() + 10 * i, "1") for i in range(12)], 10)
    before, after = collected(held)
    assert before.scrapes["model_name"].unique().to_list() == ["one"]
    assert after.scrapes["model_name"].unique().to_list() == ["two"]
    assert [t.labels["model_name"] for t in after.targets.values()] == ["two"]


@pytest.mark.parametrize("part", ["up{", "vllm:"])
def test_where_nothing_is_answered_nothing_is_said_of_who_left(part: str) -> None:
    with PrometheusApi(server("a:1", scrapes=12)) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        assert source.collect(T0, T0 + MINUTE).silent is None
        api.faults = [(part, Answer(503))]
        found = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
        source.close()
    assert found.silent == "Unavailable: answers 503"
    assert instances(found) == {"a:1"}
    assert not found.scrapes["ok"].any()


def test_a_partial_answer_about_up_says_nothing_of_who_left() -> None:
    with PrometheusApi(server("a:1", scrapes=12) + server("b:1")) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        source.collect(T0, T0 + MINUTE)
        api.warnings = ["store-1 did not answer"]
        found = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
        api.warnings = []
        then = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
        source.close()
    assert found.silent == "Partial: store-1 did not answer"
    assert instances(found) == {"a:1", "b:1"}
    assert found.scrapes["instance"].unique().to_list() == ["a:1"]
    assert (instances(then), then.silent) == ({"a:1"}, None)


def test_an_empty_interval_says_nothing() -> None:
    with PrometheusApi([]) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        assert source.collect(T0, T0).silent == "nothing was asked"
        source.close()


def test_the_same_series_twice_is_no_number() -> None:
    running = server("a:1")[1]
    other = Series(running.labels, [(at, "4") for at, _ in running.points], 10)
    for twin, value in ((running, 3), (other, None)):
        (found,) = collected([*server("a:1"), twin], 1)
        assert found.scrapes["running_requests"].to_list() == [value] * 6
        told = [p.reason for p in found.problems if "is there twice at one time" in p.reason]
        assert len(told) == (0 if value else 1)
        assert found.scrapes["prompt_tokens_count"].to_list() == [5.0] * 6


def test_labels_with_all_that_hurts() -> None:
    nasty = '"quotes" \\ <!channel>\n]},{"metric": ,"values":[ é ' + "x" * 4096
    (found,) = collected(server("a:1", pod=nasty) + server("b:1", pod="y"), 1)
    assert found.problems == ()
    assert found.scrapes["running_requests"].to_list() == [3] * 12
    assert {t.labels["pod"] for t in found.targets.values()} == {nasty, "y"}


def test_a_histogram_whose_edges_change() -> None:
    name = "vllm:request_prompt_tokens_bucket"
    held = server("a:1", scrapes=12)
    for le, first in (("1.0", 0), ("2.0", 6)):
        labels = {"__name__": name, "engine": "0", "model_name": "m", "instance": "a:1", "le": le}
        at = [T0.timestamp() + 10 * i for i in range(first, first + 6)]
        held.append(Series({**labels, **JOB}, [(t, "1") for t in at], 10))
    before, after = collected(held)
    for found, edge in ((before, 1.0), (after, 2.0)):
        assert found.scrapes["prompt_tokens_edges"].to_list() == [[edge, float("inf")]] * 6
    with PrometheusApi(held) as api:  # and in the middle of one answer
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        whole = source.collect(T0, T0 + 2 * MINUTE)
        source.close()
    assert whole.scrapes.equals(pl.concat([before.scrapes, after.scrapes]))


def test_a_pod_reborn_within_one_answer_is_the_new_one() -> None:
    """Old and new pod are both in the answer of the tick between them; `b:1` lives on."""
    held = server("a:1", scrapes=9, pod="old", node="n") + server("b:1", scrapes=12, pod="b")
    held += server("a:1", first=10, scrapes=8, pod="new", node="n")
    found = collected(held, 3)
    pods = [{key.instance: t.labels.get("pod") for key, t in f.targets.items()} for f in found]
    assert pods == [{"a:1": "old", "b:1": "b"}, {"a:1": "new", "b:1": "b"}, {"a:1": "new"}]
    assert {
        t.labels["node"] for f in found for t in f.targets.values() if t.key.instance == "a:1"
    } == {"n"}
    assert found[1].problems == ()

"""Single questions to a Prometheus API, and raw samples within a budget."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.prometheus.client import PrometheusAsker, RawAsker
from driftwatch.errors import BadPage, BadQuery, Partial, SourceError, Unavailable, UsageError

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POINTS = [(T0.timestamp() + 10 * i, str(i)) for i in range(12)]
NASTY = 'a "quoted" \\back\\slash\nline'


@pytest.fixture
def api() -> Iterator[PrometheusApi]:
    held = [
        Series({"__name__": "up", "instance": "a:1", "zone": NASTY}, POINTS, 10),
        Series({"__name__": "up", "instance": "b:1"}, POINTS, 10),
        Series({"__name__": "other", "instance": "c:1"}, POINTS, 10),
    ]
    with PrometheusApi(held) as api:
        yield api


@pytest.fixture
def asker(api: PrometheusApi) -> Iterator[PrometheusAsker]:
    asker = PrometheusAsker(api.address, timeout_seconds=5)
    yield asker
    asker.close()


def test_an_instant_is_labels_and_values(api: PrometheusApi, asker: PrometheusAsker) -> None:
    assert asker.instant("up", T0 + timedelta(seconds=35)) == [
        ({"__name__": "up", "instance": "a:1", "zone": NASTY}, 3.0),
        ({"__name__": "up", "instance": "b:1"}, 3.0),
    ]
    assert asker.instant("up", T0 - timedelta(days=1)) == []
    assert {r.path for r in api.requests} == {"/api/v1/query"}


def test_answers_are_not_asked_to_be_packed(api: PrometheusApi, asker: PrometheusAsker) -> None:
    """Packing takes Prometheus longer than sending it as it is."""
    asker.instant("up", T0)
    asker.label_values("__name__")
    assert {request.headers["accept-encoding"] for request in api.requests} == {"identity"}


def test_the_values_of_a_label(asker: PrometheusAsker) -> None:
    assert asker.label_values("__name__") == ["other", "up"]
    assert asker.label_values("instance", ["up"]) == ["a:1", "b:1"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(200, '{"status":"success","data":{"resultType":"scalar","result":[0]}}'), BadPage),
        (
            Answer(
                200,
                '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1]}]}}',
            ),
            BadPage,
        ),
        (Answer(503), Unavailable),
        (Answer(422, '{"status":"error","errorType":"execution","error":"x"}'), BadQuery),
    ],
)
def test_an_instant_that_fails_says_how(
    api: PrometheusApi, asker: PrometheusAsker, answer: Answer, kind: type[Exception]
) -> None:
    api.planned.append(answer)
    with pytest.raises(kind):
        asker.instant("up", T0)


def test_samples_come_as_they_were_scraped(api: PrometheusApi, asker: PrometheusAsker) -> None:
    start = round(T0.timestamp() * 1000)
    raw = RawAsker(asker, budget_seconds=5)
    errors: list[SourceError] = []
    (found,) = raw.pieces(["up"], start + 10_000, start + 59_999, errors)
    assert errors == []
    assert found.value.tolist() == [1, 2, 3, 4, 5] * 2
    assert found.series.tolist() == [0] * 5 + [1] * 5
    assert (found.time[:5] // 1000 - start).tolist() == [10_000, 20_000, 30_000, 40_000, 50_000]
    assert [labels["instance"] for labels in found.labels] == ["a:1", "b:1"]
    api.warnings = ["store-1 did not answer"]
    (found,) = raw.pieces(["up"], start, start, errors)
    assert [type(e) for e in errors] == [Partial]
    assert found.value.tolist() == [0, 0]


def test_options_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="the time-out must be at least 1 ms"):
        PrometheusAsker("http://h", timeout_seconds=0)
    with pytest.raises(UsageError, match="not both"):
        PrometheusAsker("http://h", bearer_token="t", basic_auth=("u", "p"))
    with pytest.raises(UsageError, match="address"):
        PrometheusAsker("ftp://h")

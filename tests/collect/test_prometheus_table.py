"""One table and the same problems, in whatever order the API names its series."""

from __future__ import annotations

from random import Random

import pytest
from fakes.prometheus_api import PrometheusApi, Series
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected
from tests.collect.test_prometheus_departures import JOB, MINUTE, T0, server

ODD = st.sampled_from(["", "NaN", "-1", "+Inf", "7"])


@st.composite
def fleets(draw: st.DrawFn) -> list[Series]:
    """Servers that are mostly whole, some that begin late, are told twice or have odd numbers."""
    held: list[Series] = []
    for number in range(draw(st.integers(1, 4))):
        first = draw(st.sampled_from([0, 0, 0, 3]))
        instance = f"b-{number}:1"
        held += server(instance, first=first, scrapes=6 - first)
        if draw(st.integers(0, 4)) == 0:  # of another scrape, at the same time
            held += server(instance, pod="other")[1:]
        for reason in draw(st.lists(st.sampled_from(["stop", "length", "abort"]), unique=True)):
            name = "vllm:request_success_total"
            labels = {"__name__": name, "instance": instance, "engine": "0", **JOB}
            points = [(T0.timestamp() + 10 * i, str(i)) for i in range(6)]
            held.append(Series({**labels, "finished_reason": reason}, points, 10))
    odd, which = draw(ODD), draw(st.integers(0, len(held) - 1))
    if odd and held[which].labels["__name__"] != "up":
        points = [(at, odd if i == 1 else v) for i, (at, v) in enumerate(held[which].points)]
        held[which] = Series(held[which].labels, points, 10)
    if draw(st.booleans()):
        del held[draw(st.integers(0, len(held) - 1))]
    return held


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(fleets(), st.randoms(use_true_random=False))
def test_the_order_of_the_series_never_shows(held: list[Series], random: Random) -> None:
    shuffled = random.sample(held, len(held))
    answers: list[Collected] = []
    for series in (held, shuffled):
        with PrometheusApi(series) as api:
            source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
            answers.append(source.collect(T0, T0 + MINUTE))
            source.close()
    one, other = answers
    assert_frame_equal(one.scrapes, other.scrapes, check_exact=True)
    assert one.targets == other.targets
    assert one.problems == other.problems


@pytest.mark.parametrize(
    "note",
    ["{x}", '],["values":[[', '"values":[[1,"2"]]}', "a\\\nb\x1f\t", "\u00e9{\u2028}", "]]}"],
)
def test_labels_that_look_like_an_answer_are_labels(note: str) -> None:
    plain = [*server("a:1"), *server("b:1")]
    odd = [Series({**one.labels, "note": note}, one.points, 10) for one in plain]
    answers: list[Collected] = []
    for series in (plain, odd, [*plain[: len(plain) // 2], *odd[len(plain) // 2 :]]):
        with PrometheusApi(series) as api:
            source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
            for minute in range(2):  # as new series, and as known ones
                answers.append(source.collect(T0, T0 + MINUTE))
                assert answers[-1].problems == (), minute
            source.close()
    for one in answers[1:]:
        assert_frame_equal(one.scrapes, answers[0].scrapes, check_exact=True)

"""An API that misbehaves: nothing hangs, nothing is invented, the other queries' columns stay."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series, refused
from fault_cases import JOB, MINUTE, T0, collected, series, source_of

from driftwatch.collect.http_session import Bounds
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.session import PrometheusSession
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.errors import (
    AuthFailed,
    BadPage,
    BadQuery,
    SourceError,
    TooExpensive,
    Unavailable,
)


@pytest.fixture
def api() -> Iterator[PrometheusApi]:
    held = [
        Series({"__name__": "up", "instance": "a:1", **JOB}, series("up").points, 10),
        series("vllm:num_requests_running"),
        series("vllm:generation_tokens_total", 100),
        series("vllm:generation_tokens_created", 5),
    ]
    with PrometheusApi(held) as api:
        yield api


HTML = Answer(200, "<html><title>Sign in</title></html>", {"Content-Type": "text/html"})
REDIRECT = Answer(302, "", {"Location": "http://elsewhere.invalid/login"})
CUT = Answer(200, '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__na')
VECTOR = Answer(200, '{"status":"success","data":{"resultType":"vector","result":[]}}')
MALFORMED = json.dumps(
    {
        "status": "success",
        "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1]]}]},
    }
)

FAULTS = [
    (Answer(401, "Unauthorized"), AuthFailed, "answers 401"),
    (refused("parse error: unexpected end"), BadQuery, "answers 400: bad_data: parse error"),
    (refused("query processing would load too many samples", 422), TooExpensive, "too many"),
    (Answer(503, "<html>nginx</html>"), Unavailable, "answers 503"),
    (refused("query timed out in expression evaluation", 503), TooExpensive, "timed out"),
    (Answer(404, "404 page not found"), BadPage, "is this the address of a Prometheus API"),
    (HTML, BadPage, "it starts with '<html>"),
    (REDIRECT, BadPage, "a redirect to http://elsewhere.invalid/login, which is not followed"),
    (CUT, BadPage, "no JSON from Prometheus, or cut off"),
    (VECTOR, BadPage, "resultType 'vector'"),
    (Answer(200, '{"status":"success","data":null}'), BadPage, "no data.result"),
]


@pytest.mark.parametrize(("answer", "kind", "words"), FAULTS)
def test_a_query_that_fails_loses_its_column_only(
    api: PrometheusApi, answer: Answer, kind: type[SourceError], words: str
) -> None:
    api.faults = [("time_to_first_token", answer)]
    found = collected(api)
    rows = found.scrapes
    assert rows["ok"].to_list() == [True] * 6
    assert rows["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert rows["ttft_seconds_count"].null_count() == 6
    (problem,) = found.problems
    assert problem.where == "vllm:time_to_first_token_seconds_bucket"
    assert problem.reason.startswith(f"{kind.__name__}: ")
    assert words in problem.reason
    (reason,) = rows["reason"].unique()
    assert reason == f"ttft_seconds not read ({problem.reason})"


@pytest.mark.parametrize(("answer", "kind", "words"), FAULTS[::4])
def test_without_up_every_known_target_is_unknown_not_idle(
    api: PrometheusApi, answer: Answer, kind: type[SourceError], words: str
) -> None:
    source = source_of(api)
    assert source.collect(T0, T0 + MINUTE).scrapes.height == 6
    api.faults = [("up{", answer)]
    found = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
    source.close()
    (row,) = found.scrapes.to_dicts()
    assert (row["instance"], row["engine"], row["ok"]) == ("a:1", "0", False)
    assert T0 + MINUTE <= row["time"] < T0 + 2 * MINUTE
    assert kind.__name__ in row["reason"]
    assert words in row["reason"]
    assert row["running_requests"] is None
    assert list(found.targets) == [("a:1", "0")]
    assert [p.where for p in found.problems] == ['up{job="vllm"}']


def test_when_all_metrics_fail_no_server_is_said_to_have_its_stats_disabled(
    api: PrometheusApi,
) -> None:
    source = source_of(api)
    source.collect(T0, T0 + MINUTE)
    api.faults = [("vllm:", Answer(503, ""))]
    found = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
    source.close()
    (row,) = found.scrapes.to_dicts()
    assert not row["ok"]
    assert "Unavailable: answers 503" in row["reason"]


def test_a_malformed_series_is_a_bad_page(api: PrometheusApi) -> None:
    api.faults = [("time_to_first_token", Answer(200, MALFORMED))]
    found = collected(api)
    assert found.scrapes["running_requests"].null_count() == 0
    assert [p.reason for p in found.problems] == [
        "BadPage: a series of the answer is malformed (ValueError)"
    ]


def test_warnings_make_an_answer_partial_and_keep_it(api: PrometheusApi) -> None:
    api.warnings = ["store-1 did not answer"]
    found = collected(api)
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert len(found.problems) == sum("ms]" in one["query"] for one in api.queries)
    assert {p.reason for p in found.problems} == {"Partial: store-1 did not answer"}


@pytest.mark.parametrize("drip", ["headers", "body"])
def test_an_answer_that_drips_is_ended(api: PrometheusApi, drip: str) -> None:
    source = source_of(api, timeout_seconds=0.3)
    api.drip = drip  # type: ignore[assignment]
    found = source.collect(T0, T0 + MINUTE)
    source.close()
    assert found.scrapes.is_empty()
    assert [p.reason for p in found.problems] == ["Unavailable: no complete answer within 0.3 s"]


def test_an_answer_that_never_comes_is_ended_and_the_rest_is_asked(api: PrometheusApi) -> None:
    api.faults = [("time_to_first_token", Answer(0, hang=True))]
    found = collected(api, timeout_seconds=0.3)
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    (problem,) = found.problems
    assert problem.reason == "Unavailable: no complete answer within 0.3 s"


def test_the_budget_ends_a_collect_of_hanging_queries(api: PrometheusApi) -> None:
    api.faults = [("vllm:", Answer(0, hang=True))]
    source = source_of(api, timeout_seconds=0.2, budget_seconds=0.4)
    found = source.collect(T0, T0 + MINUTE)
    source.close()
    unasked = [p for p in found.problems if "not asked: the 0.4 s for all queries" in p.reason]
    assert unasked
    assert len(found.problems) > len(unasked)


def test_an_answer_over_the_byte_limit_is_not_read(api: PrometheusApi) -> None:
    session = PrometheusSession(Bounds(body_bytes=30 * 2**20 - 1))
    url = f"{api.address}/api/v1/query_range"
    asked = {"query": "up", "start": "0", "end": "1", "step": "1"}
    for headers in ({}, {"Content-Encoding": "identity"}):
        api.planned.append(Answer(200, " " * (30 * 2**20), headers))
        with pytest.raises(TooExpensive, match=f"{30 * 2**20} bytes, more than"):
            session.request("POST", url, params=asked)
    session.close()


def test_what_is_too_much_at_once_is_asked_in_halves(api: PrometheusApi) -> None:
    class Small(PrometheusApi):
        def judge(self, request: object) -> Answer:
            answer = api.judge(request)  # type: ignore[arg-type]
            asked = api.queries[-1]
            seconds = int(asked["query"].rpartition("[")[2][:-3]) / 1000
            return (
                answer if seconds < 25 else refused("query processing would load too many samples")
            )

    with Small([]) as small:
        found = collected(small)
    assert found.problems == ()
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]


def test_parameters_of_a_post_are_in_its_body_only(api: PrometheusApi) -> None:
    collected(api)
    assert {r.path for r in api.requests if r.method == "POST"} == {"/api/v1/query"}
    first = api.queries[0]
    assert first["query"] == 'up{job="vllm"}[60000ms]'
    assert float(first["time"]) == T0.timestamp() + 59.999
    assert first["timeout"] == "5000ms"


def test_a_server_without_post_is_asked_by_get(api: PrometheusApi) -> None:
    api.posts = False
    found = collected(api)
    assert found.problems == ()
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert [r.method for r in api.requests[:3]] == ["POST", "GET", "GET"]


def test_no_retries_and_no_redirects(api: PrometheusApi) -> None:
    api.faults = [("up{", Answer(503, ""))]
    collected(api)
    assert len(api.requests) == 1
    api.faults = [("up{", Answer(307, "", {"Location": f"{api.address}/elsewhere"}))]
    collected(api)
    assert len(api.requests) == 2


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"bearer_token": "canary"}, "Bearer canary"),
        (
            {"basic_auth": ("user", "canary")},
            "Basic " + base64.b64encode(b"user:canary").decode(),
        ),
        ({"headers": {"Authorization": "Bearer canary"}}, "Bearer canary"),
    ],
)
def test_credentials_are_sent_and_never_told(options: dict[str, object], header: str) -> None:
    held = [series("up"), series("vllm:num_requests_running")]
    for wanted in (header, "Bearer other"):
        with PrometheusApi(held, authorization=wanted) as api:
            asker = PrometheusAsker(api.address, **options)  # type: ignore[arg-type]
            source = PrometheusSource(asker, selector=JOB)
            found = source.collect(T0, T0 + MINUTE)
            source.close()
        assert ("AuthFailed" in str(found.problems)) == (wanted != header)
        assert "canary" not in str(found) + repr(source.name)


def test_the_environment_does_not_reach_the_session(
    api: PrometheusApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert collected(api).problems == ()


def test_an_api_without_range_selectors_says_what_to_give() -> None:
    body = '{"status":"error","errorType":"bad_data","error":"range vector is not supported"}'
    with PrometheusApi([]) as api:
        api.faults = [("up", Answer(422, body))]
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        found = source.collect(T0, T0 + MINUTE)
        source.close()
    assert "range vector is not supported; samples are asked for" in (found.silent or "")
    assert "give the address of an API that answers range selectors" in (found.silent or "")

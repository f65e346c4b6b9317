"""An API that misbehaves: nothing hangs, nothing is invented, no message holds a secret."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from api_cases import MINUTE, T0, collected, series, source_of
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series, refused

from driftwatch.clock import SystemClock
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.query import matchers
from driftwatch.collect.prometheus.session import PrometheusSession
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.errors import (
    AuthFailed,
    BadPage,
    BadQuery,
    SourceError,
    TooExpensive,
    Unavailable,
    UsageError,
)
from driftwatch.service.configuration import sources_of
from driftwatch.settings import load_settings

UP = series("up", [1] * 12)
RUNNING = series("vllm:num_requests_running", range(12), engine="0")
TOKENS = series("vllm:generation_tokens_total", range(100, 112), engine="0")
CREATED = series("vllm:generation_tokens_created", [5] * 12, engine="0")


@pytest.fixture
def api() -> Iterator[PrometheusApi]:
    with PrometheusApi([UP, RUNNING, TOKENS, CREATED]) as api:
        yield api


def success(data: str) -> Answer:
    return Answer(200, f'{{"status":"success","data":{data}}}')


FAULTS = [
    (Answer(401, "Unauthorized"), AuthFailed, "answers 401"),
    (refused("parse error: unexpected end"), BadQuery, "answers 400: bad_data: parse error"),
    (refused("query processing would load too many samples", 422), TooExpensive, "too many"),
    (Answer(503, "<html>nginx</html>"), Unavailable, "answers 503"),
    (refused("query timed out in expression evaluation", 503), TooExpensive, "timed out"),
    (Answer(404, "404 page not found"), BadPage, "is this the address of a Prometheus API"),
    (Answer(200, "<html><title>Sign in</title></html>"), BadPage, "it starts with '<html>"),
    (
        Answer(302, "", {"Location": "http://elsewhere.invalid/login"}),
        BadPage,
        "a redirect to http://elsewhere.invalid/login, which is not followed",
    ),
    (Answer(200, '{"status":"success","data":{"resu'), BadPage, "no JSON from Prometheus, or cut"),
    (success('{"resultType":"vector","result":[]}'), BadPage, "resultType 'vector'"),
    (success("null"), BadPage, "no data.result"),
    (
        success('{"resultType":"matrix","result":[{"metric":{},"values":[[1]]}]}'),
        BadPage,
        "a series of the answer is malformed",
    ),
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
@pytest.mark.parametrize("part", ["up{", "vllm:"])
def test_without_an_answer_every_known_target_is_unknown_not_idle(
    api: PrometheusApi, answer: Answer, kind: type[SourceError], words: str, part: str
) -> None:
    source = source_of(api)
    assert source.collect(T0, T0 + MINUTE).scrapes.height == 6
    api.faults = [(part, answer)]
    found = source.collect(T0 + MINUTE, T0 + 2 * MINUTE)
    source.close()
    (row,) = found.scrapes.to_dicts()
    assert (row["instance"], row["engine"], row["ok"]) == ("a:1", "0", False)
    assert T0 + MINUTE <= row["time"] < T0 + 2 * MINUTE
    assert kind.__name__ in row["reason"]
    assert words in row["reason"]
    assert row["running_requests"] is None
    assert list(found.targets) == [("a:1", "0")]


def test_the_budget_ends_a_collect_of_hanging_queries(api: PrometheusApi) -> None:
    api.faults = [("vllm:", Answer(0, hang=True))]
    found = collected(api, timeout_seconds=0.2, budget_seconds=0.4)
    unasked = [p for p in found.problems if "not asked: the time for all queries" in p.reason]
    assert unasked
    assert len(found.problems) > len(unasked)


def test_an_answer_over_the_byte_limit_is_not_read(api: PrometheusApi) -> None:
    session = PrometheusSession(Bounds(body_bytes=30 * 2**20 - 1))
    url = f"{api.address}/api/v1/query_range"
    api.planned.append(Answer(200, " " * (30 * 2**20)))
    with pytest.raises(TooExpensive, match=f"{30 * 2**20} bytes, more than"):
        session.request("POST", url, params={"query": "up"})
    session.close()


def test_what_is_too_much_at_once_is_asked_in_halves(api: PrometheusApi) -> None:
    class Small(PrometheusApi):
        def judge(self, request: object) -> Answer:
            answer = api.judge(request)  # type: ignore[arg-type]
            asked = api.queries[-1]
            seconds = int(asked["query"].rpartition("[")[2][:-3]) / 1000
            too_many = refused("query processing would load too many samples")
            return answer if seconds < 25 else too_many

    with Small([]) as small:
        found = collected(small)
    assert found.problems == ()
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]


def test_what_is_sent(api: PrometheusApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert collected(api).problems == ()
    # parameters of a POST are in its body only
    assert {r.path for r in api.requests if r.method == "POST"} == {"/api/v1/query"}
    first = api.queries[0]
    assert first["query"] == 'up{job="vllm"}[60000ms]'
    assert float(first["time"]) == T0.timestamp() + 59.999
    assert first["timeout"] == "5000ms"
    # packing takes Prometheus longer than sending it as it is
    assert {request.headers["accept-encoding"] for request in api.requests} == {"identity"}
    api.posts = False
    api.requests.clear()
    assert collected(api).scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert [r.method for r in api.requests[:3]] == ["POST", "GET", "GET"]


# --- answers of which some is missing


def answered(*held: Series, warnings: Sequence[str] = ()) -> Answer:
    """What the API says of these series."""
    result = [
        {"metric": dict(one.labels), "values": [list(pair) for pair in one.points[:6]]}
        for one in held
    ]
    data = {"resultType": "matrix", "result": result}
    return Answer(200, json.dumps({"status": "success", "data": data, "warnings": [*warnings]}))


def on(instance: str, one: Series) -> Series:
    return Series({**one.labels, "instance": instance}, one.points, 10)


@pytest.fixture
def pair() -> Iterator[PrometheusApi]:
    with PrometheusApi([on(i, s) for i in ("a:1", "b:1") for s in (UP, RUNNING, TOKENS)]) as api:
        yield api


def test_what_a_partial_answer_lacks_is_unread_not_switched_off(pair: PrometheusApi) -> None:
    warning = "store-1 did not answer"
    pair.faults = [
        (one.labels["__name__"], answered(one, warnings=[warning])) for one in (RUNNING, TOKENS)
    ]
    rows = collected(pair).scrapes
    there, lost = (rows.filter(pl.col("instance") == one) for one in ("a:1", "b:1"))
    assert there["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert there["ok"].all()
    assert there["reason"].null_count() == 6
    assert lost["ok"].to_list() == [False] * 6
    assert set(lost["reason"]) == {f"no vllm: series was read (Partial: {warning})"}


def test_native_histograms_are_named_and_the_rest_is_read(pair: PrometheusApi) -> None:
    whole = {"count": "1", "sum": "1", "buckets": []}
    native = {
        "metric": on("b:1", RUNNING).labels,
        "histograms": [[T0.timestamp() + 9.999, whole]],
    }
    answer = json.loads(answered(RUNNING).body)
    answer["data"]["result"].append(native)
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(answer, separators=separators)
        pair.faults = [("vllm:num_requests_running", Answer(200, text))]
        found = collected(pair)
        (problem,) = found.problems
        assert problem.reason == (
            'BadPage: vllm:num_requests_running{engine="0",instance="b:1",job="vllm"} in the form '
            "of a native histogram: not read"
        )
        there, lost = (found.scrapes.filter(pl.col("instance") == o) for o in ("a:1", "b:1"))
        assert there["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
        assert set(lost["reason"]) == {f"no vllm: series was read ({problem.reason})"}


# --- single questions


def test_options_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="the time-out must be at least 1 ms"):
        PrometheusAsker("http://h", timeout_seconds=0)
    with pytest.raises(UsageError, match="not both"):
        PrometheusAsker("http://h", bearer_token="t", basic_auth=("u", "p"))
    with pytest.raises(UsageError, match="address"):
        PrometheusAsker("ftp://h")
    for name in ("", "1a", 'a="b",c', "__name__"):
        with pytest.raises(UsageError, match="is not a label that targets can be selected by"):
            matchers({name: "x"})
    with pytest.raises(UsageError, match="not valid text"):
        matchers({"a": "\ud800"})


CANARY = "canary-4711"
SENT = base64.b64encode(f"user:{CANARY}".encode()).decode()

CREDENTIALS: list[dict[str, Any]] = [
    {"bearer_token": CANARY},
    {"bearer_token": lambda: CANARY},
    {"basic_auth": ("user", CANARY)},
    {"headers": {"X-Scope-OrgID": "team"}, "bearer_token": CANARY},
]
UNSENDABLE: list[dict[str, Any]] = [
    {"bearer_token": f"{CANARY}\n{CANARY}"},
    {"basic_auth": ("user", f"{CANARY}\u20ac")},
    {"headers": {"X-Scope-OrgID": f"{CANARY}\n"}},
]
SAYS = f"bad credentials 'Bearer {CANARY}', 'Basic {SENT}'"
ANSWERS = [
    Answer(401, json.dumps({"status": "error", "errorType": "auth", "error": SAYS})),
    Answer(503, json.dumps({"status": "error", "errorType": "auth", "error": SAYS})),
    refused(SAYS),
    refused(f"query timed out: {SAYS}", 422),
    Answer(302, "", {"Location": f"http://user:{CANARY}@elsewhere.invalid/"}),
    Answer(200, f"{CANARY} is not JSON"),
    Answer(200, '{"status":"success","data":{"resultType":"' + CANARY + '","result":[]}}'),
    Answer(0, hang=True),
]


def _told(error: BaseException) -> str:
    """All that a log shows of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


def _refusal(address: str, options: Mapping[str, Any]) -> SourceError:
    asker = PrometheusAsker(address, timeout_seconds=0.5, **options)
    with pytest.raises(SourceError) as caught:
        asker.instant("up", T0)
    asker.close()
    return caught.value


@pytest.mark.parametrize("options", UNSENDABLE, ids=repr)
def test_what_cannot_be_sent_is_named_and_not_shown(options: dict[str, Any]) -> None:
    with PrometheusApi([]) as api:
        error = _refusal(api.address, options)
        assert api.requests == []
    assert type(error) is Unavailable
    assert "credentials or a header cannot be sent" in error.message
    assert CANARY not in _told(error)


@pytest.mark.parametrize(
    ("options", "answer"),
    list(zip(CREDENTIALS * 2, ANSWERS, strict=True)),
    ids=lambda one: one.status if isinstance(one, Answer) else " ".join(one),
)
def test_what_a_server_says_of_them_is_not_told(options: dict[str, Any], answer: Answer) -> None:
    with PrometheusApi([]) as api:
        api.faults = [("up", answer)]
        error = _refusal(api.address, options)
        assert api.queries
    assert CANARY not in _told(error)
    assert "basic_auth" not in options or SENT not in _told(error)


def test_a_long_token_that_was_cut_short_is_not_told_either() -> None:
    token = "".join(f"{number:04d}" for number in range(250))
    with PrometheusApi([]) as api:
        api.faults = [("up", refused(f"no such token: {token}"))]
        error = _refusal(api.address, {"bearer_token": token})
    assert error.message == "answers 400: bad_data: no such token: <secret>"


HELD = [Series({"__name__": "up", "instance": "a:1"}, [(T0.timestamp(), "1")], 10)]


def certificate(folder: Path) -> tuple[Path, Path]:
    """An authority that signs itself, for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder.mkdir()
    key, cert = folder / "key.pem", folder / "ca.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, cert


def test_only_the_authority_that_is_named_is_believed(tmp_path: Path) -> None:
    key, cert = certificate(tmp_path / "ours")
    _, other = certificate(tmp_path / "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    api = PrometheusApi(HELD)
    api._http.socket = context.wrap_socket(api._http.socket, server_side=True)
    with api:
        url = api.address.replace("http://", "https://")
        asker = PrometheusAsker(url, verify=str(cert), headers={"X-Scope-OrgID": "team"})
        assert asker.instant("up", T0) == [(dict(HELD[0].labels), 1.0)]
        asker.close()
        assert api.requests[0].headers["x-scope-orgid"] == "team"
        for verify in (True, str(other)):
            asker = PrometheusAsker(url, verify=verify)
            with pytest.raises(Unavailable, match=r"(?i)certificate"):
                asker.instant("up", T0)
            asker.close()
    assert len(api.requests) == 1


def test_a_token_that_rotates_and_one_that_is_lost(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with PrometheusApi(HELD) as api:
        config = tmp_path / "driftwatch.yaml"
        config.write_text(
            f"sources: [{{prometheus: '{api.address}', bearer_token_file: token, tenant: team}}]\n"
        )
        sources = sources_of(load_settings(config), SystemClock())
        source = next(one for one in sources if isinstance(one, PrometheusSource))
        asker = source._asker
        asker.instant("up", T0)
        token.write_text("second\n")
        asker.instant("up", T0)
        token.unlink()
        with pytest.raises(AuthFailed, match="token"):
            asker.instant("up", T0)
        for one in sources:
            one.close()
    assert [r.headers["authorization"] for r in api.requests] == ["Bearer first", "Bearer second"]
    assert {r.headers["x-scope-orgid"] for r in api.requests} == {"team"}

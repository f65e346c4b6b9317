"""The past of a Prometheus-compatible API, replayed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from command_cases import Run
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series
from replayed_rows import replayed_rows

from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def held() -> list[Series]:
    """Three busy servers, a scrape each minute for four hours."""
    found = []
    for number in range(3):
        labels = {"instance": f"s-{number}:1", "job": f"vllm-{number}"}
        times = [T0.timestamp() + 60 * i for i in range(240)]
        up = {"__name__": "up", **labels}
        found.append(Series(up, [(at, "1") for at in times], 60))
        for name, start, each in (
            ("vllm:num_requests_running", 3, 0),
            ("vllm:generation_tokens_total", 100, 6000),
        ):
            of_engine = {"__name__": name, "engine": "0", "model_name": "m", **labels}
            points = [(at, str(start + each * i)) for i, at in enumerate(times)]
            found.append(Series(of_engine, points, 60))
    return found


def span(first: int, last: int) -> tuple[str, ...]:
    said = [(T0 + timedelta(minutes=m)).isoformat() for m in (first, last)]
    return ("--from", said[0], "--to", said[1])


@pytest.fixture
def api() -> Iterator[PrometheusApi]:
    with PrometheusApi(held()) as served:
        yield served


def test_replay_takes_several_matches(run: Run, api: PrometheusApi) -> None:
    with replayed_rows() as rows:
        code, _, err = run(
            *("replay", "--prometheus", api.address, *span(0, 30)),
            *("--match", "job=vllm-0", "--match", "job=vllm-1"),
        )
    assert code == 0, err
    assert sorted(rows.table["instance"].unique()) == ["s-0:1", "s-1:1"]


def test_a_database_that_disappears_is_no_servers_fault(
    run: Run, api: PrometheusApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect, asked = PrometheusSource.collect, 0

    def dying(source: PrometheusSource, since: datetime, until: datetime) -> Collected:
        nonlocal asked
        asked += 1
        api.faults = [("", Answer(503, ""))] if asked > 1 else []
        return collect(source, since, until)

    monkeypatch.setattr(PrometheusSource, "collect", dying)
    with replayed_rows() as rows:
        code, out, err = run("replay", "--prometheus", api.address, *span(0, 240), "--json")
    assert (code, out) == (1, "")
    assert "does not answer from " in err
    assert "kept: what was replayed until then: no page\n" in err
    found = re.search(r"the same command and --from (\S+)", err)
    assert found is not None
    minutes = rows.table
    assert minutes["end"].max() == datetime.fromisoformat(found[1])
    assert minutes["scrapes"].min() == 1  # no minute that the database lost is called the server's


def test_what_cannot_be_asked_together(run: Run) -> None:
    url = ("--prometheus", "http://127.0.0.1:9")
    for words, said in (
        ((*url, "--recording", "x"), "give --recording, or --prometheus URL"),
        (url, "--prometheus needs --from and --to"),
    ):
        code, _, err = run("baseline", "list", *words)
        assert (code, said in err) == (2, True), err

"""explain from a store: what is open, who is gone since when, which of many, dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from command_cases import Run
from made_incidents import of_labels, with_values
from page_cases import CASES

from driftwatch.collect.pages import PageParser
from driftwatch.collect.schema import Collected
from driftwatch.incidents.incident import Incident
from driftwatch.model import Target, TargetKey
from driftwatch.notify.headline import rendered
from driftwatch.notify.page import Page, Servers
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import State
from driftwatch.pipeline.stored_state import memory_of
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.store import Store, TickRecord

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


@pytest.fixture(scope="module")
def page(shared_data: Path) -> str:
    return (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()


def _incident(alert: str, page: str, target: dict[str, str]) -> Incident:
    at, began = NOW - timedelta(minutes=5), NOW - timedelta(minutes=6)
    values = {"id": alert[:1].lower() * 12, "rule": alert, "started_at": began}
    return of_labels(target, at, **values, page=_about(CASES[page].page(), target))


def _about(page: Page, target: dict[str, str]) -> Page:
    if "pool" in target:
        return page
    servers = Servers(concerned=1, of=1, first=(target["instance"],))
    return rendered(page.model_copy(update={"labels": target, "servers": servers}))


def _store(
    page: str,
    last: dict[str, int],
    *incidents: Incident,
    at: datetime = NOW,
) -> None:
    """Servers that were scraped each minute until so many seconds ago, all of one model."""
    parser = PageParser()
    scrapes = pl.concat(
        # each server is a process of its own
        parser.parse(
            instance,
            at - timedelta(seconds=age),
            page.replace("seconds 1.79522486889e+09", f"seconds 1.7952248{number:02}e+09").encode(),
        ).scrapes
        for number, (instance, ago) in enumerate(sorted(last.items()))
        for age in range(1500, ago - 1, -60)
    )
    targets = {
        key: Target(key, {"model_name": "rag-8b"}, "rag-8b")
        for key in (TargetKey(i, "0") for i in last)
    }
    state = State(
        evaluated_until=at,
        collected_until={"prometheus p:9090": at},
        targets=targets,
        origins=dict.fromkeys(targets, "prometheus p:9090"),
    )
    with Store.open(Path("driftwatch.db")) as store:
        listed = {key: Target(key, one.labels) for key, one in targets.items()}
        given = TickInput({"fleet": Collected(scrapes, listed)}, at)
        _, outcome = evaluate(State(), given, plan_of_rules(()), store)
        store.commit_tick(
            TickRecord(
                incidents=incidents,
                minutes=outcome.minutes,
                until=at + timedelta(seconds=1),
                memory=memory_of(state),
            )
        )


def test_an_incident_is_explained_by_its_server(run: Run, page: str) -> None:
    of_b = _incident("GpuLost", "gpu_lost", {"instance": "b:1", "engine": "0"})
    lost = with_values(of_b, id="3f9c1a7be204")
    _store(page, {"a:1": 0, "b:1": 0}, lost)
    code, out, _ = run("explain", lost.id)
    assert code == 0
    assert "Server " not in out
    of_pool = run("explain", "rag-8b")[1]
    assert (
        of_pool.startswith("FIRING b:1") and "\nServer   a:1: no limit full; 0 running" in of_pool
    )
    assert out.startswith("FIRING b:1: 1 GPU lost. Take it out of rotation")
    assert out.endswith(f"next:    driftwatch ack {lost.id}\n")
    assert run("ack", lost.id, "--by", "ana")[0] == 0
    # of a rule without a tree, in a configuration that names none
    Path("driftwatch.yaml").write_text("rules: [mine.yaml]")
    rule = "{alert: GpuLost, when: restarted, severity: page, annotations: {summary: lost}}"
    Path("mine.yaml").write_text(f"groups: [{{name: mine, rules: [{rule}]}}]")
    _, out, _ = run("explain", lost.id)
    assert out.startswith("ACKNOWLEDGED by ana ") and "· b:1: 1 GPU lost" in out
    assert out.endswith(f"next:    driftwatch incidents {lost.id}\n")


def test_a_past_moment_begins_with_its_last_page(run: Run, page: str) -> None:
    open_ = _incident("GpuLost", "gpu_lost", {"instance": "a:1", "engine": "0"})
    open_ = with_values(open_, id="3f9c1a7be204")
    assert open_.page is not None
    made = {"evaluated_at": NOW - timedelta(minutes=15)}
    first = open_.page.model_copy(update={"times": open_.page.times.model_copy(update=made)})
    over = rendered(open_.page.model_copy(update={"event": "resolved"}))
    (own,) = open_.servers
    joined = {"instance": "b:1", "since": NOW - timedelta(minutes=4)}
    servers = (own, own.model_copy(update=joined))
    ended = {"resolved_at": NOW - timedelta(minutes=1), "page": over, "servers": servers}
    # what a notice said long ago is no answer of now
    drift = _incident("LengthDrift", "drift", {"instance": "a:1", "engine": "0"})
    assert drift.page is not None
    drift = with_values(drift.with_message(drift.page), severity="notice")
    _store(page, {"a:1": 0}, with_values(open_.with_message(first), **ended), drift)
    for minutes, begins in ((3, first.summary), (0, "No latency target"), (8, "No latency target")):
        at = (NOW - timedelta(minutes=minutes)).isoformat()
        out = run("explain", "a:1", "--at", at)[1]
        assert out.startswith(begins)
        # facts older than ten minutes have their time
        told = ("Page     made 11:45 UTC", "Cause    11:45 UTC: ")
        assert [one in out for one in told] == [minutes == 3] * 2
        assert "NOTICE" not in out
        assert ("LengthDrift, notice, since 11:54 UTC on a:1; its last" in out) == (minutes < 5)
    _, out, _ = run("incidents", "3f9c")
    assert "11:56:00Z  true on b:1" in out


def test_a_target_that_is_gone_says_since_when_and_what_is_open(run: Run, page: str) -> None:
    lost = _incident("CoverageLost", "coverage_pool", {"instance": "b:1", "pool": "rag-8b"})
    _store(page, {"a:1": 0, "b:1": 240, "c:1": 1200}, lost)
    code, out, _ = run("explain", "b:1")
    first, *_ = rows = out.splitlines()
    assert first.startswith("TICKET rag-8b, 7 of 8: 3 metrics missing")
    assert "NO DATA b:1: last scraped 11:57 UTC; not scraped by fleet since" in rows
    assert any(row.startswith("b:1: model rag-8b") for row in rows)
    code, out, err = run("explain", "c:1")
    assert code == 4
    # the incident is about another server
    assert out == "NO VERDICT: c:1: last scraped 11:41 UTC; not scraped by fleet since\n"
    assert err.startswith("help: its minutes reach from 11:35 UTC to ")


def test_many_candidates_are_all_named_in_a_pipe(run: Run, page: str) -> None:
    _store(page, {f"s{n:02}:1": 1500 for n in range(11)})
    code, _, err = run("explain", "rag-8c")
    assert code == 2
    assert "no server and no pool is called 'rag-8c'" in err and "did you mean rag-8b?" in err
    assert all(f"s{n:02}:1" in err for n in range(11))
    code, out, _ = run("explain", "rag-8b")  # nobody of the pool was scraped in the window
    assert code == 4 and out.startswith("NO VERDICT: s00:1: last scraped ")

"""Debian's Prometheus and vmagent write what they scrape; the rows are those of the API."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from driftwatch.cli.remote_write import command
from driftwatch.clock import SystemClock
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.remote_write.source import RemoteWriteSource
from driftwatch.testing.exposition_server import Page, ReplayedExposition, read_pages
from driftwatch.testing.prometheus_server import PrometheusServer, scrape_config

pytestmark = pytest.mark.usefixtures("real_prometheus")
JOB = {"job": "vllm"}


@pytest.fixture(scope="module")
def pages(shared_data: Path) -> list[Page]:
    return read_pages(shared_data / "vllm-0.32/run_main/scrapes.jsonl.gz")


def test_rows_of_remote_write_are_those_of_the_api(pages: list[Page]) -> None:
    """One server is down for a while, one never answers, one is of another job."""
    held = [pages[40], (pages[41][0], None), *pages[42:60]]
    moment = [pages[40][0]]
    source = RemoteWriteSource(("127.0.0.1", 0), SystemClock(), selector=JOB)
    host, port = source.receiver.address
    with (
        ReplayedExposition(held, clock=lambda: moment[0], when_down="drop") as one,
        ReplayedExposition(pages[60:], speed=5) as other,
    ):
        config = scrape_config(
            {"vllm": [one.instance, other.instance, "127.0.0.1:1"], "node": [other.instance]}
        )
        config["remote_write"] = [
            {
                "url": f"http://{host}:{port}/api/v1/write",
                "queue_config": {"batch_send_deadline": "1s"},
            }
        ]
        with PrometheusServer(config) as server:
            began = datetime.now(UTC)
            time.sleep(4)
            for page in held[1:]:
                moment[0] = page[0]
                time.sleep(2 if page[1] is None else 0.3)
            time.sleep(3)
            until = datetime.now(UTC) - timedelta(seconds=3)
            middle = began + (until - began) / 2
            written = [source.collect(began, middle), source.collect(middle, until)]
            api = PrometheusSource(PrometheusAsker(server.url), selector=JOB, step_seconds=0.25)
            asked = [api.collect(began, middle), api.collect(middle, until)]
            api.close()
    source.close()
    assert source.receiver.requests.keys() == {204}
    ours, theirs = (pl.concat([c.scrapes for c in both]) for both in (written, asked))
    assert ours.height > 10
    assert_frame_equal(
        ours.sort("instance", "engine", "time"), theirs.sort("instance", "engine", "time")
    )
    assert set(ours["ok"]) == {True, False}
    assert [c.targets for c in written] == [c.targets for c in asked]
    assert [c.problems for c in written] == [(), ()]


@pytest.mark.parametrize("sender", ["prometheus", "vmagent"])
def test_the_printed_section_deals_the_fleet_and_sends_only_what_is_read(
    pages: list[Page], sender: str, tmp_path: Path
) -> None:
    sources = [RemoteWriteSource(("127.0.0.1", 0), SystemClock(), selector={}) for _ in range(2)]
    urls = ["http://{}:{}/api/v1/write".format(*one.receiver.address) for one in sources]
    printed = CliRunner().invoke(command, [*urls, "--by", "instance"])
    section: list[dict[str, Any]] = yaml.safe_load(printed.output)["remote_write"]
    with ExitStack() as stack:
        servers = [stack.enter_context(ReplayedExposition(pages[60:])) for _ in range(6)]
        instances = [server.instance for server in servers]
        config = scrape_config({"vllm": instances})
        if sender == "prometheus":
            stack.enter_context(PrometheusServer({**config, "remote_write": section}))
        else:
            if shutil.which("vmagent") is None:
                pytest.skip("vmagent is not installed")
            flags = [f"-remoteWrite.tmpDataPath={tmp_path}", "-promscrape.config"]
            flags += [str(_written(tmp_path / "scrape.yml", config))]
            for number, one in enumerate(section):
                file = tmp_path / f"relabel-{number}.yml"
                relabel = _written(file, one["write_relabel_configs"])
                flags += [f"-remoteWrite.url={one['url']}"]
                flags += [f"-remoteWrite.urlRelabelConfig={relabel}"]
            log = stack.enter_context((tmp_path / "log").open("wb"))
            process = subprocess.Popen(["vmagent", "-httpListenAddr=127.0.0.1:0", *flags],
                                       stdout=log, stderr=log)  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.terminate)
        for _ in range(400):
            if sum(len(one.inbox.table.instances) for one in sources) == len(instances):
                break
            time.sleep(0.1)
        time.sleep(2)
    dealt = [set(one.inbox.table.instances) for one in sources]
    assert sorted([*dealt[0], *dealt[1]]) == sorted(instances)
    for source in sources:
        table = source.inbox.table
        assert (table.query[: table.count] >= 0).all()
        assert source.receiver.requests.keys() <= {204}
        source.close()


def _written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))  # JSON is YAML
    return path

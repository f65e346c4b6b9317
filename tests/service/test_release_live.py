"""A server that comes back as another release: seen live, over HTTP, at its restart."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polars as pl
from fakes.exposition_server import read_pages
from service_cases import shipped_plan

from driftwatch.clock import ManualClock
from driftwatch.collect.pages import PagesSource
from driftwatch.detect.baselines import Baseline
from driftwatch.model import Fingerprint
from driftwatch.pipeline.server_reports import stored_reports
from driftwatch.service.run import Service
from driftwatch.store import Store


@contextmanager
def _server(pages: list[tuple[float, str | None]], clock: ManualClock) -> Iterator[str]:
    """The recorded pages at their times; /version is another one after the restart."""
    down = next(at for at, body in pages if body is None)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name http.server calls
            now = clock.now().timestamp()
            body = [page for at, page in pages if at <= now][-1]
            if self.path.startswith("/version"):
                body = json.dumps({"version": "0.32.0" if now < down else "0.33.0"})
            elif not self.path.startswith("/metrics"):
                body = None
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


def test_an_upgrade_is_seen_at_the_restart_and_the_pin_stays(
    shared_data: Path, tmp_path: Path
) -> None:
    pages = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")
    down = datetime.fromtimestamp(next(at for at, body in pages if body is None), UTC)
    clock = ManualClock(down - timedelta(minutes=3))
    baseline = Baseline(
        id="0ld0ld00",
        scope="target",
        instance="host:8000",
        engine="0",
        pool="tiny-llama",
        since=clock.now() - timedelta(hours=24),
        until=clock.now(),
        accepted_by="ana",
        accepted_at=clock.now(),
        fingerprint=Fingerprint({"model_name": "tiny-llama"}, {}, {"vllm": "0.32.0"}),
    )
    rows = []
    with Store.open(tmp_path / "d.db") as store, _server(pages, clock) as url:
        store.add_baselines([baseline])
        source = PagesSource({url: {"instance": "host:8000"}}, clock=clock)
        service = Service([source], shipped_plan(), store, [], clock)
        while clock.now() < down + timedelta(minutes=5):
            rows.append(service.tick_once().rows)
            clock.advance(timedelta(seconds=20))
        service.stop()
        assert stored_reports(store)["host:8000"].release == {"vllm": "0.33.0"}
    told = pl.concat(rows, how="diagonal_relaxed").sort("end")
    before = told.filter(pl.col("end") <= down)
    assert set(before["release_changed"]) == {False}
    assert set(before["release_change"]) == {"none"}
    after = told.filter(pl.col("end") > down)
    assert after["release_changed"].sum() == 1  # in the one minute in which it was seen
    seen = after.filter("release_changed")["end"][0]
    restarted = after.filter("restarted")["end"][0]
    assert restarted <= seen <= restarted + timedelta(minutes=1)
    assert (after.filter(pl.col("end") >= seen)["release_change"] != "none").all()

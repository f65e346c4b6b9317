"""doctor from the command line: layout, places, exit codes and JSON."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from command_cases import Run
from fakes.dcgm_exporter import DcgmExporter
from fakes.dcgm_pages import FakeGpu, dcgm_page, workload
from fakes.exposition_server import ReplayedExposition
from fakes.prometheus_api import PrometheusApi, Series, refused

import driftwatch._demo


def _page(shared_data: Path) -> str:
    return (shared_data / "vllm-0.32/metrics_during_load.txt").read_text()


def _serve(page: str) -> ReplayedExposition:
    return ReplayedExposition([(0.0, page)], clock=lambda: 0.0)


COMPLETE = """\
sources:
  - pages: [{url}]
    labels: {{namespace: ml, pod: a}}
pools:
  - name: rag-8b
    gpus_per_replica: 1
    serving: {{max_num_seqs: 256, max_num_batched_tokens: 512}}
    slo: {{ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}}
    tuned_for: {{prompt_tokens: 512, generation_tokens: 200}}
receivers: [{{name: oncall, stdout: {{}}}}]
"""


def test_a_file_is_no_url(run: Run) -> None:
    Path("a recording.jsonl").touch()
    code, _, errors = run("doctor", "a recording.jsonl")
    assert code == 2
    assert "a recording.jsonl is a file, not a URL" in errors
    assert "driftwatch doctor --recording 'a recording.jsonl'" in errors


def test_what_is_complete_is_ready(run: Run, shared_data: Path) -> None:
    gpu = FakeGpu(0, "GPU-0", workload=workload("ml", "a"))
    with _serve(_page(shared_data)) as server, DcgmExporter(dcgm_page([gpu])) as exporter:
        text = COMPLETE.format(url=server.url)
        text = text.replace("pools:", f"  - dcgm: ['{exporter.url}']\npools:", 1)
        text = text.replace("stdout: {}}", "stdout: {}}, {name: log, stdout: {}}")
        text = text.replace("    slo:", "    receivers: [oncall]\n    slo:")
        Path("driftwatch.yaml").write_text(text)
        code, out, _ = run("doctor")
        lines = out.splitlines()
        assert code == 0, out
        assert (
            lines[0]
            == "READY: 17 of 25 rules can fire; 6 cannot yet (LEARNING), 2 cannot here (OFF)"
        )
        heads = {line[:8].strip() for line in lines[1:]} - {""}
        # the warning: fields that dcgm-exporter's own list leaves out
        assert heads == {"can fire", "routes", "WARNING", "LEARNING", "OFF", "ok"}
        assert (
            "routes   pages and tickets: rag-8b → oncall; every other pool → oncall, log" in lines
        )
        code, out, _ = run("doctor", "--all")
        assert code == 0
        for words in ("page read", "declared, DCGM agrees", "OFF      ThroughputDown: "):
            assert words in out, words


def test_trouble_comes_first_with_the_line_that_mends_it(
    run: Run, shared_data: Path, golden: Callable[[str, str], None]
) -> None:
    with _serve(_page(shared_data)) as server:
        text = COMPLETE.format(url=server.url)
        Path("driftwatch.yaml").write_text(
            text.replace("{max_num_seqs: 256, max_num_batched_tokens: 512}", "{max_num_seqs: 256}")
            .replace("ttft_seconds: 1.0", "ttft_seconds: 0.8")
            .replace("    tuned_for: {prompt_tokens: 512, generation_tokens: 200}\n", "")
        )
        code, out, _ = run("doctor")
    assert code == 1
    assert "alert: GpuLost, enabled: false, reason: no GPU readings" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    port = server.instance.rpartition(":")[2]
    golden("doctor/trouble.txt", re.sub(rf"(?<=:){port}\b", "PORT", out))


def test_a_prometheus_that_is_down_is_no_verdict(run: Run) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        Path("driftwatch.yaml").write_text(f"sources: [{{prometheus: '{url}'}}]\n")
        code, out, _ = run("doctor")
        assert json.loads(run("doctor", "--json")[1])["ready"] is False
    assert code == 4
    answer, first, *_ = out.splitlines()
    assert answer == "NO VERDICT: no source has a vLLM server"
    assert first.startswith("MISSING  prometheus ") and "connection refused" in out
    assert "does it answer from this machine: curl" in " ".join(out.split())
    assert "WARNING" not in out


def test_a_database_that_does_not_serve_is_missing(run: Run, shared_data: Path) -> None:
    Path("driftwatch.db").write_bytes(b"no database " * 400)
    with _serve(_page(shared_data)) as server:
        Path("driftwatch.yaml").write_text(COMPLETE.format(url=server.url))
        code, out, _ = run("doctor")
    assert code == 1
    assert out.startswith("NOT READY: 0 of 25 rules can fire; 25 cannot (MISSING)\n")
    assert (
        "MISSING  database: " in out
        and "LEARNING" not in out
        and "is not a SQLite database" in " ".join(out.split())
    )


def test_a_recording_is_judged_at_its_end_and_the_verdict_names_what_cannot_fire(run: Run) -> None:
    """Months later nothing of it is stale; pages that reach nobody are not ready."""
    recording = Path(driftwatch._demo.__path__[0]) / "run_cap.jsonl.gz"
    Path("driftwatch.yaml").write_text(f"""\
sources: [{{recording: {recording}}}]
pools:
  - {{name: rag, match: {{app: rag}}}}
  - {{name: code, match: {{app: code}}}}
  - {{name: chat, serving: {{max_num_seqs: 256, max_num_batched_tokens: 512}}}}
receivers: [{{name: log, stdout: {{}}, severities: [ticket]}}]
rules: [mine.yaml]
""")
    Path("mine.yaml").write_text("""\
groups:
  - name: mine
    rules:
      - {alert: Slow, when: slo_missed, severity: page, annotations: {summary: slow}}
      - {alert: Queue, when: waiting_requests > 20, severity: ticket, annotations: {summary: long}}
""")
    code, out, _ = run("doctor")
    said = " ".join(out.split())
    assert code == 1
    assert "no scrape" not in said
    assert "MISSING routes: pages reach nobody: no receiver takes pages" in said
    assert said.startswith("NOT READY: 1 of 2 rules can fire; 1 cannot (MISSING); other checks: 1")
    assert " can fire Queue " in said and "MISSING chat: no slo" in said
    # one line a reason, however many pools
    assert "WARNING rag, code: no target belongs to it fix: driftwatch.yaml:3, " in said
    window = "2026-11-21T08:00Z..2026-11-21T08:10Z"
    _, out, _ = run("doctor", "--recording", str(recording), "--baseline", window)
    assert "can fire" in out and "no baseline" not in out
    Path("driftwatch.yaml").write_text(
        "interval: 5\nreceivers: [{name: a, webhook: {url_file: b}}]"
    )
    assert run("doctor")[:2] == (2, run("check")[1])


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = {"/401": 401, "/302": 302, "/404": 404}.get(self.path, 200)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/login")
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html>" if status == 200 else b"")

    def log_message(self, *_: object) -> None:
        pass


def test_what_is_no_metrics_page_says_what_to_give_and_nothing_else(
    run: Run, golden: Callable[[str, str], None]
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    screens = []
    try:
        for path in ("401", "302", "404", "html"):
            code, out, _ = run("doctor", f"http://127.0.0.1:{server.server_port}/{path}")
            assert code == 1
            screens.append(out.replace(f":{server.server_port}", ":PORT"))
    finally:
        server.shutdown()
        server.server_close()
    golden("doctor/no-page.txt", "\n".join(screens))


def test_what_an_api_does_not_answer_is_a_finding(run: Run) -> None:
    now = time.time()
    labels = {"job": "vllm", "instance": "a:8000"}
    names = {"up": {}, "vllm:num_requests_running": {"engine": "0", "model_name": "m"}}
    series = [
        Series({"__name__": name, **labels, **more}, [(now - 15 * n, "1") for n in (3, 2, 1)])
        for name, more in names.items()
    ]
    with PrometheusApi(series) as api:
        api.faults.append(("time_to_first_token", refused("shard 3", 503, "unavailable")))
        api.warnings.append("shard 4 is down")
        Path("driftwatch.yaml").write_text(f"sources: [{{prometheus: '{api.address}'}}]\n")
        code, out, _ = run("doctor", "--json")
        assert code == 1
        document = json.loads(out)
        name = f"prometheus {api.address.removeprefix('http://')}"
        source = next(s for s in document["sources"] if s["name"] == name)
        assert any("shard 3" in p and "time_to_first_token" in p for p in source["problems"])
        assert any(p.startswith("Partial: shard 4 is down") for p in source["problems"])

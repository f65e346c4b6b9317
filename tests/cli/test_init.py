"""init: what it writes of a real Prometheus, of metrics pages, and of an API that misbehaves."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_cases import Run
from fakes import prometheus_server
from fakes.exposition_server import Page, ReplayedExposition
from fakes.loopback import Answer, LoopbackServer, Request
from fakes.prometheus_server import PrometheusServer, backfill
from jsonschema import Draft202012Validator

from driftwatch.settings import Settings, load_settings
from driftwatch.yaml_positions import parse_yaml, plain


def read(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "written.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, environ={})


def _page(shared_data: Path, name: str) -> str:
    """A real page, without the buckets: they say nothing here and fill blocks."""
    text = (shared_data / "vllm-0.32" / name).read_text()
    return "".join(line for line in text.splitlines(True) if "_bucket{" not in line)


def _dcgm(pod: str, *gpus: str) -> str:
    lines = ["# TYPE DCGM_FI_DEV_FB_USED gauge"]
    for number, uuid in enumerate(gpus):
        lines.append(
            f'DCGM_FI_DEV_FB_USED{{gpu="{number}",UUID="{uuid}",device="nvidia{number}",'
            f'modelName="NVIDIA H100",Hostname="node-1",exported_namespace="ml",'
            f'exported_pod="{pod}",exported_container="vllm"}} 70000'
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a real Prometheus that holds the last eleven minutes of these pages."""
    if not prometheus_server.installed():
        pytest.skip(prometheus_server.NOT_INSTALLED)
    with ExitStack() as stack:

        def started(*targets: tuple[str | None, Mapping[str, str]]) -> str:
            blocks = tmp_path / "blocks"
            now = time.time()
            for body, labels in targets:
                pages: list[Page] = [(now - 30.0 * n, body) for n in range(22, -1, -1)]
                backfill(pages, labels, blocks)
            return stack.enter_context(PrometheusServer(blocks=blocks)).url

        yield started


def _labels(instance: str, job: str = "vllm", **more: str) -> dict[str, str]:
    return {"job": job, "instance": instance, **more}


@pytest.mark.prometheus
def test_a_fleet_becomes_pools_that_load(
    run: Run,
    fleet: Callable[..., str],
    shared_data: Path,
    tmp_path: Path,
    golden: Callable[[str, str], None],
) -> None:
    small = _page(shared_data, "metrics_during_load.txt")
    large = re.sub(r'kv_cache_size_tokens="\d+"', 'kv_cache_size_tokens="900000"', small)
    assert large != small
    two = _page(shared_data, "metrics_dp2_after.txt").replace("tiny-llama", "org/Other-8B")
    url = fleet(
        (small, _labels("a:8000", namespace="ml", pod="rag-a", kind="l4")),
        (small, _labels("b:8000", namespace="ml", pod="rag-b", kind="l4")),
        (large, _labels("c:8000", namespace="ml", pod="rag-c", kind="h100")),
        (two, _labels("d:8000", namespace="ml", pod="chat-5d9f-x2")),
        (_page(shared_data, "metrics_disable_log_stats.txt"), _labels("e:8000", namespace="ml")),
        (None, _labels("f:8000", namespace="ml")),
        (_dcgm("rag-a", "GPU-1", "GPU-2"), _labels("dcgm:9400", "dcgm", pod="x", namespace="gpu")),
        (_dcgm("rag-b", "GPU-3", "GPU-4"), _labels("dcgm2:9400", "dcgm", pod="y", namespace="gpu")),
    )
    code, out, err = run("init", "--prometheus", url)
    assert code == 0, err
    assert out == run("init", "--prometheus", url)[1]  # the same again
    code, nothing, _ = run("init", "--prometheus", url, "--match", "kind=x")
    assert code == 4
    assert "no vLLM server with kind=x: none with these labels; " in nothing
    golden("init/fleet.yaml", out.replace(url, "http://prometheus:9090"))
    pools = {pool.name: pool for pool in read(tmp_path, out).pools}
    assert list(pools) == ["other-8b", "tiny-llama-h100", "tiny-llama-l4"]
    rag = pools["tiny-llama-l4"]
    assert rag.match == {"namespace": "ml", "model_name": "tiny-llama", "kind": "l4"}
    assert rag.gpus_per_replica == 2


@pytest.mark.prometheus
def test_a_job_that_scrapes_the_same_process_is_named(
    run: Run, fleet: Callable[..., str], shared_data: Path
) -> None:
    page = _page(shared_data, "metrics_during_load.txt")
    url = fleet((page, _labels("a:8000", "rag")), (page, _labels("a:8000", "chat")))
    code, out, err = run("init", "--prometheus", url)
    assert code == 0, err
    comments = " ".join(line.strip("# ") for line in out.splitlines())
    assert (
        "1 scrape of a server that is scraped already: a:8000 is also scraped as "
        'job="rag", read once; drop one of the jobs'
    ) in comments


@pytest.mark.prometheus
def test_what_was_written_can_be_looked_at_and_is_not_overwritten(
    run: Run,
    fleet: Callable[..., str],
    shared_data: Path,
    golden: Callable[[str, str], None],
) -> None:
    url = fleet((_page(shared_data, "metrics_lora_during.txt"), _labels("a:8000")))
    code, out, _ = run("init", "--prometheus", url, "-o", "driftwatch.yaml")
    assert code == 0
    wrote = "wrote driftwatch.yaml, and schemas/config.schema.json for your editor. Missing:"
    assert out.splitlines()[0] == wrote
    line, text = Path("driftwatch.yaml").read_text().split("\n", 1)
    assert line == "# yaml-language-server: $schema=schemas/config.schema.json"
    schema = json.loads(Path("schemas/config.schema.json").read_text())
    assert not list(Draft202012Validator(schema).iter_errors(plain(parse_yaml(text, "").root)))
    assert out.splitlines()[-1] == "next: driftwatch doctor -c driftwatch.yaml"
    assert max(map(len, out.splitlines())) <= 80
    golden("init/screen.txt", out)
    code, out, err = run("init", "--prometheus", url, "-o", "driftwatch.yaml")
    assert (code, out) == (2, "")
    assert "error: driftwatch.yaml is there already" in err
    code, out, _ = run("doctor", "-c", "driftwatch.yaml")
    assert code in (0, 1)
    assert "READY: " in out


@pytest.mark.prometheus
def test_a_prometheus_without_vllm_has_no_verdict(
    run: Run, fleet: Callable[..., str], shared_data: Path
) -> None:
    page = _page(shared_data, "metrics_disable_log_stats.txt")
    code, out, err = run("init", "--prometheus", fleet((page, _labels("a:8000"))), "-o", "x.yaml")
    assert code == 4
    assert "has no vLLM server: 1 targets are scraped" in out
    assert "--disable-log-stats" in err
    assert not Path("x.yaml").exists()


class _Api(LoopbackServer):
    """Answers every question alike."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    def judge(self, request: Request) -> Answer:
        return self._answer


def test_an_api_that_is_none_and_nobody_there(run: Run) -> None:
    with _Api(Answer(200, "<html>hello</html>")) as api:
        code, out, _ = run("init", "--prometheus", api.address)
        assert code == 4
        host = api.address.removeprefix("http://")
        assert f"NO VERDICT: {host}: " in out and "no JSON from Prometheus" in out
        assert "help: this is a web page" in run("init", f"{api.address}/metrics")[2]
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        code, out, err = run("init", "--prometheus", f"http://{address}")
        assert code == 4
        assert f"NO VERDICT: {address}: connection refused" in out
        assert f"help: does it answer from this machine: curl 'http://{address}/api/v1" in err
        code, out, err = run("init", f"http://{address}/metrics")
        assert code == 4
        assert f"no page of vLLM: {address}: connection refused" in out
        assert "help: does vLLM answer there?" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name vLLM's /metrics pages"),
        (("--prometheus", "http://u:pw@p:9090"), "no user or password in a URL"),
        (("--prometheus", "http://p:9090", "--match", "job"), "is not LABEL=VALUE"),
        (("http://u:pw@h:8000/metrics",), "no user or password in a URL"),
        (("driftwatch.yaml",), "driftwatch doctor -c driftwatch.yaml"),
    ],
)
def test_wrong_usage_is_said(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run("init", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "pw" not in err


def test_credentials_are_sent_and_written_as_files(run: Run, tmp_path: Path) -> None:
    Path("token").write_text("abc\n")
    empty = '{"status":"success","data":{"resultType":"vector","result":[]}}'
    with _Api(Answer(200, empty, {"Content-Type": "application/json"})) as api:
        code, _, _ = run(
            "init", "--prometheus", api.address, "--bearer-token-file", "token", "--tenant", "t 1"
        )
        asked = api.requests
    assert code == 4
    assert {r.headers["authorization"] for r in asked} == {"Bearer abc"}
    assert {r.headers["x-scope-orgid"] for r in asked} == {"t 1"}


def test_pages_become_pools(
    run: Run, shared_data: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    texts = {
        name: (shared_data / "vllm-0.32" / f"metrics_{name}.txt").read_text()
        for name in ("during_load", "dp2_after", "disable_log_stats")
    }
    texts["dp2_after"] = texts["dp2_after"].replace("tiny-llama", "other")
    with ExitStack() as stack:
        pages = {
            name: stack.enter_context(ReplayedExposition([(0.0, text)], clock=lambda: 0.0))
            for name, text in texts.items()
        }
        code, out, err = run("init", *(page.url for page in pages.values()))
        assert code == 0, err
        settings = read(tmp_path, out)
        assert [(s.pages, s.labels) for s in settings.sources] == [  # type: ignore[union-attr]
            ((pages["dp2_after"].url,), {"pool": "other"}),
            ((pages["during_load"].url,), {"pool": "tiny-llama"}),
        ]
        shown = out
        for name, page in pages.items():
            shown = shown.replace(page.instance, f"{name}:8000")
        golden("init/pages.yaml", shown)

"""What the chart renders, run here: each container's command, environment, files and probes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from deploy_cases import CHART, MODES, containers, helm, of_kind
from fakes.exposition_server import ReplayedExposition, read_pages
from fakes.postgres_server import NOT_INSTALLED, PostgresServer, installed

pytestmark = [pytest.mark.helm, pytest.mark.slow]

PASSWORD = "a word that no URL holds"
START_SECONDS = 90.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _database(mode: str) -> Iterator[dict[str, Any]]:
    """Values of the chart that say where the database is."""
    if mode == "single":
        yield {}
        return
    if not installed():
        pytest.skip(NOT_INSTALLED)
    port = _free_port()
    with PostgresServer(tcp_port=port) as server:
        server.query(f"ALTER ROLE driftwatch PASSWORD '{PASSWORD}'")
        server.query("CREATE DATABASE driftwatch")
        yield {"database": {"url": f"postgresql://driftwatch@127.0.0.1:{port}/driftwatch"}}


class Pod:
    """A container's process, with the mount points moved below a folder and a port of its own."""

    def __init__(self, container: dict[str, Any], folder: Path, name: str) -> None:
        self.port = _free_port()

        def here(text: str) -> str:
            text = re.sub(r"(?<![\w.-])(/(?:etc|var)/[\w/-]+)", rf"{folder}\1", text)
            return re.sub(r"0\.0\.0\.0:\d+", f"127.0.0.1:{self.port}", text)

        words = [here(str(word)) for word in container["args"]]
        self._log = (folder / f"{words[0]}{name}.log").open("w")
        self._probes = {key: container[key]["httpGet"] for key in container if "Probe" in key}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "driftwatch", *words],
            cwd=folder,
            env={**os.environ, **{one["name"]: here(one["value"]) for one in container["env"]}},
            stdout=self._log,
            stderr=self._log,
        )

    def answers(self, probe: str) -> bool:
        """What the kubelet would see."""
        asked = self._probes[probe]
        headers = {one["name"]: one["value"] for one in asked.get("httpHeaders", [])}
        try:
            url = f"http://127.0.0.1:{self.port}{asked['path']}"
            return requests.get(url, headers=headers, timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def wait_until_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not self.answers("readinessProbe"):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.2)

    def said(self) -> str:
        return Path(self._log.name).read_text()[-2000:]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(45)
        self._log.close()


@pytest.mark.parametrize("mode", MODES)
def test_what_is_rendered_runs_and_its_probes_are_answered(
    mode: str, tmp_path: Path, shared_data: Path
) -> None:
    recorded = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")
    begun = time.time() - recorded[0][0]
    with ExitStack() as stack:
        database = stack.enter_context(_database(mode))
        server = stack.enter_context(
            ReplayedExposition(recorded, clock=lambda: time.time() - begun)
        )
        config = {"sources": [{"pages": [server.url]}], "interval": "2s"}
        values = tmp_path / "values.yaml"
        with values.open("w") as written:
            image = {"repository": "example.com/driftwatch"}
            all_values = {"mode": mode, "image": image, "config": config, **database}
            yaml.safe_dump(all_values, written)
        ran = helm("template", "driftwatch", CHART, "--values", values)
        assert ran.returncode == 0, ran.stderr
        resources = [found for found in yaml.safe_load_all(ran.stdout) if found]
        _lay_out(resources, tmp_path)
        by_command = {one["args"][0]: one for _, one in containers(resources)}
        assert set(by_command) == {"run", "web"}
        started = [("run", "")] if mode == "single" else [("run", "a"), ("run", "b")]
        pods = []
        for command, name in [*started, ("web", "")]:
            pod = Pod(by_command[command], tmp_path, name)
            stack.callback(pod.end)
            pod.wait_until_ready()
            assert pod.answers("livenessProbe")
            pods.append(pod)
        for pod in pods:
            pod.end()
            assert pod.process.returncode == 0, pod.said()


def _lay_out(resources: list[Any], folder: Path) -> None:
    """ConfigMap, Secret and volume where the containers mount them."""
    for name in ("etc/driftwatch", "etc/driftwatch-secrets", "var/lib/driftwatch"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/driftwatch-secrets/database-password").write_text(PASSWORD)
    (config,) = of_kind(resources, "ConfigMap")
    text = config["data"]["driftwatch.yaml"].replace("/etc/", f"{folder}/etc/")
    text = text.replace("/var/", f"{folder}/var/")
    (folder / "etc/driftwatch/driftwatch.yaml").write_text(text)

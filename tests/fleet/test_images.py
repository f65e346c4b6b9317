"""The image of a container: in kube-state-metrics, and on no label of the server."""

from __future__ import annotations

from pathlib import Path

from fakes.fleet_files import write_openmetrics

from driftwatch.fleet.generate import generate
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import relabelled_of, targets_of

OLD, NEW = "registry/vllm-openai:v0.10.2", "registry/vllm-openai:v0.11.0"


def scenario(image: str | None) -> Scenario:
    rollout = {"kind": "rollout", "at": "10m", "every": "2m", "down": "1m", "factor": 1.2}
    return Scenario.model_validate(
        {
            "name": "upgrade",
            "title": "another image",
            "duration": "20m",
            "pool": {"name": "chat", "image": image, "declared": False},
            "traffic": {"requests_per_second": 0.5},
            "faults": [rollout if image is None else {**rollout, "image": NEW}],
            "truth": {},
        }
    )


def lines(made: Scenario, folder: Path) -> list[str]:
    folder.mkdir()
    return write_openmetrics(made, generate(made, 1), folder).read_text().splitlines()


def test_a_prometheus_has_the_image_in_kube_state_metrics_alone(tmp_path: Path) -> None:
    text = lines(scenario(OLD), tmp_path / "a")
    told = [line for line in text if line.startswith("kube_pod_container_info{")]
    assert all('namespace="inference"' in line and 'container="vllm"' in line for line in told)
    first = [line for line in told if 'pod="chat-0"' in line]
    assert [OLD in line for line in first] == [True] * 40 + [False] * 40
    others = [line for line in text if not line.startswith("kube_")]
    assert not any("image" in line or "v0.11" in line for line in others)
    running = [line for line in others if line.startswith("vllm:num_requests_running{")]
    assert all('namespace="inference",pod="chat-' in line for line in running)


def test_a_recording_tells_what_a_source_that_reads_them_knows() -> None:
    made = scenario(OLD)
    assert {t.labels["container_image"] for t in targets_of(made).values()} == {OLD}
    changed = relabelled_of(made)
    assert [one.labels for one in changed] == [{"container_image": NEW}] * 2
    start = made.start.timestamp()
    assert [one.since - start for one in changed] == [660.0, 780.0]

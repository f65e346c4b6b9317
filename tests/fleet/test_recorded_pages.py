"""The pages of the fleet against those of a real vLLM 0.32: line for line, but for the numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.metrics.template import page_template
from driftwatch.fleet.server import Server
from driftwatch.simulate.configuration import SchedulerConfiguration

STARTED = 1795224868.89

# Of what is not vLLM's own only the start of the process is read, and made.
READ = re.compile(r"(# (HELP|TYPE) )?(vllm:|process_start_time_seconds)")


def told_configuration(page: str) -> SchedulerConfiguration:
    """Of the recorded server, as its own page tells it; lengths from its edges."""
    found = re.search(r"^vllm:cache_config_info\{(.*)\} 1\.0$", page, re.M)
    assert found
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
    size = int(labels["block_size"])
    blocks = int(labels["kv_cache_size_tokens"]) // size
    per_request = blocks / float(labels["kv_cache_max_concurrency"])
    return SchedulerConfiguration(
        max_num_seqs=64,
        max_num_batched_tokens=1024,
        num_gpu_blocks=blocks,
        block_size=size,
        max_model_len=int(per_request * size),
    )


def made_like(page: str, **more: object) -> list[str]:
    configuration = SchedulerConfiguration(64, 1024, 8192, 32, 8192)
    info = {}
    if "vllm:" in page:
        configuration = told_configuration(page)
        labels = dict(re.findall(r'(\w+)="([^"]*)"', page.split("vllm:cache_config_info{")[1]))
        # how much memory it had and whether its block size was given by hand cannot be derived
        info = {
            name: labels[name] for name in ("kv_cache_memory_bytes", "user_specified_block_size")
        }
        if labels["num_gpu_blocks_override"] != "None":
            info["num_gpu_blocks_override"] = labels["num_gpu_blocks_override"]
    server = Server("h:8000", "tiny-llama", configuration, cache_config=info, **more)  # type: ignore[arg-type]
    template = page_template(server, STARTED)
    return lines(template.page([0.0] * len(template.slots)))


def lines(page: str) -> list[str]:
    """Every line; of samples the series only."""
    return [line if line.startswith("#") else line.rpartition(" ")[0] for line in page.splitlines()]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("metrics_before_load.txt", {}),
        ("metrics_after_main_run.txt", {}),
        ("metrics_mfu_enabled_after_load.txt", {}),
        ("metrics_disable_log_stats.txt", {"log_stats": False}),
    ],
)
def test_same_lines_in_the_same_order(
    shared_data: Path, name: str, more: dict[str, object]
) -> None:
    page = (shared_data / "vllm-0.32" / name).read_text()
    theirs = [line for line in lines(page) if READ.match(line)]
    assert made_like(page, **more) == theirs


def test_numbers_are_written_as_the_recorded_ones(shared_data: Path) -> None:
    """The recorded page's own numbers, filled in: the same bytes."""
    page = (shared_data / "vllm-0.32" / "metrics_after_main_run.txt").read_text()
    info = {"kv_cache_memory_bytes": "1073741824"}
    server = Server("h:8000", "tiny-llama", told_configuration(page), cache_config=info)
    template = page_template(server, STARTED)
    page = "".join(line for line in page.splitlines(keepends=True) if READ.match(line))
    numbers = [float(x.rpartition(" ")[2]) for x in page.splitlines() if not x.startswith("#")]
    assert template.page(numbers) == page


def test_a_server_that_cannot_be_is_refused_with_every_reason() -> None:
    server = Server(
        "h:1",
        "m",
        SchedulerConfiguration(8, 4),
    )
    with pytest.raises(ImpossibleConfiguration) as refused:
        server.finite_edges()
    assert len(refused.value.problems) == 3
    text = str(refused.value)
    for word in ("max_num_batched_tokens", "max_model_len", "num_gpu_blocks"):
        assert word in text

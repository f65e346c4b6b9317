"""Two servers behind one address: every command that reads scrapes names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.exposition_server import read_pages
from typed_words import call

NAMED = "another server answers at this address"


@pytest.fixture(scope="module")
def balanced(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of a recorded server; each second scrape is answered by an older, busier one."""
    run = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")[24:144]
    lines = []
    for number, (at, page) in enumerate(run):
        assert page is not None
        lines.append({"t": at, "status": 200, "body": _other(page) if number % 2 else page})
    path = tmp_path_factory.mktemp("balanced") / "scrapes.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _other(page: str) -> str:
    """The page of a server that began three hours before and has counted a thousand times more."""
    lines = []
    for line in page.split("\n"):
        series, _, value = line.rpartition(" ")
        if series == "process_start_time_seconds" or "_created{" in series:
            value = repr(float(value) - 10_800)
        elif line and not line.startswith("#") and "num_requests" not in series:
            value = repr(float(value) * 1000) if "_perc" not in series else value
        lines.append(f"{series} {value}" if series and not line.startswith("#") else line)
    return "\n".join(lines)


@pytest.mark.parametrize("verb", ["replay", "explain"])
def test_every_command_names_it(balanced: Path, verb: str) -> None:
    recording = (str(balanced),) if verb == "replay" else ("--recording", str(balanced))
    result = call(verb, *recording, "--max-num-seqs", "8", "--max-num-batched-tokens", "1024")
    assert result.exit_code in (0, 4), result.output
    assert NAMED in result.stderr, result.output
    assert "not through a load balancer" in result.stderr


def test_nothing_is_booked_that_the_target_did_not_generate(balanced: Path) -> None:
    result = call("explain", "--recording", str(balanced), "--json", "--max-num-seqs", "8")
    evidence = json.loads(result.stdout)["evidence"]
    tokens = evidence["generation_tokens_per_second"]["value"]
    assert 0 < tokens < 10_000


def test_no_cause_is_named_from_five_seconds(shared_data: Path, tmp_path: Path) -> None:
    run = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")
    leaves = []
    for count in (2, 60):
        path = tmp_path / f"{count}.jsonl"
        lines = [{"t": at, "status": 200, "body": page} for at, page in run[100 : 100 + count]]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = call("explain", "--recording", str(path), "--json", "--max-num-seqs", "8")
        diagnosis = json.loads(result.stdout)["diagnosis"]
        leaves.append((result.exit_code, diagnosis["leaf"]))
    assert leaves[0] == (4, "undetermined")
    assert leaves[1][0] == 0
    result = call("explain", "--recording", str(tmp_path / "2.jsonl"), "--max-num-seqs", "8")
    assert "a cause needs 30 s" in " ".join(result.stdout.split())

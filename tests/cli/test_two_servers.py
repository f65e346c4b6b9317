"""Two servers behind one address: every command that reads scrapes names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_cases import Run
from fakes.exposition_server import read_pages


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


@pytest.mark.parametrize("verb", [("replay",), ("explain", "--recording")])
def test_every_command_names_it_and_books_nothing(
    run: Run, balanced: Path, verb: tuple[str, ...]
) -> None:
    code, out, err = run(*verb, balanced, "--json", "--max-num-seqs", "8")
    assert code in (0, 4), out + err
    assert "another server answers at this address" in err and "not through a load balancer" in err
    if verb[0] == "explain":
        tokens = json.loads(out)["evidence"]["generation_tokens_per_second"]["value"]
        assert 0 < tokens < 10_000


def test_no_cause_is_named_from_five_seconds(run: Run, shared_data: Path) -> None:
    pages = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")[100:102]
    lines = [json.dumps({"t": at, "status": 200, "body": page}) for at, page in pages]
    Path("short.jsonl").write_text("\n".join(lines))
    code, out, _ = run("explain", "--recording", "short.jsonl", "--max-num-seqs", "8")
    assert code == 4
    assert "a cause needs 30 s" in " ".join(out.split())

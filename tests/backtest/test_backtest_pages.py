"""The pages of a backtest are those of a replay: leaf, advice and line 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from driftwatch.backtest.archive import Archive
from driftwatch.backtest.archive_writer import keep
from driftwatch.backtest.evaluate import judged
from driftwatch.backtest.pages import PageMaker, PastPage, past_pages
from driftwatch.cli.options import plan_from
from driftwatch.cli.proposal_notice import with_proposals
from driftwatch.collect.recordings import open_recording
from driftwatch.model import Transition
from driftwatch.pipeline.plan import Plan
from driftwatch.service.replay import replay


@pytest.fixture(scope="module")
def plan() -> Plan:
    return with_proposals(plan_from(None))


def archive_of(recording: Path, plan: Plan, folder: Path) -> Archive:
    source = open_recording(recording)
    return keep([source], source.span(), plan, folder)


def pages_of(archive: Archive, plan: Plan, *, advice: bool = True) -> tuple[list[PastPage], int]:
    """The pages, and how many questions were simulated for them."""
    maker = PageMaker(archive, plan, advice=advice)
    transitions: list[Transition] = []
    for one in judged(archive, plan, capacity=maker.capacity, pages=maker):
        transitions += one.happened
    return past_pages(transitions), maker.answers.simulations


def replayed(recording: Path, plan: Plan) -> Sequence[PastPage]:
    source = open_recording(recording)
    outcomes = replay([source], source.span(), plan)
    return past_pages(t for one in outcomes for t in one.transitions)


@pytest.mark.parametrize("name", ["run_cap", pytest.param("run_slow", marks=pytest.mark.slow)])
def test_real_servers(name: str, shared_data: Path, plan: Plan, tmp_path: Path) -> None:
    recording = shared_data / "vllm-0.32" / name
    expected = replayed(recording, plan)
    assert expected
    pages, _ = pages_of(archive_of(recording, plan, tmp_path), plan)
    assert pages == expected


def test_answers_are_kept(shared_data: Path, plan: Plan, tmp_path: Path) -> None:
    archive = archive_of(shared_data / "vllm-0.32" / "run_cap", plan, tmp_path)
    first, simulated = pages_of(archive, plan)
    assert simulated == 1
    assert first[0].knob == "max_num_seqs"
    assert pages_of(archive, plan) == (first, 0)
    # a run that was killed while it wrote
    (answers,) = archive.folder.glob("answers-*.jsonl")
    answers.write_bytes(answers.read_bytes()[:-40])
    assert pages_of(archive, plan) == (first, 1)

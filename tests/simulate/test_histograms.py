"""A workload rebuilt from a real server's histograms, against what was really sent."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.workload.histograms import (
    LengthHistogram,
    ScrapedWindow,
    rebuild,
    sample_lengths,
)

LINE = re.compile(r'^vllm:(\w+)\{(?:.*?le="([^"]+)")?.*\} (\S+)$', re.M)


def totals(body: str) -> dict[str, dict[float, float]]:
    """Series of one page: name → le → value; le is nan where there is none."""
    found: dict[str, dict[float, float]] = {}
    for name, le, value in LINE.findall(body):
        found.setdefault(name, {})[float(le) if le else float("nan")] = float(value)
    return found


def one(page: dict[str, dict[float, float]], name: str) -> float:
    (value,) = page[name].values()
    return value


def grown(
    before: dict[str, dict[float, float]], after: dict[str, dict[float, float]], family: str
) -> LengthHistogram:
    """Growth of one histogram between two pages."""
    edges = np.array(sorted(after[f"{family}_bucket"]))
    cumulative = [after[f"{family}_bucket"][e] - before[f"{family}_bucket"][e] for e in edges]
    return LengthHistogram(
        edges=edges[:-1],
        counts=np.diff(cumulative, prepend=0.0).astype(np.int64),
        total_tokens=one(after, f"{family}_sum") - one(before, f"{family}_sum"),
    )


@pytest.fixture(scope="module")
def windows(shared_data: Path) -> list[ScrapedWindow]:
    """A minute each of run_main."""
    with gzip.open(shared_data / "vllm-0.32" / "run_main" / "scrapes.jsonl.gz", "rt") as lines:
        scrapes = [json.loads(line) for line in lines][::12]
    pages = [(scrape["t"], totals(scrape["body"])) for scrape in scrapes]
    return [
        ScrapedWindow(
            start,
            end,
            int(one(before, "num_requests_running")),
            int(one(after, "num_requests_running")),
            int(one(before, "num_requests_waiting")),
            int(one(after, "num_requests_waiting")),
            grown(before, after, "request_prompt_tokens"),
            grown(before, after, "request_generation_tokens"),
            (one(after, "prefix_cache_hits_total") - one(before, "prefix_cache_hits_total"))
            / max(
                1.0,
                one(after, "prefix_cache_queries_total")
                - one(before, "prefix_cache_queries_total"),
            ),
        )
        for (start, before), (end, after) in itertools.pairwise(pages)
    ]


@pytest.fixture(scope="module")
def sent(shared_data: Path) -> np.ndarray:
    """When each request was really sent, its prompt and its generation."""
    with gzip.open(shared_data / "vllm-0.32" / "run_main" / "requests.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    done = [row for row in rows if row["status"] == 200]
    return np.array(
        sorted(
            (r["sent"], r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]) for r in done
        )
    )


@pytest.fixture(scope="module")
def rebuilt(windows: list[ScrapedWindow]) -> Requests:
    return rebuild(windows, np.random.default_rng(1), max_model_len=8192, block_size=32)[0]


def of_window(requests: Requests, window: ScrapedWindow) -> Requests:
    at = requests.arrival_seconds
    return requests.take((at >= window.start_seconds) & (at < window.end_seconds))


def test_as_many_arrive_each_minute_as_were_sent(
    windows: list[ScrapedWindow], rebuilt: Requests, sent: np.ndarray
) -> None:
    assert len(windows) >= 9
    for window in windows:
        truth = ((sent[:, 0] >= window.start_seconds) & (sent[:, 0] < window.end_seconds)).sum()
        found = len(of_window(rebuilt, window))
        # what is on its way to the engine at a scrape is in the next minute
        assert abs(found - truth) <= max(5, 0.02 * truth)
    assert len(rebuilt) == pytest.approx(len(sent), abs=5)


def test_the_tokens_of_each_minute_are_exact(
    windows: list[ScrapedWindow], rebuilt: Requests
) -> None:
    for window in windows:
        here = of_window(rebuilt, window)
        for histogram, lengths in (
            (window.prompt, here.prompt_tokens),
            (window.generation, here.generation_tokens),
        ):
            if window.finished:
                mean = histogram.total_tokens / window.finished
                assert abs(lengths.sum() - mean * len(lengths)) <= 0.5001


def test_the_mix_is_that_of_the_requests(rebuilt: Requests, sent: np.ndarray) -> None:
    """Deciles over the run: buckets are 2 to 2.5 times wide, the deciles come back far closer."""
    shares = np.linspace(0.1, 0.9, 9)
    for lengths, truth in (
        (rebuilt.prompt_tokens, sent[:, 1]),
        (rebuilt.generation_tokens, sent[:, 2]),
    ):
        ratio = np.quantile(lengths, shares) / np.quantile(truth, shares)
        assert np.abs(ratio - 1).max() < 0.25
        assert np.median(np.abs(ratio - 1)) < 0.06
        assert lengths.mean() == pytest.approx(truth.mean(), rel=0.01)


def test_prefix_hits_keep_their_ratio(windows: list[ScrapedWindow], rebuilt: Requests) -> None:
    cached, prompt = rebuilt.cached_tokens, rebuilt.prompt_tokens
    queries = sum(w.prompt.total_tokens for w in windows)
    hits = sum((w.prefix_hit_ratio or 0.0) * w.prompt.total_tokens for w in windows)
    assert cached.sum() / prompt.sum() == pytest.approx(hits / queries, rel=0.1)
    assert hits / queries > 0.03
    assert (cached % 32 == 0).all()
    assert (cached < prompt).all()


def test_what_cannot_be_known_is_said(windows: list[ScrapedWindow]) -> None:
    no_hits = [replace(window, prefix_hit_ratio=None) for window in windows]
    found, unknown = rebuild(no_hits, np.random.default_rng(1), max_model_len=8192)
    assert any("paired at random" in text for text in unknown)
    assert any("taken as none" in text for text in unknown)
    assert not found.cached_tokens.any()
    gone = replace(windows[2], running_before=windows[2].running_before + 10_000)
    found, unknown = rebuild([gone, windows[3]], np.random.default_rng(1), max_model_len=8192)
    assert any("left without finishing" in text for text in unknown)
    assert not len(of_window(found, gone))


def test_the_same_seed_gives_the_same_workload(windows: list[ScrapedWindow]) -> None:
    one, other = (
        rebuild(windows, np.random.default_rng(3), max_model_len=8192)[0] for _ in range(2)
    )
    assert one.arrival_seconds.tobytes() == other.arrival_seconds.tobytes()
    assert one.prompt_tokens.tobytes() == other.prompt_tokens.tobytes()


EDGES = np.array([1.0, 2, 5, 10, 20, 50, 100, 200, 500, 1000])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 1500), min_size=1, max_size=60), st.integers(1, 90), st.integers(0))
def test_any_lengths_come_back_in_their_cells_with_their_mean(
    lengths: list[int], count: int, seed: int
) -> None:
    truth = np.array(lengths)
    cells = np.searchsorted(EDGES, truth)
    counts = np.bincount(cells, minlength=len(EDGES) + 1)
    histogram = LengthHistogram(EDGES, counts, float(truth.sum()))
    same = sample_lengths(histogram, len(truth), np.random.default_rng(seed), longest=1500)
    assert same.sum() == truth.sum()
    found = np.bincount(np.searchsorted(EDGES, same), minlength=len(EDGES) + 1)
    assert found.tolist() == counts.tolist()
    other = sample_lengths(histogram, count, np.random.default_rng(seed), longest=1500)
    assert len(other) == count
    assert other.min() >= 1
    shares = np.bincount(np.searchsorted(EDGES, other), minlength=len(EDGES) + 1) / count
    assert np.abs(shares - counts / len(truth)).max() <= 1 / count + 1e-9
    assert not set(np.flatnonzero(shares)) - set(np.flatnonzero(counts))


def window(**changes: object) -> ScrapedWindow:
    good = LengthHistogram(np.array([10.0, 100.0]), np.array([3, 4, 0]), 200.0)
    plain = ScrapedWindow(0.0, 60.0, 0, 0, 0, 0, good, good)
    return replace(plain, **changes)  # type: ignore[arg-type]


def histogram(counts: list[int], total: float) -> LengthHistogram:
    return LengthHistogram(np.array([10.0, 100.0]), np.array(counts), total)


def broken() -> Iterator[tuple[list[ScrapedWindow], str]]:
    yield [window(prompt=histogram([3, 4, 0], 900.0))], "prompt _sum 900 is outside .* 47…430"
    yield [window(generation=histogram([3, 4, 1], 900.0))], "above 100 and max_model_len unknown"


@pytest.mark.parametrize(("given_windows", "problem"), list(broken()))
def test_histograms_that_contradict_themselves(
    given_windows: list[ScrapedWindow], problem: str
) -> None:
    with pytest.raises(WorkloadError, match=problem):
        rebuild(given_windows, np.random.default_rng(0))


def test_a_window_in_which_nobody_finishes_takes_its_neighbours_lengths() -> None:
    empty = histogram([0, 0, 0], 0.0)
    silent = window(prompt=empty, generation=empty, running_after=5)
    later = window(start_seconds=60, end_seconds=120)
    found, _ = rebuild([silent, later], np.random.default_rng(0))
    assert [len(of_window(found, one)) for one in (silent, later)] == [5, 7]
    assert found.prompt_tokens[:5].mean() == pytest.approx(200 / 7, abs=0.11)


def test_no_length_of_an_inner_bucket_is_beyond_the_longest_that_can_be() -> None:
    """max_model_len 8,192 lies inside the bucket (5,000, 10,000]."""
    edges, counts = np.array([1000.0, 2000.0, 5000.0, 10_000.0]), np.array([0, 5, 5, 40, 0])
    histogram = LengthHistogram(edges, counts, 5 * 1500 + 5 * 3500 + 40 * 7900.0)
    drawn = sample_lengths(histogram, 50, np.random.default_rng(1), longest=8192)
    assert drawn.max() <= 8192
    assert (drawn > 5000).sum() == 40
    assert drawn.sum() == round(histogram.total_tokens)
    whole = sample_lengths(histogram, 50, np.random.default_rng(1))
    assert whole.max() > 8192

"""Lengths of the requests of a stretch, to the token those of the histograms.

Lengths are observed at the finish, so those of a minute are of requests that came a lifetime
before. The n-th finished length is given to the n-th request in the order of arrival, which carries
the lag of the stretch along, whatever it is. Those that were running at the start are met by their
length: of what finishes next, a long one was more likely running (E[G²]/E[G]).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.errors import NoVerdict
from driftwatch.recommend.observed.clean import Clean
from driftwatch.recommend.observed.flows import Flows
from driftwatch.recommend.observed.hits import whole_hit_ratio
from driftwatch.recommend.observed.pairing import held_per_request, paired
from driftwatch.recommend.observed.starting import any_share
from driftwatch.recommend.observed.unfinished import unfinished
from driftwatch.recommend.server import Server
from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# Finished requests whose lengths stand for those that had not finished at the end.
_LAST_LENGTHS = 200
NAMES = ("prompt_tokens", "generation_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Lengths of all requests, in the order in which they came.

    Attributes:
        prompt_tokens: whole prompts.
        generation_tokens: whole generations.
        finished: in the stretch: of these the totals are those of the histograms.
        done_tokens: of those that were running at the start, what they had generated.
        clipped: rows whose ``_sum`` is outside what their buckets allow.
        paired: prompts and generations are paired so that the KV cache holds what was observed.
        gone: those whose clients left before the end: their generation is what they got.
    """

    prompt_tokens: Integers
    generation_tokens: Integers
    finished: npt.NDArray[np.bool_]
    done_tokens: Integers
    clipped: int
    paired: bool
    gone: npt.NDArray[np.bool_]


def histograms_of(stretch: Clean, name: str) -> list[LengthHistogram]:
    """The growth of one histogram in each row.

    Raises:
        NoVerdict: it is not on the page, or not in every row.
    """
    found = []
    rows = stretch.rows.select(f"{name}_buckets", f"{name}_edges", f"{name}_sum")
    for buckets, edges, total in rows.iter_rows():
        if buckets is None or edges is None or total is None or len(buckets) != len(edges):
            raise NoVerdict(f"request_{name}: no histogram on the page in every minute")
        counts = np.rint(np.diff(np.array(buckets), prepend=0.0)).astype(np.int64)
        found.append(LengthHistogram(np.array(edges[:-1]), np.maximum(counts, 0), float(total)))
    return found


def check_open_cell(histograms: list[LengthHistogram], name: str, longest: int | None) -> None:
    """Refuse lengths above the last edge where nothing says how long they can be.

    Raises:
        NoVerdict: there are some and ``longest`` is None.
    """
    above = sum(int(one.counts[-1]) for one in histograms)
    if above and longest is None:
        edge = histograms[0].edges[-1] if len(histograms[0].edges) else 0
        raise NoVerdict(
            f"max_model_len unknown, and {above:,} {name} are above the last bucket edge, "
            f"{edge:,.0f} tokens: how long they are is unknown",
            help_text="give --max-model-len N (GET /v1/models tells it)",
        )


def pooled(histograms: list[LengthHistogram], at_least: int) -> LengthHistogram:
    """The last rows together, as many as hold so many requests; one at least must hold any."""
    taken: list[LengthHistogram] = []
    for one in reversed(histograms):
        if one.counts.sum():
            taken.append(one)
        if sum(int(t.counts.sum()) for t in taken) >= at_least:
            break
    counts = np.sum([one.counts for one in taken], axis=0).astype(np.int64)
    return LengthHistogram(taken[0].edges, counts, sum(one.total_tokens for one in taken))


def lengths(
    stretch: Clean,
    counts: Flows,
    rng: np.random.Generator,
    *,
    server: Server,
    longest: int | None,
) -> Lengths:
    """Lengths of every request of a stretch.

    Args:
        stretch: its rows.
        counts: its requests.
        rng: the randomness.
        server: how much its KV cache holds.
        longest: most tokens of one request; None = unknown.

    Raises:
        NoVerdict: a histogram is missing, nothing finished, or its last cell has no bound.
    """
    every = {name: histograms_of(stretch, name) for name in NAMES}
    finished = int(counts.finished.sum())
    if not finished:
        raise NoVerdict("no request finished in the window: their lengths are unknown")
    whole: dict[str, Integers] = {}
    clipped = 0
    for name in NAMES:
        check_open_cell(every[name], name, longest)
        # a prompt of max_model_len leaves no room for a token, and vLLM refuses it
        room = longest - 1 if longest is not None and name == "prompt_tokens" else longest
        whole[name], contradicting = _of_finished(every[name], rng, room)
        clipped += contradicting
        if len(whole[name]) < finished:
            raise NoVerdict(f"request_{name}: counts fewer requests than generations were counted")
    prompt, generation = (whole[name][:finished] for name in NAMES)
    order = _running_first(generation, counts, rng)
    running = min(counts.running_first, finished)
    done = any_share(generation[order[:running]], rng)
    # as many as are wanted: a long queue of a few lengths again and again would be theirs alone
    last = max(_LAST_LENGTHS, counts.left)
    left = unfinished(
        stretch,
        counts,
        pooled(every["generation_tokens"], last),
        int(generation.sum()),
        int(done.sum()),
        rng,
        longest=longest,
    )
    rest = sample_lengths(
        pooled(every["prompt_tokens"], last),
        len(left.places),
        rng,
        longest=None if longest is None else longest - 1,
    )
    prompt = np.concatenate((prompt, rest))
    generation = np.concatenate((generation, left.generation_tokens))
    held = held_per_request(stretch, server)
    if held is not None:
        prompt = _paired(stretch, counts, prompt, generation, held, server, rng)
    if longest is not None:
        generation = fitted(prompt, generation, longest)
    came = _in_order(order, left.places)
    return Lengths(
        prompt_tokens=prompt[came],
        generation_tokens=generation[came],
        finished=came < finished,
        done_tokens=done,
        clipped=clipped,
        paired=held is not None,
        gone=np.concatenate((np.zeros(finished, dtype=np.bool_), left.gone))[came],
    )


def _paired(
    stretch: Clean,
    counts: Flows,
    prompt: Integers,
    generation: Integers,
    held_tokens: float,
    server: Server,
    rng: np.random.Generator,
) -> Integers:
    """Prompts exchanged inside their row; those that have not finished are a row of their own."""
    rows = len(counts.finished)
    row = np.repeat(np.arange(rows), counts.finished)
    row = np.concatenate((row, np.full(len(prompt) - len(row), rows)))
    hits = whole_hit_ratio(stretch) or 0.0
    return paired(prompt, generation, row, held_tokens, server.block_size or 1, hits, rng)


def _of_finished(
    histograms: list[LengthHistogram], rng: np.random.Generator, longest: int | None
) -> tuple[Integers, int]:
    """Lengths row by row, to the token; and how many rows contradict themselves."""
    parts = [sample_lengths(one, int(one.counts.sum()), rng, longest=longest) for one in histograms]
    contradicting = sum(
        abs(int(part.sum()) - one.total_tokens) >= 1.0
        for part, one in zip(parts, histograms, strict=True)
    )
    return np.concatenate(parts), contradicting


def _in_order(finished: Integers, left: Integers) -> Integers:
    """Numbers of the requests in the order in which they came.

    Args:
        finished: numbers of those that finished, in their order.
        left: the places of the others, whose numbers follow.
    """
    came = np.full(len(finished) + len(left), -1, dtype=np.int64)
    came[left] = len(finished) + np.arange(len(left))
    came[came < 0] = finished
    return came


def fitted(prompt: Integers, generation: Integers, longest: int) -> Integers:
    """Generations exchanged until no request is longer than the model allows.

    The totals stay, and pairs that fit stay together; what no exchange mends is cut.
    """
    found = generation.copy()
    over = np.flatnonzero(prompt + found > longest)
    many = len(over)
    while many and len(over):
        # with as many of the shortest generations: the longest prompt takes the shortest one
        others = np.argsort(found, kind="stable")[: 2 * many]
        some = np.union1d(over, others)
        by_prompt = some[np.argsort(-prompt[some], kind="stable")]
        found[by_prompt] = np.sort(found[some])
        over = np.flatnonzero(prompt + found > longest)
        if 2 * many >= len(found):
            break
        many *= 2
    return np.maximum(np.minimum(found, longest - prompt), 1)


def _running_first(generation: Integers, counts: Flows, rng: np.random.Generator) -> Integers:
    """An order in which those running at the start are drawn by their length from the next ones."""
    running = counts.running_first
    order = np.arange(len(generation), dtype=np.int64)
    if not running:
        return order
    # those that finish while the first ones do
    near = min(len(order), 2 * running)
    keys = rng.random(near) ** (1.0 / np.maximum(generation[:near], 1))
    drawn = np.sort(np.argsort(-keys, kind="stable")[:running])
    others = np.setdiff1d(np.arange(near), drawn)
    order[:near] = np.concatenate((drawn, others))
    return order

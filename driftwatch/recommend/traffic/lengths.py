"""Lengths of the requests of a stretch, to the token those of the histograms.

The n-th finished length is given to the n-th request in the order of arrival; those that ran at the
start are drawn by their length (E[G²]/E[G]). Prompts and generations are paired so that the KV
cache holds what was observed: Σ G · (P + G/2 + half a block) / Σ G tokens a running request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.errors import NoVerdict
from driftwatch.recommend.traffic.arrivals import Flows
from driftwatch.recommend.traffic.observed import Server
from driftwatch.recommend.traffic.stretch import Clean, whole_hit_ratio
from driftwatch.recommend.traffic.unfinished import unfinished
from driftwatch.simulate.workload.histograms import LengthHistogram, sample_lengths


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Those that were running when the stretch began: what they had, and their rest."""

    prompt_tokens: Integers
    generation_tokens: Integers
    cached_tokens: Integers  # all but the last token: what a scheduler does not compute again


def running_start(prompt: Integers, generation: Integers, done: Integers) -> Start:
    """What ran, as requests of which all but the rest is a cached prompt.

    ``generation``: whole generations; ``done``: what had been generated of each, below the
    generation.
    """
    done = np.minimum(done, generation - 1)
    return Start(prompt + done, generation - done, np.maximum(prompt + done - 1, 0))


def any_share(generation: Integers, rng: np.random.Generator) -> Integers:
    """Seen at a random moment of its life, a request has any share of its generation done."""
    shares: Integers = np.floor(rng.random(len(generation)) * generation).astype(np.int64)
    return shares


# Fewer running on average say more of the moments of the scrapes than of the lengths.
_LEAST_RUNNING = 1.0
_STEPS = 8
_NEAR = 1e-3
_CLOSEST = 0.98  # a pairing in which chance has no part is no server's


def held_per_request(stretch: Clean, server: Server) -> float | None:
    """Tokens in the KV cache per running request; None where that is unknown."""
    if server.num_gpu_blocks is None or server.block_size is None:
        return None
    use, running = stretch.column("kv_cache_usage_ratio"), stretch.column("running_requests")
    finite = ~(np.isnan(use) | np.isnan(running))
    seconds = np.where(finite, np.diff(stretch.edges), 0.0)
    ran = float((np.where(finite, running, 0.0) * seconds).sum())
    if ran < _LEAST_RUNNING * float(seconds.sum()) or not ran > 0:
        return None
    tokens = (server.num_gpu_blocks - 1) * server.block_size
    return float((np.where(finite, use, 0.0) * seconds).sum()) * tokens / ran


def paired(
    prompt: Integers,
    generation: Integers,
    row: Integers,
    held_tokens: float,
    block_size: int,
    hit_ratio: float,
    rng: np.random.Generator,
) -> Integers:
    """The prompts, exchanged inside each row so that requests hold as much as was observed.

    ``hit_ratio``: prefix hits over queries. What is hit may be held once for many or by each for
    itself; the pairing by chance stays where that explains the use. Returns as near as a pairing
    can come to it.
    """
    if len(prompt) < 2:
        return prompt
    chance = rng.standard_normal(len(prompt))
    rank = _scores(generation, row, rng)
    by_prompt = np.lexsort((prompt, row))  # where the prompts of a row go, in its places' order
    half = (generation + block_size) / 2.0
    wanted = held_tokens * float(generation.sum()) - float((generation * half).sum())

    def exchanged(weight: float) -> Integers:
        mixed = weight * rank + np.sqrt(1.0 - weight * weight) * chance
        prompts = np.empty_like(prompt)
        prompts[np.lexsort((mixed, row))] = prompt[by_prompt]
        return prompts

    def product(weight: float) -> float:
        return float((exchanged(weight) * generation).sum())

    # each holds its own, or all hold one in common
    wanted = float(np.clip(product(0.0), wanted, wanted / (1.0 - min(hit_ratio, _CLOSEST))))

    def off(weight: float) -> float:
        return product(weight) - wanted

    # the sum of products rises with the weight, nearly in a line: false position
    (low, low_off), (high, high_off) = ((w, off(w)) for w in (-_CLOSEST, _CLOSEST))
    if abs(off(0.0)) <= _NEAR * abs(wanted):
        return exchanged(0.0)
    if low_off >= 0 or high_off <= 0:
        return exchanged(low if low_off >= 0 else high)
    weight = 0.0
    for _ in range(_STEPS):
        weight = low - low_off * (high - low) / (high_off - low_off)
        missed_by = off(weight)
        if abs(missed_by) < _NEAR * abs(wanted):
            break
        if missed_by < 0:
            low, low_off = weight, missed_by
        else:
            high, high_off = weight, missed_by
    return exchanged(weight)


def _scores(values: Integers, row: Integers, rng: np.random.Generator) -> Floats:
    """Rank of each value in its row as a standard score; equal ones by chance."""
    order = np.lexsort((rng.random(len(values)), values, row))
    counts = np.bincount(row)
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))
    place = np.empty(len(values))
    place[order] = np.arange(len(values)) - first[row[order]]
    share = (place + 0.5) / counts[row]
    # the logistic score, scaled to a variance of one: near enough to the normal one, and closed
    scores: Floats = np.log(share / (1.0 - share)) * (np.sqrt(3.0) / np.pi)
    return scores


# Finished requests whose lengths stand for those that had not finished at the end.
_LAST_LENGTHS = 200
NAMES = ("prompt_tokens", "generation_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Lengths of all requests, in the order in which they came."""

    prompt_tokens: Integers
    generation_tokens: Integers  # whole generations
    finished: Flags  # in the stretch: of these the totals are those of the histograms
    done_tokens: Integers  # of those that were running at the start, what they had generated
    clipped: int  # rows whose ``_sum`` is outside what their buckets allow
    paired: bool  # prompts and generations are paired so that the KV cache holds what was observed
    abandoned: Flags  # those whose clients left before the end: their generation is what they got


def histograms_of(stretch: Clean, name: str) -> list[LengthHistogram]:
    """The growth of one histogram in each row.

    Raises NoVerdict: it is not on the page, or not in every row.
    """
    by_row = []
    rows = stretch.rows.select(f"{name}_buckets", f"{name}_edges", f"{name}_sum")
    for buckets, edges, total in rows.iter_rows():
        if buckets is None or edges is None or total is None or len(buckets) != len(edges):
            raise NoVerdict(f"request_{name}: no histogram on the page in every minute")
        counts = np.rint(np.diff(np.array(buckets), prepend=0.0)).astype(np.int64)
        by_row.append(LengthHistogram(np.array(edges[:-1]), np.maximum(counts, 0), float(total)))
    return by_row


def check_open_cell(histograms: list[LengthHistogram], name: str, longest: int | None) -> None:
    """Refuse lengths above the last edge where nothing says how long they can be.

    Raises NoVerdict: there are some and ``longest`` is None.
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
    length_histograms: list[LengthHistogram] = []
    for one in reversed(histograms):
        if one.counts.sum():
            length_histograms.append(one)
        if sum(int(t.counts.sum()) for t in length_histograms) >= at_least:
            break
    counts = np.sum([one.counts for one in length_histograms], axis=0).astype(np.int64)
    return LengthHistogram(
        length_histograms[0].edges, counts, sum(one.total_tokens for one in length_histograms)
    )


def lengths(
    stretch: Clean, counts: Flows, rng: np.random.Generator, *, server: Server, longest: int | None
) -> Lengths:
    """Lengths of every request of a stretch.

    ``longest``: most tokens of one request; None = unknown. Raises NoVerdict: a histogram is
    missing, nothing finished, or its last cell has no bound.
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
    last = max(_LAST_LENGTHS, counts.unfinished)
    open_requests = unfinished(
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
        len(open_requests.places),
        rng,
        longest=None if longest is None else longest - 1,
    )
    prompt = np.concatenate((prompt, rest))
    generation = np.concatenate((generation, open_requests.generation_tokens))
    held_tokens = held_per_request(stretch, server)
    if held_tokens is not None:
        prompt = _paired(stretch, counts, prompt, generation, held_tokens, server, rng)
    if longest is not None:
        generation = fitted(prompt, generation, longest)
    order_of_arrival = _in_order(order, open_requests.places)
    return Lengths(
        prompt_tokens=prompt[order_of_arrival],
        generation_tokens=generation[order_of_arrival],
        finished=order_of_arrival < finished,
        done_tokens=done,
        clipped=clipped,
        paired=held_tokens is not None,
        abandoned=np.concatenate((np.zeros(finished, dtype=np.bool_), open_requests.abandoned))[
            order_of_arrival
        ],
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


def _in_order(finished: Integers, places: Integers) -> Integers:
    """Numbers of the requests in the order in which they came."""
    numbers = np.full(len(finished) + len(places), -1, dtype=np.int64)
    numbers[places] = len(finished) + np.arange(len(places))
    numbers[numbers < 0] = finished
    return numbers


def fitted(prompt: Integers, generation: Integers, longest: int) -> Integers:
    """Generations exchanged until no request is longer than the model allows.

    The totals stay, and pairs that fit stay together; what no exchange mends is cut.
    """
    generations = generation.copy()
    over = np.flatnonzero(prompt + generations > longest)
    many = len(over)
    while many and len(over):
        # with as many of the shortest generations: the longest prompt takes the shortest one
        others = np.argsort(generations, kind="stable")[: 2 * many]
        some = np.union1d(over, others)
        by_prompt = some[np.argsort(-prompt[some], kind="stable")]
        generations[by_prompt] = np.sort(generations[some])
        over = np.flatnonzero(prompt + generations > longest)
        if 2 * many >= len(generations):
            break
        many *= 2
    return np.maximum(np.minimum(generations, longest - prompt), 1)


def _running_first(generation: Integers, counts: Flows, rng: np.random.Generator) -> Integers:
    """An order in which those running at the start are drawn by their length from the next ones."""
    running = counts.running_first
    order = np.arange(len(generation), dtype=np.int64)
    if not running:
        return order
    # those that finish while the first ones do
    near = min(len(order), 2 * running)
    keys = rng.random(near) ** (1.0 / np.maximum(generation[:near], 1))
    running_first = np.sort(np.argsort(-keys, kind="stable")[:running])
    others = np.setdiff1d(np.arange(near), running_first)
    order[:near] = np.concatenate((running_first, others))
    return order

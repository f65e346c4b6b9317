"""Phrases of latency, limits and room. Pure; None = does not apply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from driftwatch.diagnose.limits import CAP_BAND_RATIO, KV_PRESSED_RATIO
from driftwatch.diagnose.states import CLOCK_DOWN_RATIO
from driftwatch.knobs import COLUMN_KNOBS, KNOBS
from driftwatch.model import Limit
from driftwatch.notify.page import Page, WorstMissed
from driftwatch.numbers import (
    clean,
    count,
    duration,
    figure,
    knob,
    milliseconds,
    moment,
    percent,
    percent_range,
    plural,
    queue_wait,
    seconds,
)

LIMIT_WORDS: Mapping[str, str] = {
    **{name: KNOBS[name].words for name in COLUMN_KNOBS},
    "kv_cache": "KV cache",
}
_ALL_OF_IT = 0.985  # of the time to first token
ALWAYS_FULL = 0.95  # of the scrapes
NEARLY_FULL = 0.9  # of the capacity; waits above it are not predictable
_WORDS = ("", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def missed(page: Page) -> str | None:
    """``over 32 % of clients give up, 99 % of requests miss TTFT 1 s``; a range for a target
    inside a bucket.
    """
    text = _missed(page)
    return text and ", ".join(filter(None, (giving_up(page), text)))


def _missed(page: Page) -> str | None:
    if page.value("slo_missed") is not True:
        return None
    targets: list[tuple[float, str]] = []
    for stem in ("ttft", "tpot"):
        column = f"{stem}_in_target_10m_ratio"
        target = None if page.slo is None else getattr(page.slo, f"{stem}_seconds")
        least = page.value(column)
        if page.slo is None or least is None or target is None:
            continue
        upper = page.evidence[column].upper
        most = least if upper is None else upper
        if most < page.slo.share:
            share = percent_range(1 - most, 1 - least)
            aim = f"{target:g} s" if stem == "ttft" else milliseconds(target)
            targets.append((most, f"{share} of requests miss {stem.upper()} {aim}"))
    return min(targets)[1] if targets else "requests miss the latency target"


def also_missing(page: Page) -> str | None:
    """``notes-8b-0:8000 misses a latency target too (42 % of requests)``: servers beside those that
    the page counts.
    """
    if not page.also_missing:
        return None
    (name, share), *others = sorted(page.also_missing.items(), key=lambda one: -one[1])
    who = f"{clean(name)} misses"
    if others:
        who = f"{clean(name)} and {plural(len(others), 'more server')} miss"
    worst = f"up to {percent(share)}" if others else percent(share)
    return f"{who} a latency target too ({worst} of requests)"


def worst_missed(page: Page) -> WorstMissed | None:
    """The worst of this page and the one before it; None where no target was missed."""
    before, text = page.worst_missed, missed(page)
    known = [page.value(f"{stem}_in_target_10m_ratio") for stem in ("ttft", "tpot")]
    ratio = 1 - min((one for one in known if one is not None), default=1.0)
    gave_up = page.value("given_up_10m_low_ratio") or 0.0
    if text is None or (before is not None and before.ratio + before.gave_up >= ratio + gave_up):
        return before
    return WorstMissed(ratio=ratio, gave_up=gave_up, problem=text)


def queueing(page: Page) -> str | None:
    """``first token takes 2.5 s, all of it queueing``."""
    wait = page.value("batch_assembly_wait_10m_seconds")
    queued = page.value("queue_wait_estimate_10m_seconds")
    if queued is not None and queued >= 1 and (wait is None or queued > 2 * wait):
        # the histogram has only requests that left the queue
        return f"requests queue for {queue_wait(queued)}"
    if wait is None or wait < 0.1:
        return None
    ttft = page.value("ttft_10m_seconds")
    if not ttft:
        return f"requests queue for {seconds(wait)}"
    part = "all" if wait / ttft >= _ALL_OF_IT else percent(wait / ttft)
    return f"first token takes {seconds(ttft)}, {part} of it queueing"


def _full_limits(page: Page) -> list[str]:
    return [one.name for one in limits_of(page) if one.binds and one.name in LIMIT_WORDS]


def limits_of(page: Page) -> tuple[Limit, ...]:
    """The limits of the page's window; empty without a diagnosis."""
    return () if page.diagnosis is None else page.diagnosis.limits


def _is_full(page: Page, name: str) -> str:
    subject = name if name == "max_num_seqs" else f"the {LIMIT_WORDS[name]}"
    return f"{subject} is full"


def full(page: Page) -> str | None:
    """``the token budget is full``."""
    names = _full_limits(page)
    return _is_full(page, names[0]) if names else None


def harm(page: Page) -> str | None:
    """The harm: a missed target, else the wait in the queue, else the full limit."""
    return missed(page) or queueing(page) or full(page)


def limit(page: Page) -> str | None:
    """The full limit, how often it is full, its numbers; then the use of the others."""
    names = _full_limits(page)
    if not names:
        return None
    running, waiting = page.value("binding_running_requests"), waiting_requests(page)
    share, scrapes = page.value("limit_binding_share_10m_ratio"), page.value("scrapes_10m")
    numbers = [text for name in names if (text := _use(page, name, own=True))]
    if running is not None and names == ["kv_cache"] and page.value("max_num_seqs") is None:
        numbers.append(f"{plural(running, 'request')} run")
    if waiting is not None:
        where = f" on {clean(page.servers.first[0])}" if page.is_of_many else ""
        numbers.append(
            f"{plural(waiting, 'request')} {'queues' if waiting == 1 else 'queue'}{where}"
        )
    sentence = _is_full(page, names[0])
    then = ""
    if share is not None and share < ALWAYS_FULL:
        then = "then "
        sentence += f" in {percent(share)}" + (f" of {count(scrapes)} scrapes" if scrapes else "")
    others = [text for name in LIMIT_WORDS if name not in names and (text := _use(page, name))]
    preempted = page.value("preemptions_per_second")
    if preempted is not None:
        others.append(preemptions(preempted))
    beside = ", ".join(others)
    sentence += f": {then}{', '.join(numbers)}" if numbers else ""
    sentence += f". {beside[:1].upper()}{beside[1:]}" if others else ""
    clock = page.value("gpu_sm_clock_ratio")
    if clock is not None and clock <= CLOCK_DOWN_RATIO:  # a slow engine fills its batch sooner
        sentence += f". The SM clock is at {percent(clock)} of the baseline's"
    return sentence


def _use(page: Page, name: str, *, own: bool = False) -> str | None:
    """The use of a limit; ``own``: in the scrapes in which it was full."""
    if name == "kv_cache":
        used = page.value("binding_kv_cache_usage_ratio") if own else None
        used = page.value("kv_cache_usage_ratio") if used is None else used
        if used is None:
            return None
        if not own:
            return f"KV cache {percent(used)}"
        fits = used >= KV_PRESSED_RATIO or page.value("preemptions_per_second")
        return f"{percent(used)} in use" + ("" if fits else ", no room for the next prompt")
    cap = page.value(name)
    if name == "max_num_batched_tokens":
        used = page.value("tokens_per_forward_pass")
        if cap is None or used is None:
            return None
        part = f"{count(used)} of {knob(cap)} tokens"
        if own:
            # a mean over all steps does not describe the full ones
            return f"{part} in every step" if used >= CAP_BAND_RATIO * cap else None
        return f"token budget {part} a step"
    running = page.value("binding_running_requests")
    running = page.value("running_requests") if running is None else running
    if cap is None or running is None:
        return None
    inferred = " (inferred)" if page.evidence[name].source else ""
    part = f"{count(running)} of {knob(cap)}{inferred}"
    if not own:
        return f"sequences {part}"
    return f"{'' if near_cap(running, cap) else 'on average '}{part} requests run"


def near_cap(running: float, cap: float) -> bool:
    """Whether these running requests fill a cap, by the limits model."""
    return running >= min(CAP_BAND_RATIO * cap, cap - 1)


def preemptions(rate: float) -> str:
    """``no preemptions``, ``0.83 preemptions/s``."""
    return "no preemptions" if rate == 0 else f"{figure(rate, 2)} preemptions/s"


def waiting_requests(page: Page) -> float | None:
    """Waiting requests: while the limit was full if that is known, else the mean."""
    bound = page.value("binding_waiting_requests")
    waiting = page.value("waiting_requests") if bound is None else bound
    return None if waiting is None else float(waiting)


def present(page: Page) -> str | None:
    """``12 requests running or waiting``."""
    requests = (page.value("running_requests") or 0) + (page.value("waiting_requests") or 0)
    return f"{plural(requests, 'request')} running or waiting" if requests else None


MANY_GAVE_UP = 0.05  # of the requests that began, as in rules/queue.yaml


def giving_up(page: Page) -> str | None:
    """``over 32 % of clients give up``; None where few do, or not twice as many as usual."""
    low, usual = page.value("given_up_10m_low_ratio"), page.value("reference_given_up_ratio")
    if low is None or low < max(MANY_GAVE_UP, 2 * (usual or 0.0)):
        return None
    return f"over {percent(low)} of clients give up"


def given_up(page: Page) -> str | None:
    """``about 451 requests gave up in 10 min (49 % or more)``."""
    requests, low = page.value("given_up_requests_10m"), page.value("given_up_10m_low_ratio")
    if requests is None or low is None or low < MANY_GAVE_UP:
        return None
    return f"about {plural(requests, 'request')} gave up in 10 min ({percent(low)} or more)"


def _loads(page: Page) -> tuple[int, float, float] | None:
    """Number of peers; their load over capacity now, and after a drain of this server."""
    peers = page.peers
    if not peers or peers.get("utilization_ratio") is None:
        return None
    others, now = round(peers["of_targets"]) - 1, peers["utilization_ratio"]
    return None if others < 1 else (others, now, now * (others + 1) / others)


def replicas_before_drain(page: Page) -> int:
    """Replicas to add so that a drain of this server leaves its peers below 90 % of their capacity;
    0 where they have the room, or it is unknown.
    """
    if (loads := _loads(page)) is None:
        return 0
    others, now, _ = loads
    return max(0, math.ceil(now * (others + 1) / NEARLY_FULL - others))


def room(page: Page) -> str | None:
    """``the other seven go from 52 to 60 % of their capacity``, if this server is drained; with the
    replicas that this takes, and the time of an older simulation.
    """
    if (loads := _loads(page)) is None:
        return None
    others, now, then = loads
    number = _WORDS[others] if others < len(_WORDS) else str(others)
    who = "the other replica goes" if others == 1 else f"the other {number} go"
    whose = "its" if others == 1 else "their"
    text = f"{who} from {100 * now:.0f} to {100 * then:.0f} % of {whose} capacity"
    if more := replicas_before_drain(page):
        text += (
            f", with {plural(more, 'replica')} more to {percent(then * others / (others + more))}"
        )
    if now > 1:
        text += "; the pool is overloaded anyway"
    measured_at = page.times.measured_at
    at = datetime.fromtimestamp((page.peers or {}).get("utilization_at_seconds", 0.0), UTC)
    is_old = timedelta(0) < measured_at - at < timedelta(days=1)
    return f"{text} (computed {moment(at, measured_at.date())})" if is_old else text


def target_kept(page: Page) -> str | None:
    """Whether the latency targets are met."""
    is_missed = page.value("slo_missed")
    if is_missed is None:
        return None
    return "a latency target is missed" if is_missed else "all requests in target"


def in_target(page: Page) -> str | None:
    """``all in target for 10 min``, for a resolve; None where that is unknown."""
    since = page.times.last_true_at
    if not page.ended_in_target or since is None:
        return None
    return f"all in target for {duration((page.times.evaluated_at - since).total_seconds())}"


def _may_miss(page: Page) -> str | None:
    """``up to 12 % of requests miss TTFT 2 s``, where buckets do not tell if it is too many."""
    shares = {
        stem: least
        for stem in ("ttft", "tpot")
        if (least := page.value(f"{stem}_in_target_10m_ratio")) is not None
        and getattr(page.slo, f"{stem}_seconds") is not None
    }
    if not shares:
        return None
    stem = min(shares, key=shares.__getitem__)
    target = getattr(page.slo, f"{stem}_seconds")
    aim = f"{target:g} s" if stem == "ttft" else milliseconds(target)
    return f"up to {percent(1 - shares[stem])} of requests miss {stem.upper()} {aim}"


def _utilization(page: Page) -> float | None:
    """The load over the simulated capacity of today's settings; None = unknown."""
    advice = page.advice
    offered = None if advice is None else advice.offered_requests_per_second
    most = None if advice is None else advice.capacity_requests_per_second
    return offered / most if offered is not None and most else None


def overload(page: Page) -> str | None:
    """``the load is 5 % above what 2 servers serve in target``."""
    used = _utilization(page)
    if used is None or used <= 1:
        return None
    of = page.servers.of
    serve = f"{of} servers serve" if of > 1 else "the server serves"
    aim = " in target" if page.slo is not None else ""
    return f"the load is {percent(used - 1)} above what {serve}{aim}"


def nothing_to_do(page: Page) -> str | None:
    """``Nothing to do: load 52 % of capacity, all requests in target``. With unknown capacity, only
    measurements: ``No limit is full, all requests in target``. With an undecided target, how many
    requests may miss it. None where a limit is full, a target missed, or the load above capacity.
    """
    limits, is_missed, used = limits_of(page), page.value("slo_missed"), _utilization(page)
    if any(one.binds for one in limits) or is_missed or overload(page):
        return None
    is_measured = any(one.binds is False for one in limits) or page.value("binding_limit") == "none"
    is_open = is_missed is None and page.slo is not None
    facts = ["no limit is full"] if is_measured and (used is None or is_open) else []
    facts += [] if used is None else [f"load {percent(used)} of capacity"]
    facts += filter(None, [_may_miss(page) if is_open else target_kept(page)])
    text = ", ".join(facts)
    if used is None or is_open:
        return f"{text[:1].upper()}{text[1:]}" or None
    return f"Nothing to do{' yet' if used > NEARLY_FULL else ''}: {text}"

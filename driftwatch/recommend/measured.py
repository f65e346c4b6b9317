"""What measurements alone tell: a long queue, what a server completes, a full KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.model import Advice, Reason
from driftwatch.numbers import count, duration, figure, queue_wait
from driftwatch.recommend.advice import Question
from driftwatch.recommend.alternatives import replicas_for
from driftwatch.recommend.situation import Situation
from driftwatch.recommend.words import add_replicas, admit

_LONG_QUEUE_SECONDS = 600.0  # of a server's work: a forecast of an hour is not true for it


def queue(question: Question, limit: float | None) -> str | None:
    """A queue of more than ten minutes, and what to do about it; None where there is none.

    ``limit``: what the server serves in target, requests a second; None = its queue is known by
    what it completes.
    """
    seen = question.evidence
    waiting = seen.get("binding_waiting_requests") or seen.get("waiting_requests")
    work = seen.get("queue_wait_estimate_10m_seconds")
    work = waiting / limit if waiting and limit else work
    if not waiting or work is None or work <= _LONG_QUEUE_SECONDS:
        return None
    others = [frame["waiting_requests"].tail(1).sum() for frame in question.beside]
    do = "send it no new ones until then, or restart it (drops them)"
    if others and work * min(others) > _LONG_QUEUE_SECONDS * waiting:
        do = "the other queues are as long: admit fewer, or restart it (drops them)"
    server = seen.get("instance") or "this server"
    long = f"{duration(work) if limit else queue_wait(work)} of its work"
    waits = f"{count(waiting)} requests wait on {server}, {long}"
    return f"{waits}; a forecast holds once they are served: {do}"


_FEWEST_FINISHED = 100  # a rate known to ±20 % (Poisson, two standard deviations)
_FALLS_SHORT = 1.2  # times what it completes: as far as such a rate may be off


def by_measured_capacity(situation: Situation, why: str) -> Advice | None:
    """Replicas that serve all: what a server with a lasting queue completes is its capacity."""
    now, offered = situation.now, situation.offered
    finished = now.total("generation_tokens_count")
    queued = bool((now.column("waiting_requests") >= 1.0).all())
    if finished is None or finished < _FEWEST_FINISHED or not queued:
        return None
    completed, have = finished / now.seconds, situation.question.replicas
    more = replicas_for((have or 1) * offered, completed) - (have or 1)
    if offered < _FALLS_SHORT * completed or more < 1:
        return None
    served = f"{figure(offered)} req/s arrive, one completes {figure(completed)}"
    return Advice(
        action="none",
        reason=Reason(
            "measured",
            f"it completes {figure(completed)} of the {figure(offered)} req/s that arrive, its "
            f"queue is never empty; whether a knob helps is unknown: {why}",
        ),
        instead=(
            f"{add_replicas(more, have, at_least=True)}: {served}",
            admit(completed, have, offered),
        ),
        basis="measured",
    )


def kv_binds(evidence: Mapping[str, Any], leaf: str | None, why: str) -> Advice | None:
    """Advice where the evidence shows a full KV cache and the simulation is refused; else None."""
    binds = leaf == "kv_pressure" or evidence.get("binding_limit") == "kv_cache"
    if not (binds and (evidence.get("preemptions_per_second") or 0.0) > 0.0):
        return None
    return Advice(
        action="none",
        reason=Reason(
            "kv_binds",
            "the KV cache is full and requests are preempted; never raise max_num_seqs. "
            f"No simulation: {why}",
        ),
        instead=("add a replica", "let the gateway pass fewer requests at once"),
        later=("use an fp8 KV cache", "cache prefixes", "shorten contexts"),
    )

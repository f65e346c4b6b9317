"""When a server of a stretch is explained, and where its diagnosis should end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from truth_judge import sent
from truth_judge.commands import Case
from truth_judge.due import TRAFFIC, injected
from truth_judge.facts import Episode
from truth_judge.saturated import fullest, leaves_then

HEALTHY = "healthy"
SETTLED_SECONDS = 3600.0  # a healthy moment lies so long after the start
WINDOW_SECONDS = 600.0  # what explain looks at, where an episode is as long
TRIES = 20  # moments drawn until one's truth is no matter of words


@dataclass(frozen=True, slots=True)
class Moment:
    """When a server is explained, and what its leaf should be."""

    instance: str
    at_seconds: float
    leaf: str
    window_seconds: float = WINDOW_SECONDS
    also: frozenset[str] = frozenset()


def moments_of(case: Case, most: int, seed: int) -> list[Moment]:
    """One moment of each episode that has a leaf, or moments at which nothing is wrong.

    Of undisturbed traffic the truth is what was really sent in the window, where the reference
    knows it: by night demand is a fifth of what it is by day, and to say so is right.
    """
    scrapes = sent.lengths_of(case.recording) if case.recording.is_dir() else None
    moments = [one for e in case.episodes for one in _moments_of(case, scrapes, e)]
    draw = np.random.default_rng([seed, 1])
    if not injected(case.episodes):
        span = case.end_seconds - case.start_seconds
        for _ in range(most * TRIES):
            at = case.start_seconds + SETTLED_SECONDS
            at += float(draw.random()) * (span - SETTLED_SECONDS)
            instance = str(draw.choice(case.instances))
            leaf = HEALTHY if scrapes is None else _quiet_leaf(case, scrapes, instance, at)
            window = Episode("", at - WINDOW_SECONDS, at)
            busy = (e for e in case.episodes if e.concerns(instance))
            if any(e.start_seconds < at and window.start_seconds < e.until_seconds for e in busy):
                leaf = None  # saturated: nobody says what a diagnosis should be
            if leaf is not None:
                moments.append(Moment(instance, at, leaf))
            if len(moments) == most:
                break
    if len(moments) > most:
        moments = [moments[i] for i in sorted(draw.choice(len(moments), most, replace=False))]
    return moments


def _moments_of(case: Case, scrapes: pl.DataFrame | None, episode: Episode) -> list[Moment]:
    """When an episode is asked about: where a limit was fullest, else at its end.

    Where nothing was lost, a change of traffic is what was really sent against the reference, as
    elsewhere: its clients come and go, and lengths times four may be the reference's.
    """
    leaf, also = episode.leaf, episode.also
    if leaf is None:
        return []
    if episode.waited:
        instance, minutes = next(iter(episode.waited.items()))
        at = fullest(minutes, episode.visible_seconds or 0.0, episode.end_seconds)
        leaf, also = leaf_then(leaf, also, leaves_then(minutes, at))
    else:
        instance, at = sorted(episode.instances or case.instances)[0], episode.end_seconds
        if episode.kind in TRAFFIC and scrapes is not None:
            # lengths as before are no drift; hits that are lost and harm nobody may be named
            also |= {leaf} - {"drifted_within_limits"}
            sent_leaf = _quiet_leaf(case, scrapes, instance, at)
            if sent_leaf is None:
                return []
            leaf = sent_leaf
    window = min(WINDOW_SECONDS, episode.end_seconds - episode.start_seconds)
    return [Moment(instance, at, leaf, window, also)]


def leaf_then(leaf: str, also: frozenset[str], full: frozenset[str]) -> tuple[str, frozenset[str]]:
    """The right leaf and others that are right, of ten minutes in which limits were full.

    What was full at other times of the episode is wrong then; what filled them (prefix hits that
    were lost) stays right.
    """
    if not full:
        return leaf, also
    right = full | ({leaf, *also} & {"prefix_cache_collapse"})
    leaf = leaf if leaf in right else min(right)
    return leaf, right - {leaf}


def _quiet_leaf(case: Case, scrapes: pl.DataFrame, instance: str, at: float) -> str | None:
    """Where a diagnosis of undisturbed traffic should end; None where that is a matter of words."""
    if case.reference is None:
        return HEALTHY
    now = sent.sent(scrapes, instance, (at - WINDOW_SECONDS, at))
    before = sent.sent(scrapes, instance, case.reference)
    return None if now is None or before is None else sent.leaf_of_traffic(now, before)

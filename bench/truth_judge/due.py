"""What is due of an episode once it is known whether the servers could take what they were sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from truth_judge.facts import DAY_SECONDS, Episode
from truth_judge.matching import SATURATION
from truth_judge.saturated import LIMIT_RULES, Saturation, within

TRAFFIC = frozenset({"rate", "prompts", "generations", "prefix-loss", "client"})
# what may be told of an episode, and need not
MAY_BE_TOLD = {
    "client": frozenset({"LengthDrift"}),
    "prefix-loss": frozenset({"PrefixHitsFell"}),
    "rate": frozenset({"ClientsGiveUp"}),
}
LIMIT_PAGES = frozenset({"BatchLimitBinding", "BatchDrift", "QueueSpike"})
RETUNE_RULES = frozenset({"RetuneAdvised"})
# that a queue stands, and that clients leave it, is true of any queue
WAIT_RULES = frozenset({"QueueSpike", "ClientsGiveUp"})
# requests that end before their first token: that no token comes is true
STUCK_RULES = frozenset({"EngineStuck", "EngineSilent"})
# the windows of the rules are 10 minutes, and a page waits until it is certain
DUE_SECONDS = 1200.0
DUE_WAIT_SECONDS = 1.0  # where no target is known, a wait below it is not worth a page


def with_due(
    episodes: Sequence[Episode], found: Sequence[Saturation], instances: Sequence[str]
) -> tuple[Episode, ...]:
    """The episodes with what is due of them, and a stretch of its own for all other saturation."""
    resolved = [
        replace(one, allowed=one.allowed | MAY_BE_TOLD.get(one.kind, frozenset()))
        for one in episodes
    ]
    resolved = [_resolved(one, found, instances) for one in resolved]
    harming = (one for one in found if one.harms)
    return (*resolved, *map(_allowed, found), *map(_retune, harming))


def _resolved(episode: Episode, found: Sequence[Saturation], instances: Sequence[str]) -> Episode:
    """An episode of traffic pages a limit where a limit harmed for long enough."""
    if episode.kind not in TRAFFIC:
        return episode
    there = within(
        found, episode.instances or instances, episode.start_seconds, episode.end_seconds
    )
    harming = [one for one in there if one.harms]
    longest = harming[0] if harming else None
    if longest is None:
        # where requests wait and harm nobody, which words fit is a matter of taste
        return replace(episode, leaf=None if there else episode.leaf)
    lasts = longest.overlap(episode.start_seconds, episode.end_seconds)
    if lasts < DUE_SECONDS or longest.wait_seconds < DUE_WAIT_SECONDS or not longest.leaves:
        return replace(episode, allowed=LIMIT_RULES | episode.allowed, leaf=None)
    lost = episode.kind == "prefix-loss"
    leaves = (*((episode.leaf,) if lost and episode.leaf else ()), *longest.leaves)
    began = max(longest.start_seconds, episode.start_seconds)
    return replace(
        episode,
        kind="limit-prefix-loss" if lost else f"limit-{longest.limits[0]}",
        size=None,
        instances=frozenset(one.instance for one in harming),
        pages=LIMIT_PAGES,
        allowed=LIMIT_RULES | episode.notices | episode.allowed,
        leaf=leaves[0],
        also=frozenset(leaves[1:]),
        visible_seconds=began,
        waited={
            name: [minute for one in found if one.instance == name for minute in one.minutes]
            for name in dict.fromkeys(one.instance for one in harming)
        },
    )


def _allowed(one: Saturation) -> Episode:
    """A stretch in which a queue may be told of, and need not be."""
    return Episode(
        SATURATION,
        one.start_seconds,
        one.end_seconds,
        instances=frozenset({one.instance}),
        allowed=WAIT_RULES
        | (LIMIT_RULES if one.harms else frozenset())
        | (STUCK_RULES if one.serves_nobody else frozenset()),
    )


def _retune(one: Saturation) -> Episode:
    """A ticket about the settings speaks of whole days: it may come in the day after the harm."""
    end = one.end_seconds + DAY_SECONDS
    instances = frozenset({one.instance})
    return Episode(SATURATION, one.start_seconds, end, instances=instances, allowed=RETUNE_RULES)


def injected(episodes: Iterable[Episode]) -> list[Episode]:
    """Those that were injected."""
    return [one for one in episodes if one.kind != SATURATION]

"""Findings against truth: which episodes were found and when, and which pages are false.

An episode is *found* if an incident of a rule that must speak, of the severity that is due (a page
where pages are expected, else a ticket, else a notice), fires about one of its servers, or takes
one in, from its start to its end plus its grace. A limit that bound before the episode and is paged
already needs no second page: an incident of a limit that is open at its start finds it, at once.
A finding that fires is *false* if no episode that expects anybody to be told covers its moment and
its server (grace included). A loss of speed that is smaller than any rule promises to see is a loss
all the same: what is said of it is neither false nor found, and its time is not quiet. What fires
inside an episode's window under another rule, or as another severity, is *unexpected*: neither a
find nor false, and counted by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from truth_judge.facts import DAY_SECONDS, MONTH_SECONDS, Block, Episode, Finding, Said, Stretch


@dataclass(frozen=True, slots=True)
class Detection:
    """One episode, and when it was found."""

    stretch: Stretch
    episode: Episode
    delay_seconds: float | None
    finding: Finding | None
    told: int = 0

    @property
    def block(self) -> Block:
        """The bootstrap's block: of the episode's start."""
        return self.stretch.block(self.episode.start_seconds)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A finding that fired, and what the truth says of it.

    ``found``, ``unexpected``, ``false``, ``small`` (of a loss that no rule promises to see), or
    ``allowed``: of a limit, while requests waited for room.
    """

    stretch: Stretch
    finding: Finding
    verdict: str


def _firing(stretch: Stretch, *also: str) -> Iterator[Finding]:
    return (f for f in stretch.findings if f.event in ("firing", *also))


def _covers(episode: Episode, finding: Finding) -> bool:
    inside = episode.start_seconds <= finding.at_seconds <= episode.until_seconds
    return inside and episode.concerns(*finding.instances)


def detections(stretches: Iterable[Stretch]) -> list[Detection]:
    """Every episode of a kind that somebody must be told of, with the first finding that does.

    Sizes of which nobody must be told are there as well, held against the rules of the others.
    """
    stretches = list(stretches)
    asked: dict[str, frozenset[Said]] = {}
    for stretch in stretches:
        for episode in stretch.episodes:
            asked[episode.kind] = asked.get(episode.kind, frozenset()) | episode.asked
    found = []
    for stretch in stretches:
        for episode in stretch.episodes:
            due = episode.asked or asked[episode.kind]
            if not due:
                continue
            firing = _firing(stretch, "updated", "joined")
            told = [f for f in firing if f.said in due and _covers(episode, f)]
            told += _open_at_start(stretch, episode, due)
            first = min(told, key=lambda f: f.at_seconds, default=None)
            since = episode.visible_seconds or episode.start_seconds
            # a guess before it could be seen is no earlier than at once
            delay = None if first is None else max(first.at_seconds - since, 0.0)
            pages = Counter(f.rule for f in told if f.event == "firing")
            often = max(pages.values(), default=int(bool(told)))
            found.append(Detection(stretch, episode, delay, first, often))
    return found


SATURATION = "saturation"  # a stretch that nobody injected
SLOWER = frozenset({"SlowerAtEqualLoad", "ReplicaSlow"})


def _open_at_start(stretch: Stretch, episode: Episode, due: frozenset[Said]) -> Iterator[Finding]:
    """What was said of a limit before the episode, allowed in it, and not yet taken back."""
    for said in due:
        if said[1] not in episode.allowed:
            continue
        last: dict[str, Finding] = {}
        for finding in sorted(stretch.findings, key=lambda f: f.at_seconds):
            if finding.at_seconds < episode.start_seconds and finding.said == said:
                last |= dict.fromkeys(finding.instances or stretch.instances, finding)
        yield from (
            finding
            for instance, finding in last.items()
            if finding.event != "resolved" and episode.concerns(instance)
        )


def kinds_that_slow(stretches: Iterable[Stretch]) -> frozenset[str]:
    """Kinds of which, at some size, a page or ticket is due that says slower."""
    due = SLOWER | {"LatencyCreep"}
    return frozenset(e.kind for s in stretches for e in s.episodes if e.rules & due)


def alarms(stretches: Iterable[Stretch]) -> list[Alarm]:
    """Every finding that fired, judged."""
    judged, stretches = [], list(stretches)
    slowing = kinds_that_slow(stretches)
    for stretch in stretches:
        telling = [episode for episode in stretch.episodes if episode.rules]
        small = [e for e in stretch.episodes if e.kind in slowing and not e.rules]
        for finding in _firing(stretch):
            covering = [e for e in telling if _covers(e, finding)]
            if any(finding.said in e.expected for e in covering):
                verdict = "found"
            elif any(finding.rule in e.allowed and _covers(e, finding) for e in stretch.episodes):
                verdict = "allowed"
            elif not covering and any(_covers(e, finding) for e in small):
                verdict = "small"
            else:
                verdict = "unexpected" if covering else "false"
            judged.append(Alarm(stretch, finding, verdict))
    return judged


def quiet_months(stretches: Iterable[Stretch]) -> dict[Block, float]:
    """Server-months in which nobody should be told, by block: what false pages are counted over."""
    months: dict[Block, float] = {}
    stretches = list(stretches)
    slowing = kinds_that_slow(stretches)
    for stretch in stretches:
        for instance in stretch.instances:
            windows = [
                (e.start_seconds, e.until_seconds)
                for e in stretch.episodes
                if (e.rules or e.kind in slowing) and e.concerns(instance)
            ]
            quiet = (q for stay in stretch.stays(instance) for q in _outside(stay, windows))
            for day, seconds in (part for start, end in quiet for part in _by_day(start, end)):
                block = stretch.block(day * DAY_SECONDS)
                months[block] = months.get(block, 0.0) + seconds / MONTH_SECONDS
    return months


def _outside(
    stay: tuple[float, float], windows: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """What is left of a stay when windows, which may overlap, are cut out."""
    at, end = stay
    for first, last in sorted(windows):
        if first >= end:
            break
        if first > at:
            yield at, first
        at = max(at, last)
    if at < end:
        yield at, end


def _by_day(start: float, end: float) -> Iterator[tuple[int, float]]:
    day = int(start // DAY_SECONDS)
    while start < end:
        edge = min((day + 1) * DAY_SECONDS, end)
        yield day, edge - start
        start, day = edge, day + 1

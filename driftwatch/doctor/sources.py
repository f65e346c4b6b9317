"""What the sources say, what they do not, and how long a tick's questions take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driftwatch.doctor.checks import Check, Status
from driftwatch.doctor.times import SourceSeen

_TOLD = 3  # problems of a source that are printed; the rest is counted
_CHARACTERS = 300
# as the reading of a Prometheus says it (collect.prometheus_choice)
_TWO_SERVERS = "has two series at the same time"


def answers(sources: Iterable[SourceSeen], interval_seconds: float) -> Iterator[Check]:
    """One check per source, and one for each of its first problems.

    Args:
        sources: as they were met.
        interval_seconds: between two ticks.
    """
    for source in sources:
        brings = "GPU readings" if source.kind in ("dcgm", "nvml") else "scrapes"
        empty = not source.instances and not source.gpus
        if source.problems and empty:
            status: Status = "WARNING" if brings == "GPU readings" else "MISSING"
            yield Check(
                status,
                source.name,
                f"no {brings}: {source.problems[0][:_CHARACTERS]}",
                ("every rule",) if status == "MISSING" else (),
                setting=source.setting,
            )
            rest = source.problems[1:]
        elif empty and brings == "scrapes":
            yield Check(
                "MISSING",
                source.name,
                "answers, but has no vLLM server for what match asks for",
                ("every rule",),
                "match: {}",
                setting=(*source.setting, "match"),
            )
            rest = ()
        else:
            rest = source.problems
            if not rest:
                yield Check("ok", source.name, f"brings {brings}" if not empty else "answers")
        clashes = [problem for problem in rest if _TWO_SERVERS in problem]
        if clashes:
            more = f"; {len(clashes) - 1} more such (--json)" if len(clashes) > 1 else ""
            yield Check(
                "WRONG",
                source.name,
                f"{clashes[0][:_CHARACTERS]}{more}",
                ("every rule on the server that is not read",),
                "match: the labels of one of them, and a source of its own for the other; or an "
                "instance label of its own for each",
                setting=(*source.setting, "match"),
            )
        rest = tuple(problem for problem in rest if _TWO_SERVERS not in problem)
        for problem in rest[:_TOLD]:
            yield Check("WARNING", source.name, f"not read: {problem[:_CHARACTERS]}")
        if len(rest) > _TOLD:
            yield Check("WARNING", source.name, f"not read: {len(rest) - _TOLD} more (--json)")
        yield from _pace(source, interval_seconds)


def _pace(source: SourceSeen, interval_seconds: float) -> Iterator[Check]:
    seconds = source.asked_seconds
    if seconds is None:
        return
    share = seconds / interval_seconds
    what = (
        f"a tick's questions took {seconds:.2f} s of the {interval_seconds:g} s between two ticks"
    )
    if source.budget_seconds is not None:
        what += f", budget {source.budget_seconds:g} s"
    if share > 0.5:
        yield Check(
            "WRONG" if share > 1 else "WARNING",
            source.name,
            what,
            ("minutes are evaluated late" if share > 1 else "little room for a slow answer",),
            f"interval: {max(30, 2 * round(seconds + 1)):d}s, or fewer servers by match",
            setting=("interval",),
        )
    else:
        yield Check("ok", source.name, what)

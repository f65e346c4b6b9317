"""The figures as tables on the terminal; goals and leaves, as Markdown, in docs/truth.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from truth_judge.figures import SOON_MINUTES

MARKER = "<!-- made by bench/truth.py; run it again instead of editing -->"
_NONE = "–"


def number(value: float | None, unit: str = "") -> str:
    """Three digits and a unit; a dash for what there is none of."""
    if value is None:
        return _NONE
    if unit == "%":
        return f"{100 * value:.3g} %"
    if unit == "min":
        return f"{value / 60:.3g} min"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text + (unit and f" {unit}")


def interval(estimate: Mapping[str, Any] | None, unit: str = "") -> str:
    """A figure with its interval, or with why it has none."""
    if estimate is None or estimate["value"] is None:
        return _NONE
    value = number(estimate["value"], unit)
    if estimate["low"] is None:
        blocks = estimate["blocks"]
        return f"{value} ({blocks} block{'s' if blocks != 1 else ''})"
    low, high = (number(estimate[end], unit).removesuffix(f" {unit}") for end in ("low", "high"))
    return f"{value} [{low}, {high}]"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table, and a blank line."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return [*lines, ""]


def sections(figures: Mapping[str, Any]) -> list[str]:
    """All of it."""
    lines = _summary(figures)
    lines += _false(figures["false_alarms"])
    lines += _detection(figures["detection"], figures["unexpected"])
    lines += _recommendation(figures["recommendation"])
    lines += _engine(figures)
    return lines + _cost(figures)


def _summary(figures: Mapping[str, Any]) -> list[str]:
    """What docs/truth.md shows."""
    return [
        f"Seed {figures['seed']}, set `{figures['set']}`, commit `{figures['commit']}`, "
        f"{figures['date'] or 'no date given'}. In brackets: 95 % intervals.",
        "",
        *_goals(figures["goals"]),
        *_leaves(figures["leaves"]),
    ]


def _goals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the project is held to, on the mixed fleets."""
    if not rows:
        return []
    names = list(rows[0]["beside"])

    def cells(row: Mapping[str, Any] | None) -> str:
        if row is None:
            return _NONE
        count = "" if row["count"] is None else f" ({row['count']})"
        return interval(row["estimate"], row["unit"]) + count

    def of_others(row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(cells(row["beside"][name]) for name in names)

    return [
        "### The goals, on mixed fleets",
        "",
        "In parentheses: how many.",
        "",
        *table(
            ("figure", "goal", "measured", *names),
            [(row["figure"], row["goal"] or _NONE, cells(row), *of_others(row)) for row in rows],
        ),
    ]


def _false(false: Mapping[str, Any]) -> list[str]:
    lines = ["### False findings", ""]
    rows = [
        (name, severity, one["count"], interval(one))
        for name, group in false.items()
        for severity, one in (group["by_severity"] | group["by_rule"]).items()
        if one["count"] or severity in ("page", "notice")
    ]
    lines += table(("of", "what", "count", "per server-month"), rows)
    for name, group in false.items():
        short = group["server_months"] < group["goal_server_months"]
        goal = f"; the goal asks for {group['goal_server_months']:g}" if short else ""
        lines += [
            f"{name}: {group['server_months']:.3g} quiet server-months in {group['blocks']} "
            f"(seed, day) blocks{goal}.",
            "",
        ]
    return lines


def _detection(cells: Mapping[str, Any], unexpected: Mapping[str, int]) -> list[str]:
    rows = [
        (
            cell,
            ", ".join(one["expected"]),
            f"{one['episodes']} of {one['goal_episodes']}",
            interval(one["found_ratio"], "%"),
            interval(one["delay_median_seconds"], "min"),
            interval(one["delay_p95_seconds"], "min"),
            " / ".join(
                number(one[f"within_{m}min_ratio"]["value"], "%").removesuffix(" %")
                for m in SOON_MINUTES
            ),
            number(one["told_once_ratio"]["value"], "%"),
        )
        for cell, one in cells.items()
    ]
    soon = " / ".join(str(m) for m in SOON_MINUTES)
    head = ("injected", "must speak", "episodes", "found", "delay, median", "delay, p95",
            f"% within {soon} min", "told once")  # fmt: skip
    lines = ["### Detection", "", *table(head, rows)]
    errors = [
        (
            cell,
            interval(one["loss_error"]["median"], "%"),
            interval(one["loss_error"]["p95_absolute"], "%"),
        )
        for cell, one in cells.items()
        if one["loss_error"] is not None
    ]
    if errors:
        lines += table(("estimated less injected loss", "median", "95 % are off by less"), errors)
    if unexpected:
        said = ", ".join(f"{rule} {count}" for rule, count in unexpected.items())
        lines += [f"Inside episodes, of rules that they do not expect: {said}.", ""]
    return lines


def _leaves(matrices: Mapping[str, Any]) -> list[str]:
    lines = ["### Leaves", ""]
    for name, told in matrices.items():
        lines += [
            f"{name}: {told['episodes']} diagnoses, {interval(told['right'], '%')} right, "
            f"{interval(told['wrong'], '%')} a wrong leaf, "
            f"{number(told['undetermined_ratio'], '%')} undetermined or without a verdict, "
            f"{number(told['right_when_said_ratio'], '%')} right of those that name a leaf.",
            "",
        ]
        rows = [
            (true, *(said[column] or "" for column in told["leaves"]))
            for true, said in told["matrix"].items()
        ]
        if rows:
            lines += table(("truth ↓, said →", *told["leaves"]), rows)
    return lines


def _recommendation(found: Mapping[str, Any]) -> list[str]:
    goals = {"gain_captured_ratio": "≥ 90 %", "hurt_ratio": "≤ 1 %", "none_helps_ratio": "≤ 2 %"}
    words = {
        "advised": "episodes in which a knob is advised",
        "refused": "… that vLLM would not start with",
        "gain_captured_ratio": "gain captured, of the best single knob",
        "gain_captured_faults_too_ratio": "… also where the engine or the router is at fault",
        "hurt_ratio": "share of advised changes that hurt",
        "none_helps_ratio": "knob advised where none helps, of those episodes",
        "no_help_of_advised_ratio": "no knob helps, of the changes advised",
    }
    of = found["advisers"]
    rows = [
        (
            text,
            *(
                interval(one[name], "%") if name.endswith("_ratio") else one[name]
                for one in of.values()
            ),
            goals.get(name, ""),
        )
        for name, text in words.items()
    ]
    answers = ", ".join(f"{count} {answer}" for answer, count in found["answers"].items())
    return [
        "### Advice",
        "",
        f"{found['episodes']} episodes replayed with and without each change; in "
        f"{found['some_knob_helps']} some knob helps. `driftwatch recommend` answered: "
        f"{answers or 'nothing, it was not asked'}.",
        "",
        *table(("figure", *of, "goal"), rows),
    ]


def _engine(figures: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            name,
            one["servers"],
            number(one["sd_median"], "%"),
            number(one.get("sd_lowest"), "%"),
            number(one.get("robust_sd_median"), "%"),
            number(one.get("correlation_1h_median")),
        )
        for name, one in figures["healthy_ln_r"].items()
    ]
    head = (
        "of",
        "servers",
        "sd of ln r, median",
        "lowest",
        "without stalls",
        "correlation after 1 h",
    )
    lines = ["### The hidden engine", "", *table(head, rows)]
    return lines


def _cost(figures: Mapping[str, Any]) -> list[str]:
    lines = ["### Cost", ""]
    cost = figures["cost"]
    lines += [
        f"Replayed: {cost['server_months']:.3g} server-months, "
        f"{number(cost['replay_seconds_per_server_month'], 's')} each "
        f"(generated in {number(cost['generate_seconds_per_server_month'], 's')} each). "
        f"The whole run took {number(cost['took_seconds'], 'min')}.",
        "",
    ]
    for one in figures["disguise"]:
        differ = len(one["only_first"]) + len(one["only_second"])
        verdict = "the same" if one["same"] else f"{differ} differ"
        lines += [
            f"In disguise (other times, names and fields): {one['case']}, "
            f"{one['findings']} findings, {verdict}.",
            "",
        ]
    return lines


def into_page(text: str, figures: Mapping[str, Any]) -> str:
    """The page with its figures made anew.

    Raises:
        ValueError: the page has no marker to put them behind.
    """
    prose, found, _ = text.partition(MARKER)
    if not found:
        raise ValueError(f"the page lacks the line {MARKER}")
    return prose + MARKER + "\n\n" + "\n".join(_summary(figures)).rstrip() + "\n"

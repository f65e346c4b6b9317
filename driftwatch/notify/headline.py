"""The text of a page. Line 1: state, place, problem, action; then since, cause, change or do, cost,
undo, also. Pure.

A page has only what a person acts on; ``driftwatch explain`` has the rest. Texts are plain: the
renderer escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from driftwatch.notify.advice import (
    advice_lines,
    few,
    imperatives,
    open_question,
    page_reasons,
    settings_line,
    settings_to_give,
    shorter,
)
from driftwatch.notify.page import Line, Page
from driftwatch.notify.phrases.limits import full
from driftwatch.notify.phrases.traffic import began
from driftwatch.notify.verification_line import changed_text, verification_line, verification_texts
from driftwatch.numbers import clean, clock_seconds, cut, duration, moment, span, squeeze

NAME_LIMIT = 20


def state_word(page: Page) -> str:
    """The word of the state; CLOSED = it ended without a measured recovery."""
    if page.test:
        return "TEST"
    if page.event == "resolved":
        return "CLOSED" if page.resolved_reason else "RESOLVED"
    if page.event == "verified":
        return "VERIFIED"
    if page.acknowledgement is not None:
        return "ACKNOWLEDGED"
    if page.event == "updated":
        return "UPDATE"
    if page.repeat:
        return "STILL FIRING"
    return {"page": "FIRING", "ticket": "TICKET", "notice": "NOTICE"}[page.severity]


def opening(page: Page) -> str:
    """The words of the state that line 1 begins with."""
    word, now = state_word(page), page.times.evaluated_at
    if word == "ACKNOWLEDGED" and (one := page.acknowledgement) is not None:
        return f"{word} by {squeeze(clean(one.by), NAME_LIMIT)} {moment(one.at, now.date())} ·"
    if word == "STILL FIRING":
        return f"{word} after {duration((now - page.times.started_at).total_seconds())} ·"
    return word


# no text may end with one of these
_LABELS = ("advice now", "advice withdrawn", "cause now", "worse")
ADVICE_NOW = "advice now: "  # a change with it has the action already
HEADLINE_LIMIT = 120  # characters that a phone shows, with Slack's state mark
WHERE_LIMIT = 40
SHORT_WHERE_LIMIT = 24


def marked(page: Page, text: str) -> str:
    """``text`` behind the state's mark, for Slack: a phone's list shows it first."""
    update = "🔴 " if page.severity == "page" else ""
    marks = {"FIRING": "🔴 ", "RESOLVED": "✅ ", "CLOSED": "⚪ ", "ACKNOWLEDGED": "🟠 "}
    marks |= dict.fromkeys(("UPDATE", "STILL FIRING"), update)
    return marks.get(state_word(page), "") + text


def signature(page: Page) -> str:
    """``703ff199b4d4 · BatchDrift · 2026-11-25 06:32 UTC``: identifies a message."""
    alert = squeeze(clean(page.alert), WHERE_LIMIT)
    return f"{clean(page.incident)} · {alert} · {moment(page.times.evaluated_at, None)}"


def next_command(page: Page) -> str:
    """The next command to type; for a resolved incident the one that shows its history."""
    over = f"driftwatch incidents {clean(page.incident)}"
    return over if page.event == "resolved" and not page.test else clean(page.links.explain or "")


def target_name(page: Page) -> str:
    """The name of the servers: ``host:8000``, ``host:8000/1``, ``pool, 4 of 8``."""
    servers = page.servers
    if servers.first and (servers.concerned == 1 or servers.of == 1):
        return clean(servers.first[0])
    name = clean(page.labels.get("pool") or page.key)
    if page.event == "resolved" or not servers.concerned:
        return name
    return f"{name}, {servers.concerned} of {servers.of}"


def given_pool(page: Page) -> str | None:
    """The pool's name if the configuration names it: not "default", not the model's name."""
    pool, model = page.labels.get("pool"), page.labels.get("model_name")
    if not pool or pool == "default" or (model and f"/{pool}".endswith(f"/{model}")):
        return None
    return clean(pool)


def where(page: Page) -> str:
    """The name of the servers, with the pool's name before it unless it begins with that."""
    name, pool = target_name(page), given_pool(page)
    return f"{pool} {name}" if pool and not name.startswith(pool) else name


def headline(page: Page, limit: int | None = HEADLINE_LIMIT) -> str:
    """Line 1, at most 120 characters with Slack's mark: the problem is shortened first, the action
    last. ``limit``: None = the whole line, for a screen that wraps it.
    """
    name, pool = target_name(page), given_pool(page)
    wheres = [squeeze(name, WHERE_LIMIT)]
    if pool and not name.startswith(pool):
        wheres.insert(0, f"{squeeze(pool, WHERE_LIMIT)} {wheres[0]}")
    wheres.append(squeeze(name, SHORT_WHERE_LIMIT))
    word = state_word(page)
    if page.test:
        texts = [f"{word} {where}: {page.phrases.problem[0]}" for where in wheres]
    elif page.event == "verified" and page.verification is not None:
        verdicts = verification_texts(page.verification, page.times.evaluated_at.date())
        texts = [f"{word} {where}: {text}" for text in verdicts for where in wheres]
    elif page.event == "resolved":
        texts = [text for where in wheres for text in _ended(page, f"{word} {where}")]
    else:
        word = opening(page)
        advices = [f". {text}" for text in imperatives(page)] or [""]
        bads = page.phrases.problem
        if page.changed is not None and page.acknowledgement is None:
            changed = clean(page.changed)
            both = () if bads[0] in changed else (f"{changed}; {bads[0]}",)
            bads = (*both, *(one for one in shorter(changed) if not one.endswith(_LABELS)))
            advices.append("")
        # shorten both step by step, the problem first
        pairs = product(enumerate(bads), enumerate(advices))
        ordered = sorted(pairs, key=lambda pair: (pair[0][0] + pair[1][0], pair[1][0]))
        texts = [
            f"{word} {w}: {bad}{'' if ADVICE_NOW in bad else do}"
            for (_, bad), (_, do) in ordered
            for w in wheres
        ]
        actions = [f"{do[2:3].lower()}{do[3:]}" for do in advices if do]
        texts += [f"{word} {w}: {do}" for do in actions for w in wheres]
    if limit is None:
        return texts[0]
    limit -= len(marked(page, ""))
    return next((text for text in texts if len(text) <= limit), cut(texts[-1], limit))


def current_line(page: Page) -> str:
    """The whole line 1 without its state; for a resolve with the first problem."""
    line = headline(page, None).removeprefix(opening(page)).lstrip()
    if page.event != "resolved" or not page.first_problem:
        return line
    name, colon, rest = line.partition(": ")
    name, after, lasted = name.partition(" after ")
    return f"{name}: {clean(page.first_problem)}; over{after}{lasted}{colon}{rest}"


def line_1_action(summary: str) -> list[str]:
    """The action in line 1 of a message: one text, or none.

    >>> line_1_action("UPDATE a:8000: advice now: set max_num_seqs 64 → 256, before none yet")
    ['Set max_num_seqs 64 → 256']
    """
    _, is_news, news = summary.rpartition(ADVICE_NOW)
    text = news.split(", before ")[0] if is_news else summary.rpartition(". ")[2]
    return [] if text in ("", summary) else [f"{text[:1].upper()}{text[1:]}"]


def _ended(page: Page, start: str) -> list[str]:
    """How long it lasted and what is good again; for a closed one the reason."""
    began, ended = page.times.started_at, page.times.last_true_at or page.times.resolved_at
    if page.resolved_reason:
        reason = clean(page.resolved_reason)
        texts = (reason, reason.split(" (")[0])
        return [f"{start}: {text}; no recovery was measured" for text in texts]
    lasted = ""
    if ended is not None:
        lasted = f" after {duration(clock_seconds(began, ended))} ({span(began, ended)})"
    over = page.phrases.over or f"{clean(page.alert)} is no longer true"
    return [f"{start}{lasted}: {over}", f"{start}{lasted}"]


MOST_LINES, BODY_LIMIT, LINE_LIMIT = 6, 900, 300


def rendered(page: Page) -> Page:
    """The page with its texts: ``summary`` and ``lines``."""
    page = page.model_copy(update={"summary": headline(page)})
    page = page.model_copy(update={"first_problem": page.first_problem or _problem(page)})
    return page.model_copy(update={"lines": lines(page)})


def lines(page: Page) -> tuple[Line, ...]:
    """The body under line 1 (``page.summary``), in reading order: at most six lines and 900
    characters; lines of the smallest weight go first.
    """
    of_event = {"resolved": _resolved, "verified": _verified}
    if page.test:
        return (Line("Test", "the receiver works"),)
    written = of_event.get(page.event, _firing)(page)
    staying = [replace(line, text=cut(line.text, LINE_LIMIT)) for line in written]
    while len(staying) > MOST_LINES or sum(map(_length, staying)) > BODY_LIMIT:
        staying.remove(min(staying, key=lambda line: line.weight))
    return tuple(staying)


def _length(line: Line) -> int:
    return len(line.label) + len(line.text) + (22 if line.at else 2)


def _firing(page: Page) -> Iterator[Line]:
    is_news = page.changed is not None
    if page.changed is not None and page.acknowledgement is not None:
        yield Line("Changed", clean(page.changed), page.times.evaluated_at, weight=9)
    elif is_news and page.phrases.problem[0] not in page.summary:
        yield Line("Problem", page.phrases.problem[0], page.times.measured_at, weight=9)
    elif page.times.measured_at < page.times.evaluated_at:
        yield Line("Measured", "", page.times.measured_at, weight=5)
    yield Line("Since", _since(page), page.times.started_at, weight=9)
    if (cause := cause_text(page)) and cause not in page.summary:
        yield Line("Cause", cause, weight=7)
    yield from advice_lines(page)
    if (settings := settings_line(page)) is not None:
        yield Line("Settings", settings, weight=8)
    advice = page.advice
    also = [] if advice is None else [*advice.not_cured, *advice.later]
    if not page.repeat and not also and (advice is None or advice.action != "no_action"):
        also = list(page.phrases.also)
    if also:
        yield Line("Also", "; ".join(map(clean, also)), weight=4)


def _since(page: Page) -> str:
    """The servers, the recent change, and what moved."""
    servers, change = page.servers, clean(page.recent_change or "")
    on = few(sorted(servers.first), servers.concerned) if 1 < servers.concerned < servers.of else ""
    parts = [change, f"on {on}" if on else "", page.phrases.since]
    if change.startswith("then "):
        parts = [*parts[1:], change]
    return "; ".join(filter(None, parts))


def cause_text(page: Page) -> str:
    """The cause: the rule's first known one; or the inputs that the walk lacks."""
    if settings := settings_to_give(page):
        lacking = " and ".join(settings)
        return f"not determined: without {lacking} driftwatch cannot tell which limit is full"
    if page.diagnosis is not None and page.leaf == "undetermined":
        return f"not determined. {open_question(page.diagnosis, page_reasons(page))}"
    return page.phrases.cause


def _resolved(page: Page) -> Iterator[Line]:
    yield _began(page)
    if page.ended_because:
        yield Line("Ended", page.ended_because, weight=8)
    if page.verification is not None and page.verification.verdict != "open":
        ended = page.times.resolved_at
        today = None if ended is None else ended.date()
        yield Line("Verified", verification_line(page.verification, today), weight=8)


def _verified(page: Page) -> Iterator[Line]:
    """The verdict on the advised change."""
    if (one := page.verification) is not None:
        at = one.change.at
        yield Line("Verified", verification_line(one, at.date()), weight=9)
        yield Line("Changed", changed_text(one), at, weight=8)
    yield _began(page)
    if (ended := page.times.resolved_at) is not None:
        yield Line("Until", "", ended, weight=6)


def _began(page: Page) -> Line:
    """The first problem, and the worst one."""
    text, worst = page.first_problem, page.worst_missed
    if worst is not None and worst.problem not in text:
        text += f"; at worst {worst.problem}"
    return Line("Began", text, page.times.started_at, weight=9)


def _problem(page: Page) -> str:
    """The problem of line 1, and which limit is full."""
    problems, limit = page.phrases.problem, full(page)
    problem = next((one for one in problems if one in page.summary), problems[0])
    problem = problem.removeprefix(f"since {began(page)} ")
    return problem if limit is None or problem.startswith(limit) else f"{problem}; {limit}"

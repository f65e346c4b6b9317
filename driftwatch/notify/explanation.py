"""The output of ``driftwatch explain``: answer, walk, numbers. Pure.

``--json`` prints :class:`Explanation`; a terminal gets its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from driftwatch.documents import Document
from driftwatch.knobs import COLUMN_KNOBS, least_budget
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import Advice, Diagnosis, Finding
from driftwatch.notify.advice import advice_lines, imperatives, settings_line
from driftwatch.notify.attribution import Attribution, attribution, reason_of, throughput_table
from driftwatch.notify.engine_words import engine_text, gpu_count_text, gpus_text
from driftwatch.notify.facts import amounts, baseline_of, slo_in, with_reasons
from driftwatch.notify.headline import cause_text
from driftwatch.notify.layout import paint, wrap
from driftwatch.notify.minute_line import speed_line
from driftwatch.notify.page import Amount, Baseline, Line, Page, Phrases, Servers, Times
from driftwatch.notify.path import render_limits, render_path
from driftwatch.notify.phrases import fill
from driftwatch.notify.phrases.limits import MANY_GAVE_UP, given_up
from driftwatch.notify.phrases.traffic import many_never_finish, moved, rate
from driftwatch.notify.shares import LengthShares, shares, shares_table
from driftwatch.numbers import (
    change,
    clean,
    count,
    duration,
    is_as_before,
    knob,
    moment,
    percent,
    span,
    times,
)

_WIDTH, _UNBOUNDED = 80, 100_000
_LENGTHS = ("prompt", "generation")
_CALM_LEAVES = ("healthy", "drifted_within_limits", "request_rate_drop")
# a window without these is never healthy, whatever the rest
_NEEDED = frozenset(("observed_10m_seconds", "binding_limit", "waiting_requests"))


class Explanation(Document):
    """A window of one server, explained; unknown values have reasons."""

    schema_version: int = 3
    server: str
    pool: str | None = None
    labels: Mapping[str, str]
    since: datetime
    until: datetime
    state: str  # the answer in one sentence
    lines: tuple[Line, ...] = ()  # what to do
    evidence: Mapping[str, Amount]  # every column
    baseline: Baseline | None = None
    shares: Mapping[str, LengthShares] = {}  # of lengths, where both distributions are known
    throughput: Attribution | None = None
    throughput_reason: str | None = None  # why throughput is not compared
    diagnosis: Diagnosis | None = None
    advice: Advice | None = None


def explanation(finding: Finding, start: datetime, end: datetime) -> Explanation:
    """The explanation of a server's window."""
    compared = attribution(finding.evidence, _baseline_values(finding), finding.reasons)
    diagnosis = finding.diagnosis
    both = {stem: shares(finding.histograms, f"{stem}_tokens") for stem in _LENGTHS}
    return Explanation(
        server=finding.target.key.text,
        pool=finding.target.pool,
        labels=dict(sorted(finding.target.labels.items())),
        since=start,
        until=end,
        state=state_text(finding),
        lines=what_to_do(finding),
        evidence=amounts(finding),
        baseline=baseline_of(finding),
        shares={f"{stem}_tokens": one for stem, one in both.items() if one is not None},
        throughput=None if isinstance(compared, str) else compared,
        throughput_reason=compared if isinstance(compared, str) else None,
        diagnosis=None if diagnosis is None else with_reasons(diagnosis, finding.reasons),
        advice=finding.advice,
    )


def is_healthy(finding: Finding) -> bool:
    """Whether no target is missed, no limit full, no engine slower or stuck, no GPU lost. A missing
    baseline hides none of these.
    """
    now, diagnosis = finding.evidence, finding.diagnosis
    if diagnosis is not None and not _NEEDED.isdisjoint(diagnosis.missing):
        return False
    harmed = ("slo_missed", "target_missed", "slower_at_equal_load", "slower_than_pool")
    is_calm = now.get("binding_limit") == "none" and now.get("limit_full") in (None, "none")
    return (
        not any(now.get(name) for name in (*harmed, "gpus_lost"))
        and (is_calm or (diagnosis is not None and diagnosis.leaf in _CALM_LEAVES))
        and not is_stuck(now)
    )


def is_stuck(now: Mapping[str, Any]) -> bool:
    """Whether no token came for two minutes although requests are there."""
    return (now.get("seconds_since_last_token") or 0.0) >= STUCK_SECONDS


def state_text(finding: Finding) -> str:
    """The answer in one sentence: for a healthy server its state, else line 1 of a page."""
    if is_healthy(finding):
        return healthy_text(finding)
    if finding.diagnosis is None:
        return "No rule of this server names a tree"
    return _page_of(finding).summary


def healthy_text(finding: Finding) -> str:
    """``In target, no limit full, lengths as in the baseline; speed …``."""
    now = finding.evidence
    why = finding.reasons.get("slo_missed", "")
    target = "No latency target (slo of its pool)"
    if now.get("slo_missed") is not None:
        target = "In target"
    elif why and not why.startswith("no slo"):
        target = f"Unknown whether in target ({why})"
    least, ratio = (
        now.get(f"speed_{name}_ratio") for name in ("smallest_detectable_loss", "at_equal_load")
    )
    speed = f"speed: {speed_line(now)}"
    if ratio is not None and least is not None:
        speed = f"a loss of {percent(least)} or more would show"
        if ratio < 1 - least:
            speed = f"speed at equal load {change(ratio)}, for too short a time to judge"
    page = _page_of(finding)
    lost = given_up(page)
    lead = f"{lost[0].upper()}{lost[1:]}. " if lost else ""
    traffic = ", ".join(filter(None, (_lengths_text(finding), rate(page))))
    return f"{lead}{target}, no limit full, {traffic}; {speed}"


def _lengths_text(finding: Finding) -> str:
    if finding.reference is None:
        return "lengths not compared (no baseline)"
    kind = "tuned for" if finding.reference["kind"] == "tuned_for" else "in the baseline"
    moved, is_known = [], False
    for stem in _LENGTHS:
        drift, ratio = (finding.evidence.get(f"{stem}_tokens_{n}") for n in ("drift", "mean_ratio"))
        is_known = is_known or drift is not None or ratio is not None
        if ratio is not None and not is_as_before(ratio):
            moved.append(f"{stem}s {times(ratio)}")
    if moved:
        return f"{' and '.join(moved)} of what they were {kind}"
    return f"lengths as {kind}" if is_known else "lengths not compared"


def now_text(finding: Finding) -> str | None:
    """The current problem: ``98 % of requests miss TTFT 1.5 s``; None where it is unknown."""
    if is_healthy(finding):
        return "all requests in target" if finding.evidence.get("slo_missed") is False else None
    page = _page_of(finding)
    return next(fill(page, _problems(finding.evidence)), None)


def server_text(finding: Finding | None) -> str:
    """A server on one line: ``63 % of requests miss TTFT 1.5 s; 79 running, 282 waiting``."""
    if finding is None:
        return "no usable scrape"
    now, text = finding.evidence, now_text(finding)
    if is_healthy(finding):
        text = "in target" if now.get("slo_missed") is False else "no limit full"
    counts = ((name, now.get(f"{name}_requests")) for name in ("running", "waiting"))
    parts = [f"{count(n)} {name}" if n is not None else f"{name} unknown" for name, n in counts]
    if now.get("slower_at_equal_load") is False:
        parts.append(f"speed at equal load {percent(now['speed_at_equal_load_ratio'])}")
    return f"{text or 'not judged'}; {', '.join(parts)}"


def what_to_do(finding: Finding) -> tuple[Line, ...]:
    """The cause, what moved and the advice, as lines of a page; empty for a healthy server."""
    if is_healthy(finding) or finding.diagnosis is None:
        return ()
    page = _page_of(finding)
    cause = cause_text(page)
    lines = [] if cause in page.summary.lower() else [Line("Cause", cause)]
    if moved(page) is not None:
        lines.append(Line("Moved", _moved_text(finding)))
    lines += advice_lines(page)
    if (settings := settings_line(page)) is not None:
        lines.append(Line("Settings", settings))
    if finding.advice is not None and finding.advice.not_cured:
        lines.append(Line("Also", "; ".join(finding.advice.not_cured)))
    return tuple(line for line in lines if line.text)


def _page_of(finding: Finding) -> Page:
    """The finding as a page without an incident; line 1 names no server."""
    at, diagnosis, server = finding.minute, finding.diagnosis, finding.target.key.text
    page = Page(
        event="firing",
        incident="",
        key="",
        rule=finding.rule,
        alert=finding.rule,
        severity="page",
        labels={},
        servers=Servers(concerned=1, of=1, first=(server,)),
        times=Times(started_at=at, evaluated_at=at, measured_at=at),
        evidence=amounts(finding),
        slo=slo_in(finding.evidence),
        baseline=baseline_of(finding),
        diagnosis=None if diagnosis is None else with_reasons(diagnosis, finding.reasons),
        advice=finding.advice,
    )
    is_slow = bool(page.value("slower_at_equal_load"))
    known = (*_problems(finding.evidence), "{moved}", "{meaning}")
    bad = next(fill(page, known), "the cause is not determined")
    cause = next(fill(page, ("{step_time}" if is_slow else "{limit}", "{meaning}")), "")
    do = imperatives(page)[:1]
    summary = ". ".join((f"{bad[:1].upper()}{bad[1:]}", *do))
    return page.model_copy(update={"summary": summary, "phrases": Phrases(cause=cause)})


def _problems(now: Mapping[str, Any]) -> tuple[str, ...]:
    """Templates of the problems that apply, the worst first."""
    slow, slow_of_pool = now.get("slower_at_equal_load"), now.get("slower_than_pool")
    problems = {
        "{gpus_of_server} lost": now.get("gpus_lost"),
        "no token for {seconds_since_last_token}": is_stuck(now),
        "{slower}, {missed}": slow,
        "{slower}": slow,
        "{slower_than_peers}, {missed}": slow_of_pool,
        "{slower_than_peers}": slow_of_pool,
        "{harm}": True,
    }
    return tuple(template for template, is_so in problems.items() if is_so)


def render_explained(
    finding: Finding,
    start: datetime,
    end: datetime,
    *,
    page: Page | None = None,
    today: date | None = None,
    colour: bool = False,
    next_command: str | None = None,
    piped: bool = False,
    notes: Sequence[str] = (),
) -> str:
    """Line 1 and the advice; the server; the walk; the tables.

    ``page``: its texts are the answer, None = the finding's; ``today``: its times have no date,
    None = every time has one; ``next_command``: the command to type next; ``piped``: do not wrap;
    ``notes``: more lines about the server.
    """
    width = _UNBOUNDED if piped else _WIDTH
    answer, lines = state_text(finding), what_to_do(finding)
    if page is not None:
        answer, lines = page.summary, page.lines
    out = wrap(answer, width, "  ")
    for line in lines:
        at = [] if line.at is None else [moment(line.at, today)]
        text = ": ".join(filter(None, (*at, line.text)))
        out += wrap(f"{line.label:<8} {text}", width, " " * 9)
    out += _wrapped(notes, width, "  ")
    head = (target_text(finding), window_text(finding, start, end, today))
    out += ["", *_wrapped(head, width, "  "), ""]
    out += [*_tables(finding, width), ""]
    above = [line.label.lower() for line in lines]
    texts = ((label, text) for label, text in fact_texts(finding) if text and label not in above)
    facts = (f"{label:<8} {text}" for label, text in texts)
    out += [*_wrapped(facts, width, " " * 9), ""]
    if next_command is not None:
        out += wrap(f"next:    {next_command}", width, " " * 9)
    return paint("\n".join(out).rstrip(), colour)


def _wrapped(texts: Iterable[str], width: int, indent: str) -> list[str]:
    return [line for text in texts for line in wrap(text, width, indent)]


def _tables(finding: Finding, width: int) -> list[str]:
    """The tables: walk, lengths, throughput, limits."""
    diagnosis, now, before = finding.diagnosis, finding.evidence, _baseline_values(finding)
    out: list[str] = []
    if diagnosis is not None:
        out += [render_path(diagnosis, evidence=now, width=width), ""]
    for stem in _LENGTHS:
        if (distributions := shares(finding.histograms, f"{stem}_tokens")) is not None:
            out += shares_table(distributions, stem)
    if before:
        out += _wrapped(throughput_table(now, before, finding.reasons), width, "  ")
    if diagnosis is not None:
        out.append(render_limits(diagnosis.limits, width))
    return out


def fact_texts(finding: Finding) -> tuple[tuple[str, str], ...]:
    """The other measurements, or why they are unknown: label and text, which may be empty."""
    now, reasons = finding.evidence, finding.reasons
    no_gpus = f"unknown: {reason_of('gpu_utilization_ratio', reasons)}"
    return (
        ("targets", finding.simulated_for or ""),
        ("engine", engine_text(now)),
        ("changed", finding.recent_change or ""),
        ("moved", _moved_text(finding)),
        ("speed", speed_line(now)),
        ("gpus", gpus_text(now, _baseline_values(finding)) or no_gpus),
    )


def target_text(finding: Finding) -> str:
    """The server with its model, pool, GPUs and settings, also unknown ones."""
    now, parts = finding.evidence, []
    model, pool = finding.target.labels.get("model_name"), finding.target.pool
    if model:
        parts.append(f"model {clean(model)}")
    if pool and pool != model:
        parts.append(f"pool {clean(pool)}")
    parts.append(gpu_count_text(now))
    kv = now.get("kv_cache_tokens")
    parts.append("KV size unknown" if kv is None else f"KV {kv:,.0f} tokens")
    for name in COLUMN_KNOBS:
        inferred = name == "max_num_seqs" and now.get("max_num_seqs_inferred")
        value = "unknown" if now.get(name) is None else knob(now[name])
        if name == "max_num_batched_tokens" and now.get("max_num_batched_tokens_exceeded"):
            value = f"{least_budget(now['step_tokens_max_of_process'])} or more (by steps)"
        parts.append(f"{name} {value}{' (inferred)' if inferred else ''}")
    return f"{clean(finding.target.key.text)}: {', '.join(parts)}"


def window_text(finding: Finding, start: datetime, end: datetime, today: date | None) -> str:
    """The window, its scraped part, and the baseline."""
    now, reference = finding.evidence, finding.reference
    n = now.get("finished_requests")
    counted = "finished requests unknown" if n is None else f"{count(n)} finished requests"
    if (now.get("given_up_10m_low_ratio") or 0.0) >= MANY_GAVE_UP:
        counted += f", about {count(now['given_up_requests_10m'])} gave up in 10 min"
    text = f"{_clock(start, end, today)}{_span_text(finding, start, end)}, {counted}"
    if reference is None and "provisional" in (now.get("speed_reference") or ""):
        return f"{text}; no baseline: the speed is against driftwatch's own proposal"
    if reference is None:
        return f"{text}; no baseline"
    if reference["kind"] == "tuned_for":
        return f"{text}; compared with tuned_for"
    return f"{text}; baseline {_clock(reference['from'], reference['to'], today)}"


def _span_text(finding: Finding, start: datetime, end: datetime) -> str:
    """The part of the window that counts: scraped, after a restart or hang; empty for all of it."""
    whole, observed = (end - start).total_seconds(), finding.evidence.get("duration_seconds")
    if observed is None:
        return ", nothing scraped"
    if duration(observed) == duration(whole) or observed >= whole:
        return ""
    return f", {duration(observed)} of {duration(whole)} used"


def _clock(start: datetime, end: datetime, today: date | None) -> str:
    """A window of whole minutes, with its date unless it is today."""
    dated = f"{start:%Y-%m-%d} " if start.date() == end.date() != today else ""
    return dated + span(start.astimezone(UTC), end.astimezone(UTC))


def _moved_text(finding: Finding) -> str:
    """The lengths that moved from the baseline, as on a page, or why they are not compared."""
    if finding.reference is None:
        return ""
    page, now = _page_of(finding), finding.evidence
    moved = next(fill(page, ("{lengths}",)), None)
    ratio = now.get("generation_tokens_mean_ratio")
    if moved is not None and ratio is not None and ratio < 1 and many_never_finish(now.get):
        moved += f", generations {times(ratio)} of those that finished"
    return moved or f"not compared: {reason_of('prompt_tokens_mean_ratio', finding.reasons)}"


def _baseline_values(finding: Finding) -> Mapping[str, Any]:
    return finding.reference["values"] if finding.reference else {}

"""The lines under line 1: since, limit, seen, effect, price, wrong if. Pure; reads a page's JSON.

Only lines whose content the page holds; nothing invented. Texts are plain, not escaped: that is
the renderer's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from driftwatch.evidence import BY_NAME
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.notify.advice import full_advice, no_verdict, why_of
from driftwatch.notify.advice_lines import advice_lines
from driftwatch.notify.capacity_lines import load_text, room_text
from driftwatch.notify.columns import SHORT
from driftwatch.notify.gpus import gpus_text
from driftwatch.notify.limits_text import limit_text, page_window
from driftwatch.notify.line import Line
from driftwatch.notify.numbers import (
    bare_seconds,
    change,
    clean,
    count,
    cut,
    duration,
    figure,
    is_as_before,
    knob,
    milliseconds,
    percent,
    percent_range,
    queue_wait,
    seconds,
    times,
)
from driftwatch.notify.page_values import Page, instant, reference_values, value
from driftwatch.notify.past_lines import as_before, made_of, moved_mass, not_seen, speed_lines
from driftwatch.notify.speed_lines import SPEED_ALERTS, against_pin, others_text, slo_text
from driftwatch.notify.verification_line import verification_line
from driftwatch.notify.verified_lines import changed_line, verified_lines
from driftwatch.notify.wording import (
    all_gone,
    complaints,
    length_words,
    moved,
    seen_of,
)

LINE_LIMIT = 300


# before the reason of an advice that changes nothing
_LABEL = {"none": "No knob", "no_action": "No action", "insufficient": "Replay"}

_MILLISECOND_STEMS = ("itl_", "tpot_")


def lines(page: Page) -> tuple[Line, ...]:
    """The body of a page, in reading order."""
    if page["test"]:
        return (Line("Test", "nothing is wrong; the receiver works", weight=9),)
    made = [*_body(page)]
    return tuple(Line(x.label, cut(x.text, LINE_LIMIT), x.at, x.weight) for x in made)


def _body(page: Page) -> Iterator[Line]:
    began = instant(page, "started_at")
    if page["event"] == "verified":
        yield from verified_lines(page)
        return
    if page["event"] == "advised":
        # what was measured stands on the page before, and is not said again as if it were new
        yield from changed_line(page)
        yield Line("Since", "", began, weight=6)
        yield from _meaning(page)
        yield from advice_lines(page)
        return
    if page["event"] == "firing" and (text := _continues(page)) is not None:
        yield Line("Continues", text, weight=9)
    yield Line("Since", since_text(page), began, weight=9)
    if page["event"] == "resolved":
        ended = instant(page, "resolved_at")
        yield Line("Until", "", ended, weight=9)
        if page.get("resolved_reason"):
            yield Line("Why", clean(page["resolved_reason"]), weight=8)
        yield from _was(page)
        if (document := page.get("verification")) is not None:
            today = ended.date() if ended is not None else None
            yield Line("Verified", verification_line(document, today), weight=8)
        yield from not_seen(page)
        return
    if (text := _concerned(page)) is not None:
        yield Line("Targets", text, weight=8)
    if page["severity"] == "notice":
        # it tells what moved and asks for nothing; the walk and its limits stay in the JSON
        if page["alert"] == "CoverageLost" and (text := _missing(page)) is not None:
            yield Line("Missing", text, weight=8)
        yield from moved_mass(page)
        if page["alert"] in ("LengthDrift", "TrafficShift"):
            yield from as_before(page)
        return
    yield from _gpus_lost(page)
    yield from speed_lines(page)
    if (text := limit_text(page)) is not None:
        yield Line("Limit", text, weight=7)
    if page["alert"] not in SPEED_ALERTS and (text := _seen(page)) is not None:
        yield Line("Seen", text, weight=4)
    if (text := room_text(page)) is not None:
        yield Line("Room", text, weight=5)
    if (text := _beside(page)) is not None:
        yield Line("Beside it", text, weight=4)
    if (text := _missing(page)) is not None:
        yield Line("Missing", text, weight=8)
    yield from _meaning(page)
    yield from made_of(page)
    yield from advice_lines(page)


def _was(page: Page) -> Iterator[Line]:
    """What fired, where line 1 does not say it, and which limit bound."""
    fired, gone = complaints(page, past=True)[0], bool(page.get("resolved_reason"))
    limit = None if page["severity"] == "notice" else limit_text(page)
    if gone or not any(text in page["summary"] for text in complaints(page, past=True)):
        rule = "" if page["alert"] in fired else f" ({clean(page['alert'])})"
        yield Line("Was", f"{fired}{rule}" + ("; not seen good" if gone else ""), weight=9)
        if limit is not None:
            yield Line("Limit", limit, weight=5)
    elif limit is not None:
        yield Line("Was", limit, weight=5)
    if page["alert"] == "GpuLost":
        yield from _gpus_lost(page)


def _gpus_lost(page: Page) -> Iterator[Line]:
    """Which GPUs: what the person who drains the server looks for."""
    if names := (page["evidence"].get("gpus_lost") or {}).get("names"):
        yield Line("GPU", clean(names), weight=8)


def _concerned(page: Page) -> str | None:
    """Of a pool's page, how many of how many targets, and the first of them."""
    concerned = page.get("concerned")
    if concerned is None:
        return None
    names = [clean(name) for name in concerned["first"]]
    rest = concerned["targets"] - len(names)
    more = f" and {rest} more" if rest > 0 else ""
    return f"{concerned['targets']} of {concerned['of_targets']}: {', '.join(names)}{more}"


def _continues(page: Page) -> str | None:
    """Of a pool's page: the pages of single targets that went out before it; None = none did."""
    names = [clean(name) for name in (page.get("concerned") or {}).get("told_before") or ()]
    if not names:
        return None
    pages = "page" if len(names) == 1 else "pages"
    return f"the {pages} of {', '.join(names)}: now several servers, act on this page"


def _meaning(page: Page) -> Iterator[Line]:
    """Where no knob is changed: what the leaf means, and the advice that line 1 had to cut."""
    advised, diagnosis = page["recommendation"], page["diagnosis"]
    if advised is not None and advised["action"] == "change":
        return
    meaning = diagnosis["meaning"] if diagnosis is not None else None
    if meaning:
        yield Line("Means", clean(meaning), weight=5)
    if advised is not None and (instead := advised.get("instead")):
        yield Line("Instead", "; ".join(map(clean, instead)), weight=8)
        yield Line("Why", why_of(advised), weight=6)
        return
    advice = full_advice(page) or ""
    if no_verdict(page) is None and advice not in page["summary"]:
        yield Line("Do", advice, weight=8)
    if advised is None or (no_verdict(page) is not None and advised["action"] != "insufficient"):
        return
    reason = why_of(advised)
    said = (advice.lower(), (meaning or "").lower())
    if reason not in page["summary"] and reason.lower() not in said:
        yield Line(_LABEL[advised["action"]], reason, weight=6)


def since_text(page: Page) -> str:
    """What moved since then: lengths against the reference, or why they are not compared."""
    if page["alert"] in ("CoverageLost", "EngineStuck", "GpuLost", "LatencyCreep"):
        return ""
    if page["alert"] in SPEED_ALERTS:
        return others_text(page)
    if page["alert"] == "RetuneAdvised":
        return against_pin(page)
    if page["alert"] == "UnevenTraffic":
        return "against its twins of the same minutes"
    stems = [stem for stem, _ in length_words(page)]
    parts = [_length(page, stem) for stem in stems]
    known = any(moved(page, stem) is not None for stem in stems)
    if not known:
        carried = page["evidence"].get("prompt_tokens_mean_ratio")
        if carried is None or page["event"] == "resolved":
            return ""
        why = clean(carried.get("reason") or "no reference")
        # how to give one is doctor's business, not the phone's
        return f"lengths not compared: {why.split(' (')[0]}"
    rate = value(page, "requests_per_second_ratio")
    if rate is not None and not is_as_before(rate):
        parts.append(f"completed requests {change(rate)}")
    return "; ".join(parts)


def _length(page: Page, stem: str) -> str:
    """``prompts ×2.34 (mean 512 → 1,200, n 87,000)``: from → to only where the mean is carried."""
    ratio = moved(page, stem)
    if ratio is None:
        return f"{stem}s not compared"
    if is_as_before(ratio):
        return f"{stem}s as before ({times(ratio, 3)})"
    before = _reference(page, f"{stem}_tokens_mean")
    now, n = value(page, f"{stem}_tokens_mean"), value(page, "finished_requests")
    detail = []
    if now is not None and before is not None:
        detail.append(f"mean {_tokens(before)} → {_tokens(now)}")
    elif now is not None:
        detail.append(f"mean now {_tokens(now)}")
    if n:
        detail.append(f"n {count(n)}")
    inside = f" ({', '.join(detail)})" if detail else ""
    return f"{stem}s {times(ratio, 3)}{inside}"


def _reference(page: Page, column: str) -> float | None:
    found = reference_values(page).get(column)
    return float(found) if isinstance(found, int | float) else None


def _tokens(mean: float) -> str:
    return f"{round(mean):,}" if mean >= 100 else figure(mean)


def _seen(page: Page) -> str | None:
    """What it costs: the wait inside TTFT, and shares in target where targets are known."""
    parts = []
    wait, ttft = value(page, "batch_assembly_wait_10m_seconds"), value(page, "ttft_10m_seconds")
    share = value(page, "queue_share_of_ttft_10m_ratio")
    if wait is not None and ttft is not None:
        of = f" ({percent(share)})" if share is not None else ""
        parts.append(
            f"mean wait {bare_seconds(min(wait, ttft), 3)} of {seconds(ttft, 3)} TTFT{of}, "
            f"{seen_of(value(page, 'observed_10m_seconds'))}"
        )
    slo, goals = page["slo"] or {}, []
    for stem, write in (("ttft", seconds), ("tpot", milliseconds)):
        entry = page["evidence"].get(f"{stem}_in_target_10m_ratio")
        target = slo.get(f"{stem}_seconds")
        if entry is None or entry["value"] is None or target is None:
            continue
        met = percent_range(entry["value"], entry.get("upper", entry["value"]))
        goals.append(f"{met} ({stem.upper()} {write(target)})")
    if goals:
        n = value(page, "finished_requests")
        parts.append(f"in target {', '.join(goals)}" + (f", n {count(n)}" if n else ""))
    if page["alert"] in ("EngineStuck", "GpuLost"):
        return _requests(page)
    if not parts and page["alert"] == "RetuneAdvised":
        parts.append(slo_text(page))
    if (load := load_text(page)) is not None:
        parts.append(load)
    return "; ".join(parts) or None


def _requests(page: Page) -> str | None:
    """``5.2 requests running, 29 waiting (mean of the last 10 min)``."""
    running, waiting = value(page, "running_requests"), value(page, "waiting_requests")
    known = [(running, "running"), (waiting, "waiting")]
    parts = [f"{count(n)} {word}" for n, word in known if n is not None]
    if not parts:
        return None
    first, *rest = parts
    number, word = first.rsplit(" ", 1)
    unit = "request" if number == "1" else "requests"
    return ", ".join([f"{number} {unit} {word}", *rest]) + f" (mean of the {page_window(page)})"


def _beside(page: Page) -> str | None:
    """What the target's GPUs did; None where nothing of them is known."""
    now = {column: entry["value"] for column, entry in page["evidence"].items()}
    return gpus_text(now, reference_values(page), stuck=page["alert"] == "EngineStuck")


def _missing(page: Page) -> str | None:
    """Inputs that the walk, or a whole rule, lacks, each with its reason."""
    if page["alert"] == "CoverageLost":
        names = value(page, "coverage_missing_inputs")
        if not names:
            return None
        gone = value(page, "coverage_missing_seconds")
        lasted = f", gone for {duration(gone)}" if gone else ""
        if (why := all_gone(page)) is not None:
            many = names.count(",") + 1
            return f"everything ({many} {'input' if many == 1 else 'inputs'}): {why}{lasted}"
        return f"{clean(names)}{lasted}; rules that read them give no verdict"
    diagnosis = page["diagnosis"]
    if diagnosis is None or not diagnosis["missing"]:
        return None
    return "; ".join(
        with_reason(name, page["evidence"].get(name, {}).get("reason"))
        for name in diagnosis["missing"]
    )


def with_reason(name: str, reason: str | None) -> str:
    """``name: reason``, or that it is unknown."""
    return f"{name}: {clean(reason)}" if reason else f"{name}: unknown"


def evidence_text(column: str, found: Any, reason: str | None = None, *, before: Any = None) -> str:
    """One evidence value with its short name and unit; unknown is said with its reason.

    With the reference's value ``before``, from → to.

    >>> evidence_text("batch_assembly_wait_10m_seconds", 1.655)
    'wait 1.66 s'
    >>> evidence_text("prompt_tokens_mean_ratio", 2.34)
    'prompts ×2.34'
    >>> evidence_text("lost_prefix_hits_prefill_ratio", 2.31)
    'by lost prefix hits ×2.31'
    >>> evidence_text("slo_missed", None, "no slo in the configuration")
    'target missed: unknown (no slo in the configuration)'
    """
    name = SHORT.get(column, column)
    if found is None:
        plain = column if "{}" in name else name.removesuffix(":")
        return f"{plain}: unknown" + (f" ({clean(reason)})" if reason else "")
    text = evidence_value(column, found)
    if before is not None:
        was = evidence_value(column, before)
        unit = text.partition(" ")[2]
        text = f"{was.removesuffix(f' {unit}') if unit else was} → {text}"
    return name.replace("{}", text) if "{}" in name else f"{name} {text}"


# how many times the reference's, of lengths and of the prompt tokens that are computed
_TIMES = (
    "tokens_mean_ratio",
    "tokens_mean_2m_ratio",
    "tokens_mean_10m_ratio",
    "tokens_usual_ratio",
    "prompt_tokens_ratio",
    "prefill_ratio",
)


def evidence_value(column: str, found: Any) -> str:
    """The value alone, in the unit a person reads."""
    if isinstance(found, bool):
        return "yes" if found else "no"
    if not isinstance(found, int | float):
        return clean(str(found))
    if column in COLUMN_KNOBS:
        return knob(found)
    unit = BY_NAME[column].unit if column in BY_NAME else ""
    if unit == "1":
        if column.endswith(_TIMES):
            return times(found, 3)
        if column in ("requests_per_second_ratio", "tokens_per_second_per_gpu_ratio"):
            return change(found)
        return figure(found) if "speed_at" in column else percent(found)
    if unit == "seconds":
        if column == "queue_wait_estimate_10m_seconds":
            return queue_wait(found)
        if column.startswith(_MILLISECOND_STEMS):
            return milliseconds(found)
        return duration(found) if found >= 60 else seconds(found, 3)
    if unit in ("requests", "tokens", "scrapes", "targets"):
        return count(found)
    return f"{figure(found)}/s" if unit == "1/s" else f"{figure(found)} {unit}".rstrip()

"""Line 1 of a page: where, how bad, do what. Pure; reads a page's JSON, see ``page.py``.

Words that are used: drift, demand, slower at equal load, binds, in target, no verdict: reason.
Nothing is said that the page's evidence does not hold; what is unknown is left out of line 1 and
said with its reason below (``body.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from driftwatch.knobs import COLUMN_KNOBS, KNOBS
from driftwatch.notify.advice import imperatives
from driftwatch.notify.numbers import (
    bare_seconds,
    change,
    clean,
    clock_seconds,
    count,
    cut,
    duration,
    is_as_before,
    milliseconds,
    moment,
    percent,
    percent_range,
    queue_wait,
    seconds,
    span,
    squeeze,
    times,
)
from driftwatch.notify.page_values import Page, evaluated, instant, leaf, value
from driftwatch.notify.speed_lines import creeps, replica_slow, slower, stale, uneven
from driftwatch.notify.verification_line import verification_texts

# a phone shows 120 characters, and Slack's state mark takes two of them
HEADLINE_LIMIT = 118
WHERE_LIMIT = 40
SHORT_WHERE_LIMIT = 24

NO_PAGE = "No page unless a limit binds and a target is missed"

_OF_TRAFFIC = ("LengthDrift", "TrafficShift", "UnevenTraffic")
_TRAFFIC_LEAVES = ("drifted_within_limits", "request_rate_drop")

LIMIT_WORDS: Mapping[str, str] = {
    **{name: KNOBS[name].words for name in COLUMN_KNOBS},
    "kv_cache": "KV cache",
}


# event → the word of an incident's later messages
_AFTERWARDS = {"advised": "UPDATE", "verified": "VERIFIED", "resolved": "RESOLVED"}


def state_word(page: Page) -> str:
    """The word of the state."""
    if page["test"]:
        return "TEST"
    if page["event"] in _AFTERWARDS:
        return _AFTERWARDS[page["event"]]
    return {"page": "FIRING", "ticket": "TICKET", "notice": "NOTICE"}[page["severity"]]


def marked(page: Page, text: str) -> str:
    """``text`` with the state's mark before it, for Slack: a phone's list shows it first.

    No tick where nobody saw that it is good again.
    """
    ended = "⚪ " if page.get("resolved_reason") else "✅ "
    update = "🔴 " if page["severity"] == "page" else ""
    marks = {"FIRING": "🔴 ", "UPDATE": update, "RESOLVED": ended}
    return marks.get(state_word(page), "") + text


def target_name(page: Page) -> str:
    """How a person calls the target: ``host:8000``, ``host:8000/1``, ``pool 4/8``, or the pool."""
    target = page["target"]
    instance, engine = target.get("instance"), target.get("engine", "0")
    if not instance:
        name = clean(target.get("pool") or page["incident"]["key"])
        concerned = page.get("concerned")
        if concerned is None:
            return name
        if concerned["of_targets"] == 1:
            return clean(concerned["first"][0])
        return f"{name} {concerned['targets']}/{concerned['of_targets']}"
    return clean(instance if engine == "0" else f"{instance}/{engine}")


def given_pool(page: Page) -> str | None:
    """The pool's name where somebody gave it one: not "default", not made of the model's name."""
    pool, model = page["target"].get("pool"), page["target"].get("model_name")
    if not pool or pool == "default" or (model and f"/{pool}".endswith(f"/{model}")):
        return None
    return clean(pool)


def headline(page: Page) -> str:
    """Line 1, at most 118 characters: the count goes before the imperative does.

    >>> firing = {"test": False, "event": "firing", "severity": "page", "alert": "EngineStuck",
    ...     "target": {"instance": "host:8000", "engine": "0"}, "annotations": {},
    ...     "evidence": {"seconds_since_last_token": {"value": 180.0, "unit": "seconds"}},
    ...     "diagnosis": None, "recommendation": None, "slo": None}
    >>> headline(firing)
    'FIRING host:8000: no token for 3 min. Do not change a knob; restart the engine'
    """
    name, pool = target_name(page), given_pool(page)
    wheres = [squeeze(name, WHERE_LIMIT)]
    if pool and not name.startswith(pool):
        wheres.insert(0, f"{squeeze(pool, WHERE_LIMIT)} {wheres[0]}")
    wheres.append(squeeze(name, SHORT_WHERE_LIMIT))
    word = state_word(page)
    if page["event"] == "verified":
        said = verification_texts(page["verification"], evaluated(page).date())
        texts = [f"{word} {w}: {text}" for text in said for w in wheres]
    elif page["event"] == "resolved":
        texts = [
            text for w in wheres for text in _resolved(page, f"{word} {w}", complaints(page, True))
        ]
    else:
        told = [f". {text}" for text in imperatives(page)] or [""]
        texts = [
            f"{word} {w}: {bad}{do}"
            for do in told
            for w in wheres
            for bad in complaints(page, False)
        ]
    fitting = (text for text in texts if len(text) <= HEADLINE_LIMIT)
    return next(fitting, cut(texts[-1], HEADLINE_LIMIT))


def lead(page: Page) -> str:
    """Line 1 as it is read in full: a notice of moved traffic says what it will not do.

    Not where a limit binds already: then a page may be out.
    """
    if page["test"]:
        return str(page["summary"])
    text = headline(page)
    binds = any(x["binds"] for x in (page["diagnosis"] or {}).get("limits", ()))
    quiet = not binds and (page["alert"] in _OF_TRAFFIC or leaf(page) in _TRAFFIC_LEAVES)
    if page["event"] == "firing" and page["severity"] == "notice" and quiet:
        return f"{text}. {NO_PAGE}"
    return text


def _resolved(page: Page, start: str, bads: list[str]) -> list[str]:
    began, ended = instant(page, "started_at"), instant(page, "resolved_at")
    if page.get("resolved_reason"):
        # why nobody watches it any more says more than what was true of it
        said = clean(page["resolved_reason"])
        bads = [said, said.split(" (")[0]]
    if began is None or ended is None:
        return [f"{start}: {bad}" for bad in bads]
    lasted = f"after {duration(clock_seconds(began, ended))} ({span(began, ended)})"
    return [*(f"{start} {lasted}: {bad}" for bad in bads), f"{start} {lasted}"]


def complaints(page: Page, past: bool) -> list[str]:
    """How bad, longest first; the last one always fits beside a short place."""
    by_alert = _BY_ALERT.get(page["alert"])
    found = [] if by_alert is None else by_alert(page, past)
    if not found and by_alert is None and (said := page["annotations"].get("summary")):
        found = [f"was: {clean(said)}" if past else clean(said)]
    if not found:
        found = _cost(page, past)
    if not found and leaf(page) in _TRAFFIC_LEAVES:
        found = _traffic(page, past)
    return found or [f"{clean(page['alert'])} {'was' if past else 'is'} true"]


def _cost(page: Page, past: bool) -> list[str]:
    return _missed(page, past) or _waited(page, past) or _binding(page, past)


def _missed(page: Page, past: bool) -> list[str]:
    """Requests outside a latency target: a range where the target lies inside a bucket."""
    if value(page, "slo_missed") is not True:
        return []
    slo = page["slo"] or {}
    misses = "missed" if past else "miss"
    known: list[tuple[float, str]] = []
    for stem, write in (("ttft", seconds), ("tpot", milliseconds)):
        column = f"{stem}_in_target_10m_ratio"
        least, target = value(page, column), slo.get(f"{stem}_seconds")
        if least is None or target is None:
            continue
        most = page["evidence"][column].get("upper", least)
        if most >= slo["share"]:
            continue
        share = percent_range(1 - most, 1 - least)
        known.append((most, f"{share} of requests {misses} {stem.upper()} {write(target)}"))
    texts = [text for _, text in sorted(known)]
    return texts[:1] or [f"the latency target {'was' if past else 'is'} missed"]


def _waited(page: Page, past: bool) -> list[str]:
    wait = value(page, "batch_assembly_wait_10m_seconds")
    if wait is None:
        wait = value(page, "batch_assembly_wait_seconds")
    verb = "had waited" if past else "wait"
    queued = value(page, "queue_wait_estimate_10m_seconds")
    if queued is not None and queued >= 1 and (wait is None or queued > 2 * wait):
        # what has finished waited little; what queues now is in no histogram yet
        told = queue_wait(queued)
        about = told if told.startswith("over") else f"about {seconds(queued)}"
        return [f"requests {verb} {about} for a place"]
    if wait is None or wait < 0.1:
        return []
    ttft = value(page, "ttft_10m_seconds")
    if ttft is None:
        return [f"requests {verb} {seconds(wait)}"]
    return [f"requests {verb} {bare_seconds(min(wait, ttft))} of {seconds(ttft)} TTFT"]


def _binding(page: Page, past: bool) -> list[str]:
    names = [x["name"] for x in (page["diagnosis"] or {}).get("limits", ()) if x["binds"]]
    if not names:
        return []
    bound = f"{LIMIT_WORDS.get(names[0], clean(names[0]))} {'bound' if past else 'binds'}"
    waiting = waiting_requests(page)
    return [f"{bound}, {count(waiting)} waiting", bound] if waiting and not past else [bound]


def _stuck(page: Page, past: bool) -> list[str]:
    silent = value(page, "seconds_since_last_token")
    if silent is None:
        return []
    text = f"no token {'had come ' if past else ''}for {duration(silent)}"
    present = (value(page, "running_requests") or 0) + (value(page, "waiting_requests") or 0)
    if present and not past:
        return [f"{text}, {count(present)} requests present", text]
    return [text]


def _lost(page: Page, past: bool) -> list[str]:
    lost = value(page, "gpus_lost")
    if not lost:
        return []
    of = page["evidence"]["gpus_lost"].get("of")
    were = f"{'was' if lost == 1 else 'were'} " if past else ""
    if of is not None and of > 1:
        return [f"{count(lost)} of {count(of)} GPUs {were}lost"]
    return [f"{count(lost)} {'GPU' if lost == 1 else 'GPUs'} {were}lost"]


def _deferred(page: Page, past: bool) -> list[str]:
    waiting = value(page, "deferred_requests_10m")
    share = value(page, "waiting_deferred_share_10m_ratio")
    missed = _missed(page, past)
    were = "were " if past else ""
    if missed:
        many = f"{count(waiting)} {were}deferred" if waiting else f"requests {were}deferred"
        return [f"{missed[0]}, {many}", missed[0]]
    many = f"{count(waiting)} requests {were}deferred" if waiting else f"requests {were}deferred"
    return [many] if share is None else [f"{many} in {percent(share)} of scrapes", many]


def _coverage(page: Page, past: bool) -> list[str]:
    gone = value(page, "coverage_missing_seconds")
    names = clean(value(page, "coverage_missing_inputs") or "")
    since = f" for {duration(gone)}" if gone and not past else ""
    if (why := all_gone(page)) is not None:
        if why.startswith(("not listed by ", "not scraped by ")):
            not_any_more = "had not been" if past else "no longer"
            return [f"{not_any_more}{why.removeprefix('not')}{since}"]
        return [f"{'had ' if past else ''}no input{since}: {why}", f"no input{since}"]
    text = f"inputs {'were ' if past else ''}gone{since}"
    if not names:
        return [text]
    first, _, rest = names.partition(",")
    more = f" and {rest.count(',') + 1} more" if rest else ""
    return [f"{text}: {names}", f"{text}: {first}{more}", text]


def all_gone(page: Page) -> str | None:
    """Why nothing is seen of any target of the page; None where a part is seen, or why is unknown.

    A reason stands beside the names of the missing inputs only where those are all there were.
    """
    entry = page["evidence"].get("coverage_missing_inputs") or {}
    return clean(entry["reason"]) if entry.get("value") and entry.get("reason") else None


def waiting_requests(page: Page) -> float | None:
    """How many requests wait: while the limit bound where that is known, else the window's mean."""
    bound = value(page, "binding_waiting_requests")
    found = value(page, "waiting_requests") if bound is None else bound
    return None if found is None else float(found)


def moved(page: Page, stem: str) -> float | None:
    """A mean length over the reference's, of the window that the whole page is about."""
    found = value(page, moved_column(page, stem))
    return None if found is None else float(found)


def moved_column(page: Page, stem: str) -> str:
    """The ratio that is printed: of the page's ten minutes."""
    if page["alert"] == "TrafficShift":  # against the nearest of its contexts
        return f"{stem}_tokens_drift_ratio"
    return f"{stem}_tokens_mean_ratio"


def seen_of(seconds_seen: float | None, minutes: int = 10) -> str:
    """``last 10 min``, or how much of it was seen where that is less.

    >>> seen_of(600.0), seen_of(180.0), seen_of(None)
    ('last 10 min', 'last 3 min', 'last 10 min')
    """
    most = minutes * 60.0
    return f"last {duration(most if seconds_seen is None else min(seconds_seen, most))}"


def length_words(page: Page) -> list[tuple[str, str]]:
    """The two lengths with their words, the one that the rule is about first."""
    both = [("prompt", "prompts"), ("generation", "generations")]
    signal = page["target"].get("signal", "")
    return sorted(both, key=lambda pair: not signal.startswith(pair[0]))


def _traffic(page: Page, past: bool) -> list[str]:
    """What changed in the traffic: lengths first, then the rate where no length moved."""
    parts: list[str] = []
    still: list[str] = []
    for stem, word in length_words(page):
        ratio = moved(page, stem)
        if ratio is None:
            still.append(f"{word} unknown")
        elif is_as_before(ratio):
            still.append(f"{word} as before")
        else:
            parts.append(f"{word} {times(ratio)}")
    rate = value(page, "requests_per_second_ratio")
    if not parts and rate is not None and not is_as_before(rate):
        parts.append(f"completed requests {change(rate)}")
    if not parts:
        return []
    began = instant(page, "started_at")
    when = "" if began is None or past else f" {moment(began, evaluated(page).date())}"
    start = f"traffic {'had ' if past else ''}changed{when}: "
    return [start + ", ".join(parts + still), start + ", ".join(parts)]


_BY_ALERT: Mapping[str, Callable[[Page, bool], list[str]]] = {
    "BatchLimitBinding": _cost,
    "EngineStuck": _stuck,
    "GpuLost": _lost,
    "DeferredAdmission": _deferred,
    "CoverageLost": _coverage,
    "LengthDrift": _traffic,
    "TrafficShift": _traffic,
    "UnevenTraffic": uneven,
    "RetuneAdvised": stale,
    "LatencyCreep": creeps,
    "SlowerAtEqualLoad": slower,
    "ReplicaSlow": replica_slow,
    "BatchDrift": _cost,
}

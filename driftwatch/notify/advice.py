"""A page's advice, or why it has none. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from driftwatch.collect.registry import BY_COLUMN
from driftwatch.evidence import BY_NAME
from driftwatch.knobs import COLUMN_KNOBS, flag_of
from driftwatch.model import Advice, Diagnosis, KnobMove
from driftwatch.notify.columns import name_of
from driftwatch.notify.page import Line, Page
from driftwatch.notify.phrases.limits import replicas_before_drain, room
from driftwatch.numbers import clean, figure, knob, moment, percent, plural, setting

NOTHING_TO_DO = "Nothing to do"
# requests miss a target now, although the simulation of today's settings meets it
NOT_EXPLAINED = "No setting explains it: the simulation meets the target"
_WAIT = "wait: driftwatch looks again every 10 min"
_KEEP_SETTINGS = "Do not change a setting"
BEFORE_IT = "after a change: "  # starts the text of a change that may be the cause
_ROLL_BACK = "Roll one server back and compare"  # to the release before the change
_OLD_RELEASE = re.compile(r"vllm (\S+) →")
_DRAIN = "Drain it"
_LONG_QUEUE_SECONDS = 300.0  # half of what advice calls a long queue: it drains meanwhile
_ROOM_UNKNOWN = "unknown whether the others can take its load: look at theirs before you drain it"
# reasons whose text is an action
_ADVICE_CODES = ("leaf", "engine", "gpus_lost")
OPEN_PAGE = "open_page"  # reason code of a notice: an open page of its pool has the advice
_KV = "kv_cache_usage_ratio"


def imperatives(page: Page) -> list[str]:
    """The action for line 1, the longest text first; empty where there is nothing to do."""
    advised = page.advice
    if is_bare_notice(page):
        is_said = advised is not None and advised.reason.code == OPEN_PAGE
        other = _capital(clean(advised.why)) if advised is not None and is_said else ""
        return shorter(other or page.phrases.advice)
    if advised is not None and advised.action == "change":
        return change_texts(advised)
    if (lacking := no_verdict(page)) is not None:
        return _unanswered(page, lacking)
    if advised is not None and advised.instead:
        return first_choices(advised)
    if advised is not None and advised.basis is not None and advised.action == "none":
        return shorter(_capital(clean(advised.why)))
    if advised is not None and advised.action == "no_action":
        if page.value("slo_missed"):
            return [NOT_EXPLAINED, "No setting explains it"]
        return [*shorter(f"{NOTHING_TO_DO}: {clean(advised.why)}"), NOTHING_TO_DO]
    return shorter(full_advice(page) or "")


def is_bare_notice(page: Page) -> bool:
    """Whether the page is a notice without simulated advice."""
    advised = page.advice
    return page.severity == "notice" and (
        advised is None or advised.basis is None or advised.action == "no_action"
    )


def _unanswered(page: Page, lacking: str) -> list[str]:
    """When the next answer is due; else why there is none, and what is missing for one."""
    if (again := page.asked_again_at) is not None:
        at = f"Advice at {moment(again, page.times.evaluated_at.date())}"
        return [f"{at} ({lacking})", at]
    settings = settings_to_give(page)
    if len(settings) > 1:
        return [
            f"No advice: give driftwatch {text}"
            for text in (" and ".join(settings), "both batch settings")
        ]
    if settings:
        return [f"No advice: give driftwatch {settings[0]}"]
    return shorter(f"No advice: {lacking}")


def shorter(text: str) -> list[str]:
    """The text, then ever shorter ones: without brackets, then without its last clauses."""
    shorter = [text, text.split(" (")[0], text.split(" (")[0].replace(" of this server", "")]
    shorter += [text[:at] for at in range(len(text) - 1, 0, -1) if text[at] in ",;:"]
    return [o for o in dict.fromkeys(shorter) if o and o.count("(") == o.count(")")]


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def settings_to_give(page: Page) -> list[str]:
    """Unknown settings that hide which limit is full; none while the KV cache's use is unknown."""
    if page.diagnosis is None or page.leaf != "undetermined":
        return []
    if page.diagnosis.missing != ("binding_limit",) or page.value(_KV) is None:
        return []
    return [name for name in COLUMN_KNOBS if page.value(name) is None]


def no_verdict(page: Page) -> str | None:
    """Why the diagnosis or the advice has no answer; None where it has one."""
    diagnosis, advised = page.diagnosis, page.advice
    if page.value("gpus_lost") or (advised is not None and advised.basis is not None):
        return None
    if diagnosis is not None and page.leaf == "undetermined":
        if diagnosis.missing != ("binding_limit",):
            return "the cause is not determined"
        if page.value(_KV) is None:
            return "the use of the KV cache is unknown"
        settings = settings_to_give(page)
        return f"{' and '.join(settings)} unknown" if settings else "no configured limit is full"
    if advised is not None and advised.action == "insufficient":
        # a leaf's or a rule's own advice holds without a simulation
        return None if full_advice(page) else clean(advised.why)
    return None


def page_reasons(page: Page) -> dict[str, str]:
    """The page's unknown columns → why."""
    return {name: one.reason for name, one in page.evidence.items() if one.reason}


def open_question(diagnosis: Diagnosis, reasons: Mapping[str, str]) -> str:
    """``"Did the engine keep its speed?" has no answer: …``: where the walk ended, and why.

    ``reasons``: column → why it is unknown.
    """
    whys = [_why_unknown(name, reasons).split(" (")[0] for name in diagnosis.missing]
    why = ", and ".join(dict.fromkeys(whys))
    asked = clean(diagnosis.path[-1].question if diagnosis.path else "What is the cause?")
    return f'"{_capital(asked.rpartition(": ")[2])}" has no answer: {why or "no data"}'


def _why_unknown(column: str, reasons: Mapping[str, str]) -> str:
    why = clean(reasons.get(column) or BY_NAME[column].disabled_by or "not on the page")
    if not why.startswith("not "):
        return why
    metric = BY_COLUMN[column].wire_name if column in BY_COLUMN else name_of(column)
    return f"{metric} is {why}"


def remedy(diagnosis: Diagnosis, reasons: Mapping[str, str]) -> str:
    """The setting to give or the command to run that answers the question; else to wait.

    ``reasons``: column → why it is unknown, then the remedy in brackets.
    """
    whys = [_why_unknown(name, reasons) for name in diagnosis.missing]
    fixes = dict.fromkeys(one.partition(" (")[2].partition(")")[0] for one in whys)
    texts = [f"{'run' if one.startswith('driftwatch ') else 'give'} {one}" for one in fixes if one]
    return "; ".join(texts) or _WAIT


def full_advice(page: Page) -> str | None:
    """The action in place of a setting: the leaf's, the reason's or the rule's."""
    diagnosis, advised = page.diagnosis, page.advice
    text = diagnosis.advice if diagnosis is not None else None
    if text is None and advised is not None and advised.action == "none":
        text = clean(advised.why) if advised.reason.code in _ADVICE_CODES else _KEEP_SETTINGS
    if page.is_of_many and page.leaf == "replica_slow":
        text = None  # the leaf's advice is for one server
    if page.leaf == "scheduler_regression" and (page.recent_change or "").startswith(BEFORE_IT):
        text = _ROLL_BACK
    if page.leaf == "version_change" and (
        old := _OLD_RELEASE.match(page.value("release_change") or "")
    ):
        text = f"Go back to vLLM {old[1]} on one server and compare"
    text = text or page.phrases.advice
    if text.startswith(_DRAIN) and (more := replicas_before_drain(page)):
        many = "a replica" if more == 1 else plural(more, "replica")
        text = f"Add {many}, then {text[:1].lower()}{text[1:]}"
    return None if not text else clean(_capital(text)).rstrip(".")


def setting_change(advised: Advice) -> str:
    """``max_num_seqs 8 (inferred) → 40``, and every other setting of the same change."""
    return " and ".join(
        setting(one.knob, one.from_value, one.to_value, one.from_provenance)
        for one in advised.moves
    )


def first_choices(advised: Advice) -> list[str]:
    """``Add 3 replicas (7 in all)``, ``Add 3 replicas``: the action that meets the targets where no
    setting does so alone; empty = none.
    """
    firsts = [_capital(clean(text).split(":")[0]) for text in advised.instead[:1]]
    return [*firsts, *(one.split(" (")[0] for one in firsts)]


def change_texts(advised: Advice) -> list[str]:
    """``Add 3 replicas (7 in all) and set max_num_seqs 64 → 128``, then shorter ones: each names
    the replicas and every setting.
    """
    to = " and ".join(f"{one.knob} {knob(one.to_value)}" for one in advised.moves)
    sets = [f"set {setting_change(advised)}", f"set {to}"]
    firsts = first_choices(advised)
    return [f"{first} and {one}" for one in sets for first in firsts] or [*map(_capital, sets)]


def vllm_arguments(moves: Sequence[KnobMove]) -> str:
    """The change as arguments of ``vllm serve``.

    >>> vllm_arguments([KnobMove("max_num_seqs", 8.0, 56.0)])
    '--max-num-seqs=56'
    """
    return " ".join(f"{flag_of(one.knob)}={knob(one.to_value)}" for one in moves)


def advice_lines(page: Page) -> Iterator[Line]:
    """*Change*, *Cost* and *Undo*; or the action in place of a change, and why. Skips the texts of
    line 1.
    """
    advised = page.advice
    if is_bare_notice(page):
        return
    wait = page.value("queue_wait_estimate_10m_seconds")  # an older queue may be served
    if advised is not None and advised.queue and (wait is None or wait > _LONG_QUEUE_SECONDS):
        yield Line("Queue", clean(advised.queue), weight=8)
    if advised is not None and advised.action == "change":
        yield from _change_lines(page, advised)
    elif (lacking := no_verdict(page)) is not None:
        if page.asked_again_at is not None:
            yield Line("Advice", lacking, at=page.asked_again_at, weight=7)
        elif settings := settings_to_give(page):
            keys = " and ".join([f"serving.{name}" for name in settings])
            yield Line("Do", f"give {keys} (driftwatch doctor prints the line)", weight=8)
        else:
            if lacking not in page.summary:
                yield Line("No advice:", lacking, weight=7)
            if page.diagnosis is not None and page.leaf == "undetermined":
                do = remedy(page.diagnosis, page_reasons(page))
                if do == _WAIT and page.value("slo_missed") and page.servers.first:
                    server = shlex.quote(clean(page.servers.first[0]))
                    do = f"run driftwatch recommend {server}: it says what more replicas bring"
                yield Line("Do", do, weight=8)
    elif advised is not None and advised.instead:
        yield from _instead_lines(page, advised)
    else:
        yield from _do_lines(page, advised)


def few(names: Sequence[str], total: int) -> str:
    """``A and B``, ``A, B and 3 more``."""
    *first, last = [*map(clean, names), *([f"{total - len(names)} more"] * (total > len(names)))]
    return f"{', '.join(first)} and {last}" if first else last


def settings_line(page: Page) -> str | None:
    """The warning about a configured token budget that the measured steps exceed."""
    budget = page.evidence.get("max_num_batched_tokens")
    if budget is None or not page.value("max_num_batched_tokens_exceeded"):
        return None
    if "max_num_batched_tokens is no longer" in (page.recent_change or ""):
        return "correct serving.max_num_batched_tokens in the configuration"  # Since says why
    return f"max_num_batched_tokens: {clean(budget.reason or '')}"


def _change_lines(page: Page, advised: Advice) -> Iterator[Line]:
    do, made_at = change_texts(advised)[0], _forecast_time(page, advised)
    made = f"forecast of {made_at}:" if made_at else "forecast:"
    for text in map(clean, advised.instead[:1]):
        brings = text.partition(": ")[2]
        brings = brings.replace("forecast ", f"{made} ", 1) if made_at else brings
        yield Line("Do", f"{do[:1].lower()}{do[1:]}: {brings}", weight=8)
    change = setting_change(advised)
    first = "" if change in page.summary or advised.instead else f"{change}: "
    brings = ", ".join(map(clean, advised.effect)) or clean(advised.why)
    brings = brings.replace("forecast:", made, 1)
    brings = f"Alone, {brings}" if advised.instead else _capital(brings)
    text = f"{first}restart with {vllm_arguments(advised.moves)}. {brings}"
    yield Line("Change", text, weight=8)
    if price := [clean(text) for text in advised.price if text != "restart"]:
        yield Line("Cost", "; ".join(price), weight=7)
    if advised.undo:
        wrong = clean(advised.wrong_if or "it is worse")
        yield Line("Undo", f"{_way_back(advised)} if {wrong}", weight=9)


def _forecast_time(page: Page, advised: Advice) -> str:
    """The forecast's time where it is older than the page's measurements; else empty."""
    at, measured_at = advised.at, page.times.measured_at
    return "" if at is None or at >= measured_at else moment(at, measured_at.date())


def load_text(advised: Advice) -> str:
    """``16.5 of 19.0 req/s per server (87 % of capacity)``; empty where either is unknown."""
    offered, most = advised.offered_requests_per_second, advised.capacity_requests_per_second
    if offered is None or not most:
        return ""
    share = percent(offered / most)
    return f"{figure(offered)} of {figure(most)} req/s per server ({share} of capacity)"


def _instead_lines(page: Page, advised: Advice) -> Iterator[Line]:
    """The action where no setting helps, its forecast, the alternatives and the reason."""
    do, _, brings = clean(advised.instead[0]).partition(": ")
    if do.lower() not in page.summary.lower():
        yield Line("Do", do, weight=8)
    is_simulated, load = advised.basis == "simulation", load_text(advised)
    facts = [brings.removeprefix("forecast "), f"load {load}" if load else ""]
    if text := "; ".join(filter(None, facts)):
        made_at = _forecast_time(page, advised)
        text = f"of {made_at}: {text}" if made_at else text
        yield Line("Forecast" if is_simulated else "Load", text, weight=7)
    if others := [clean(text) for text in advised.instead[1:]]:
        yield Line("Or", "; ".join(others), weight=7)
    yield Line("Why", clean(advised.why), weight=5)


def _way_back(advised: Advice) -> str:
    """``go back to 512``; for several settings, or an unknown old value, the arguments."""
    (first, *others) = advised.moves
    if first.from_value is None or others:
        return f"go back to {clean(advised.undo or '')}"
    return f"go back to {knob(first.from_value)}"


def _do_lines(page: Page, advised: Advice | None) -> Iterator[Line]:
    if advised is not None and advised.action == "no_action" and page.value("slo_missed"):
        how = f": {page.links.explain}" if page.links.explain else ""
        yield Line("Do", f"look for what else changed{how}", weight=8)
        if load := load_text(advised):
            yield Line("Load", load, weight=6)
        return
    do = full_advice(page) or ""
    if do and do.split(" (")[0].lower() not in page.summary.lower():
        yield Line("Do", do, weight=8)
    if replicas_before_drain(page) and not do.startswith(_DRAIN):
        text = "until then keep it in rotation, at a lower weight if the router can"
        yield Line("Now", text, weight=8)
    if free := room(page):
        yield Line("Room", free, weight=7)
    elif do.startswith(_DRAIN):
        yield Line("Room", _ROOM_UNKNOWN, weight=7)
    if advised is not None and advised.reason.code not in _ADVICE_CODES:
        reason = clean(advised.why)
        if reason not in page.summary and reason.lower() != do.lower():
            label = "No forecast:" if advised.action == "insufficient" else "Why"
            yield Line(label, reason, weight=6)

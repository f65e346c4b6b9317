"""The verdict in words: the change with its price, or what helps where none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftwatch.knobs import flag_of
from driftwatch.model import Advice, KnobMove, Provenance, Reason, Slo
from driftwatch.numbers import (
    figure,
    milliseconds,
    percent,
    rate,
    setting,
)
from driftwatch.recommend.advice import FIGURES, Candidate, ModelCheck
from driftwatch.recommend.alternatives import (
    PREFIX_HIT_RATIO,
    REPLICAS,
)
from driftwatch.recommend.search import KV_FULL, LEAST_SHARE, MEAN_GAIN, TIES, Gain, Option
from driftwatch.recommend.server import Knobs, setting_of
from driftwatch.recommend.situation import Situation
from driftwatch.recommend.words import (
    add_replicas,
    admit,
    aims,
    capacity_gain,
    from_to,
    gained,
    points,
    share_in_target,
    within,
)

# Attributes of a candidate that a verification holds a forecast against, base units.
FORECAST = (
    "in_target_ratio",
    "ttft_seconds",
    "itl_seconds",
    "itl_p99_seconds",
    "capacity_requests_per_second",
    "generation_tokens_per_second",
    "running_requests",
    "kv_cache_peak_ratio",
    "preemptions",
)
CAN_WAIT = "can_wait"  # code of the reason of a change that is for the load to come
_SAFE = 0.9  # of the capacity: up to there a forecast TTFT holds
_WORTH_SAYING = 1.05  # times the capacity, or the tokens per second
_REPLICAS_GAIN = 0.05  # of the share in target: replicas that bring less are no remedy


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of a verdict."""

    situation: Situation
    today: Candidate
    check: ModelCheck | None
    is_in_target: bool  # as measured and as simulated

    @property
    def share(self) -> float:
        """The share of requests that shall meet the targets."""
        slo = self.situation.slo
        return slo.share if slo else Slo().share

    @property
    def utilization(self) -> float | None:
        """Offered rate over capacity."""
        limit = self.today.capacity_requests_per_second
        return None if not limit else self.situation.offered / limit

    @property
    def load(self) -> str:
        """As ``5.48 of 6.48 req/s per server``."""
        limit, offered = self.today.capacity_requests_per_second, self.situation.offered
        return f"{figure(offered)} of {rate(limit)} per server" if limit else rate(offered)

    @property
    def doubt(self) -> str:
        """How far the simulation of today is off, behind a forecast; empty where it is good."""
        failed = {} if self.check is None else self.check.failed
        off = [
            f"{FIGURES[name]} {percent(abs(off))} too {'low' if off < 0 else 'high'}"
            for name, off in ((name, one.off_ratio) for name, one in failed.items())
        ]
        return f" (rough: simulated {' and '.join(off)})" if off else ""

    def gained(self, then: Candidate) -> str:
        """As ``+21 points``, from today's share in target."""
        return points((then.in_target_ratio or 0.0) - (self.today.in_target_ratio or 0.0))

    def now(self, knobs: Knobs) -> dict[str, float | None]:
        """Today's values of some knobs."""
        today = self.situation.settings.configurations[0]
        return {name: setting_of(today, name) for name in knobs}


def changed(
    case: Case,
    then: Candidate,
    gain: Gain,
    more_replicas: Candidate | None,
    why: str | None,
) -> Advice:
    """The change, with what it brings, what it costs and what would show it wrong.

    ``more_replicas``: the change with as many replicas as serve the load, where it alone does not;
    ``why``: what was advised before.
    """
    situation, knobs = case.situation, then.knobs
    serving, now = situation.question.server.serving, case.now(knobs)

    def provenance(name: str) -> Provenance | None:
        setting = serving.setting(name)
        return None if setting is None else setting.provenance

    knob, *others = knobs
    more = capacity_gain(case.today.capacity_requests_per_second, then.capacity_requests_per_second)
    low, high = gain.range
    share = then.in_target_ratio or 0.0
    # a queue that grows leaves fewer in target later
    hour = " in the first hour" if is_overloaded(case, then) else ""
    load = f"at {rate(situation.offered)} per server"
    gained = f" ({case.gained(then)})" if falls_short(case, then) else ""
    brings = f"forecast: {share_in_target(share, situation.slo)}{hour} {load}{gained}{case.doubt}"
    still = f"{percent(1 - share)} of requests still miss a target"
    not_cured = (still,) if share < case.share else ()
    effect = [brings, *([more] if more else [])]
    if gain.mean < MEAN_GAIN:  # chosen for its capacity
        effect.reverse()
    reason = Reason("forecast", effect[0])
    if case.is_in_target:
        reason = Reason(CAN_WAIT, f"in target at {case.load}")
    return Advice(
        action="change",
        reason=reason,
        moves=(
            KnobMove(knob, now[knob], knobs[knob], provenance(knob)),
            *tuple(KnobMove(name, now[name], knobs[name], provenance(name)) for name in others),
        ),
        price=_price(case, then),
        undo=" ".join(
            f"{flag_of(name)} {value:.0f}" if value is not None else f"without {flag_of(name)}"
            for name, value in now.items()
        ),
        wrong_if=_wrong_if(case, then),
        effect=tuple(effect),
        not_cured=not_cured if more_replicas is None else (),
        value_reason=why,
        instead=() if more_replicas is None else (_replicas(case, more_replicas),),
        replicas=None if more_replicas is None else round(more_replicas.knobs[REPLICAS]),
        forecast={
            **_numbers(then),
            "gain_mean": gain.mean,
            "gain_low": low,
            "gain_high": high,
            "knobs": dict(knobs),
            "today": _numbers(case.today),
            "offered_requests_per_second": situation.offered,
        },
        basis="simulation",
    )


def _numbers(one: Candidate) -> dict[str, float]:
    return {name: v for name in FORECAST if (v := getattr(one, name)) is not None}


def _price(case: Case, then: Candidate) -> tuple[str, ...]:
    """The time between tokens unless it falls, a KV cache that fills, and the restart."""
    before, after, slo = case.today.itl_p99_seconds, then.itl_p99_seconds, case.situation.slo
    fills = (then.kv_cache_peak_ratio or 0.0) >= KV_FULL > (case.today.kv_cache_peak_ratio or 0.0)
    kv = ("the KV cache fills at its peak and requests are preempted",) if fills else ()
    if before is None or after is None or after < before:
        return (*kv, "restart")
    text = f"inter-token latency p99 {from_to(milliseconds(before), milliseconds(after))}"
    if slo is not None and slo.tpot_seconds is not None and then.tpot_p95_seconds is not None:
        tpot, target = milliseconds(then.tpot_p95_seconds), milliseconds(slo.tpot_seconds)
        text += f" (TPOT p95 becomes {tpot}, its target is {target})"
    return (text, *kv, "restart")


def _wrong_if(case: Case, then: Candidate) -> str:
    """What would falsify it, at which demand."""
    limit, slo = then.capacity_requests_per_second, case.situation.slo
    offered, share = case.situation.offered, then.in_target_ratio or 0.0
    upto = offered if limit is None else min(max(offered, _SAFE * limit), limit)
    if share < case.share:  # at a load that it does not serve any share may come
        inside = "start within 1 s" if slo is None else "are in target"
        return f"no more requests {inside} 10 min after the restart"
    missed = "queue longer than 1 s" if slo is None else f"miss {aims(slo, ' or ')}"
    return (
        f"more than {100 * (1 - case.share):.3g} % of requests {missed} at up to {rate(upto)} per "
        "server"
    )


def is_overloaded(case: Case, then: Candidate) -> bool:
    """More comes than it serves within the targets."""
    limit = then.capacity_requests_per_second
    return limit is not None and limit < case.situation.offered


def falls_short(case: Case, then: Candidate) -> bool:
    """Whether more than :data:`TIES` of the requests too many still miss a target."""
    return is_overloaded(case, then) or (then.in_target_ratio or 0.0) < case.share - TIES


def keeps_time_per_token(case: Case, then: Candidate) -> bool:
    """Whether the forecast p95 of the time per output token meets its target."""
    slo, tpot = case.situation.slo, then.tpot_p95_seconds
    target = None if slo is None else slo.tpot_seconds
    return target is None or (tpot is not None and tpot <= target)


def why_replicas(case: Case, choice: Option) -> tuple[Reason, str | None]:
    """Why no setting is needed beside replicas; and the choice, for want of them, where it keeps
    the time per token.
    """
    then = choice.row
    share = share_in_target(then.in_target_ratio or 0.0, case.situation.slo)
    text = f"they suffice with today's settings; the best change alone brings {share}"
    move = f"set {_moves(case, then.knobs)}: forecast {share} ({case.gained(then)})"
    return Reason("replicas_suffice", text), move if keeps_time_per_token(case, then) else None


def _moves(case: Case, knobs: Knobs) -> str:
    now = case.now(knobs)
    return " and ".join(setting(name, now[name], to, None) for name, to in knobs.items())


def _replicas(case: Case, row: Candidate) -> str:
    """As ``add 3 replicas (7 in all): forecast 99 % of requests in target``."""
    have, slo = case.situation.question.replicas, case.situation.slo
    more = add_replicas(round(row.knobs[REPLICAS]) - (have or 1), have)
    return f"{more}: forecast {share_in_target(row.in_target_ratio or 0.0, slo)}{case.doubt}"


def no_change(
    case: Case,
    reason: Reason,
    change: str | None,
    replicas: Candidate | None,
    others: Sequence[Candidate],
) -> Advice:
    """What helps in place of a setting.

    ``change``: one for want of replicas; ``others``: what clients or the engine can change.
    """
    share = case.today.in_target_ratio or 0.0
    if replicas is not None and not case.is_in_target:  # they bring what a restart would have to
        helps = (replicas.in_target_ratio or 0.0) > share + _REPLICAS_GAIN
        replicas = replicas if helps else None
    return Advice(
        action="none",
        reason=reason,
        instead=(*_now(case, replicas), *filter(None, (change,))),
        replicas=None if replicas is None else round(replicas.knobs[REPLICAS]),
        later=tuple(_later(case, others)),
        basis="simulation",
    )


def why_no_knob(case: Case, gains: Sequence[Gain]) -> Reason:
    """Why none helps, or none is sure to."""
    if case.today.capacity_requests_per_second == 0.0:
        aim = aims(case.situation.slo)
        many = f"{100 * (1 - case.share):.3g} % of requests"
        return Reason("no_knob_helps", f"more than {many} miss {aim} even when served alone")
    if case.is_in_target:
        load = f"load {percent(case.utilization or 0.0)} of capacity"
        return Reason("not_worth_a_restart", f"{_suffices(case)}, {load}")
    return _none_helps(case, gains)


def _none_helps(case: Case, gains: Sequence[Gain]) -> Reason:
    """Whether nothing moves the share, or something does and is not worth it."""
    best, slo = max(gains, key=lambda gain: gain.mean, default=None), case.situation.slo
    if best is None or round(100 * best.mean) < 1:
        brings = "lets" if slo is None else "brings"
        budget = case.situation.settings.budget_known
        knobs = "max_num_seqs or max_num_batched_tokens" if budget else "max_num_seqs"
        text = f"no other {knobs} {brings} more requests {within(slo)}"
        return Reason("no_knob_helps", text)
    moves = _moves(case, best.knobs)
    inside = "of requests that start within 1 s" if slo is None else within(slo)
    text = gained(best.mean, *best.range, inside)
    if best.mean < MEAN_GAIN or float(best.shares.mean()) < LEAST_SHARE:
        return Reason("not_worth_a_restart", f"at best {text} ({moves})")
    chance = percent(best.chance_of_harm)
    return Reason(
        "not_sure_to_help",
        f"{moves} would bring {text}, and lose 2 with a chance of {chance}",
    )


def _now(case: Case, replicas: Candidate | None) -> Iterator[str]:
    """What can be done at any hour: more replicas, less load."""
    limit, have = case.today.capacity_requests_per_second, case.situation.question.replicas
    if replicas is not None:
        yield _replicas(case, replicas)
    if limit and limit * _WORTH_SAYING < case.situation.offered:
        yield admit(limit, have, case.situation.offered)


def _later(case: Case, others: Sequence[Candidate]) -> Iterator[str]:
    """What clients or the engine must be changed for: work of office hours."""
    limit = case.today.capacity_requests_per_second
    for one in others:
        then, ((name, value),) = one.capacity_requests_per_second, one.knobs.items()
        if then and limit and then > limit * _WORTH_SAYING:
            cached = f"cache {percent(value)} of the prompt tokens"
            do = cached if name == PREFIX_HIT_RATIO else "use an fp8 KV cache"
            yield f"{do}: {capacity_gain(limit, then)}"


def no_action(case: Case) -> Advice:
    """Inside the targets with margin: nobody has to do anything."""
    limit = case.today.capacity_requests_per_second
    load = f", load {percent(case.utilization)} of capacity" if case.utilization else ""
    room = f" ({figure(case.situation.offered)} of {figure(limit)} req/s)" if limit else ""
    return Advice(
        action="no_action",
        reason=Reason("in_target", f"{_suffices(case)}{load}{room}"),
        basis="simulation",
    )


def _suffices(case: Case) -> str:
    # without a figure: that of a simulation would contradict the measured one in the same line
    return f"today's settings suffice by simulation ({aims(case.situation.slo)})"

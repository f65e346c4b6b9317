"""BLIND in words: where speed was not judged, and where lengths would not show. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from driftwatch.numbers import clean, plural
from driftwatch.report.report import Blind

_MOST_NAMED = 3  # servers; more are counted
_MOST_ALERTS = 6
_SHOWN_RATIO = 0.0005


def blind_texts(blind: Blind) -> list[str]:
    """Where speed was not judged, the largest reason first, and where lengths would not show."""
    if blind.not_judged_ratio is None:
        return ["no minute of the week is stored"]
    reasons = sorted(blind.by_reason.items(), key=lambda pair: -pair[1])
    shown = _adding_up(reasons, blind.not_judged_ratio)
    texts = [f"speed not judged in {_tenths(blind.not_judged_ratio)} % of server-minutes:"]
    if not blind.not_judged_ratio:
        texts = ["speed judged in every server-minute"]
    elif len(shown) == 1:
        texts, shown = [f"{texts[0]} {shown[0][0]}"], []
    texts += [f"{_tenths(share)} % {reason}" for reason, share in shown]
    if silent := blind.could_not_fire:
        more = len(silent) - _MOST_ALERTS
        named = ", ".join(clean(name) for name in silent[:_MOST_ALERTS])
        named += f" and {more} more" if more > 0 else ""
        texts.append(f"could not fire for want of data: {named}")
    if unseen := blind.doubled_lengths_unseen:
        named = f" ({', '.join(unseen)})" if len(unseen) <= _MOST_NAMED else ""
        texts.append(f"on {plural(len(unseen), 'server')}{named} lengths ×2 would go unnoticed")
    return texts


def _adding_up(reasons: Sequence[tuple[str, float]], whole: float) -> list[tuple[str, float]]:
    """Reasons with shares in tenths of a percent that add up to the whole's; the smallest are 0
    and left out.

    >>> _adding_up([("a", 0.00449), ("b", 0.00149), ("c", 0.0002)], 0.00618)
    [('a', 0.005), ('b', 0.001)]
    """
    tenths = {name: int(1000 * share) for name, share in reasons}
    left = round(1000 * whole) - sum(tenths.values())
    rests = sorted(reasons, key=lambda pair: int(1000 * pair[1]) - 1000 * pair[1])
    for name, _ in rests[: max(left, 0)]:
        tenths[name] += 1
    return [(name, tenths[name] / 1000) for name, _ in reasons if tenths[name]]


def _tenths(ratio: float) -> str:
    """A share in tenths of a percent, without its sign.

    >>> _tenths(0.0694), _tenths(1.0), _tenths(0.0003), _tenths(0.0)
    ('6.9', '100', '<0.1', '0')
    """
    if ratio < _SHOWN_RATIO:
        return "<0.1" if ratio else "0"
    return "100" if ratio == 1 else f"{100 * ratio:.1f}"

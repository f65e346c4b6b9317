"""Values of vLLM's flags: what its parser refuses, and what it takes for something else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from driftwatch.vllm_arguments.command_line import human_int
from driftwatch.vllm_arguments.table import FLAGS, Flag, Version, version_text

# every problem of vLLM's arguments; each has a heading in docs/sre/vllm-arguments.md
CODES = frozenset(
    (
        *("removed-flag", "too-new-flag", "no-such-flag", "unknown-flag", "abbreviated-flag"),
        *("repeated-flag", "dash", "flag-value", "size-suffix", "no-value", "takes-no-value"),
        *("flag-conflict", "json", "quote", "one-word", "not-text", "chart-key", "helm-template"),
        "no-command-line",
        *("removed-variable", "too-new-variable", "unknown-variable"),
    )
)
TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off"})
_SUFFIXED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtT])(?:[iI]?[bB])?\s*", re.ASCII)
_HUMAN_IN_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|\b(\d+(?:\.\d+)?[kKmMgGtT])\b', re.ASCII)
# the last release in which max_model_len is no word
_AUTO = frozenset({"auto", "-1"})
_MOST_DIGITS = 30  # of a number: what is longer is none of vLLM's


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a value."""

    code: str
    message: str
    help_text: str | None = None
    severity: str = "error"
    start: int = 0  # offset in the value's text
    length: int | None = None  # None: to its end


def is_unknown(text: str) -> bool:
    """Whether only a shell, Kubernetes or Helm knows the value."""
    return any(mark in text for mark in ("$", "`", "{{", "}}"))


def number_of(flag: Flag, text: str, version: Version | None) -> float | None:
    """The number that vLLM reads; None where it is unknown, none, or refused."""
    if is_unknown(text) or any(f.severity == "error" for f in faults(flag, text, version)):
        return None
    kind = flag.kind_in(version)
    if kind == "size" and text.strip().lower() in _AUTO:
        return None
    if kind in ("int", "size"):
        return float(human_int(text)) if kind == "size" else float(int(text))
    return float(text) if kind == "float" else None


def faults(flag: Flag, text: str, version: Version | None) -> Iterator[Fault]:
    """What is wrong with the value of a flag; a value that only a shell knows has nothing wrong."""
    kind = flag.kind_in(version)
    if is_unknown(text):
        return
    if kind in ("int", "size"):
        yield from _whole(flag, kind, text)
    elif kind == "float":
        yield from _fraction(flag, text)
    elif kind == "json" and "." not in flag.name:
        yield from _json(flag, text, version)


def _whole(flag: Flag, kind: str, text: str) -> Iterator[Fault]:
    if kind == "size" and text.strip().lower() in _AUTO and flag.name == "max-model-len":
        return
    try:
        if len(text) > _MOST_DIGITS:
            raise ValueError
        number = human_int(text) if kind == "size" else int(text)
    except ValueError:
        yield Fault("flag-value", f"{flag.written} takes a whole number", _instead(text))
        return
    yield from _range(flag, text, float(number))
    if kind == "size" and (match := _SUFFIXED.fullmatch(text)) and match[2].islower():
        upper = match[2].upper()
        more = None if "." in match[1] else human_int(match[1] + upper)
        help_text = f"{match[1]}{upper} is {more:,}" if more is not None else None
        yield Fault("size-suffix", f"vLLM reads {text} as {number:,}", help_text, "warning")


def _instead(text: str) -> str | None:
    """The number that is meant, in digits."""
    match = _SUFFIXED.fullmatch(text)
    if match is not None and len(text) <= _MOST_DIGITS:
        decimal = human_int(match[1] + match[2].lower())
        if "." in match[1]:
            return f"write {decimal}"
        binary = human_int(match[1] + match[2].upper())
        return f"write {binary}, or {decimal}"
    digits = text.replace(",", "").replace(" ", "").replace("'", "")
    if digits.isascii() and digits.isdecimal():
        return f"write {digits}"
    try:
        number = float(text)
    except ValueError:
        return None
    return f"write {number:.0f}" if number.is_integer() and abs(number) < 1e12 else None


def _fraction(flag: Flag, text: str) -> Iterator[Fault]:
    try:
        number = float(text)
    except ValueError:
        share = text.strip().removesuffix("%")
        help_text = None
        if share != text.strip() and share.isascii() and share.isdecimal() and len(share) < 4:
            help_text = f"write {int(share) / 100:g}"
        yield Fault("flag-value", f"{flag.written} takes a number", help_text)
        return
    if not math.isfinite(number):
        yield Fault("flag-value", f"{flag.written} takes a finite number")
        return
    yield from _range(flag, text, number)


def _range(flag: Flag, text: str, number: float) -> Iterator[Fault]:
    least, most = flag.least, flag.most
    if least and (number <= float(least[1:]) if least[0] == ">" else number < float(least)):
        wanted = f"above {least[1:]}" if least[0] == ">" else f"at least {least}"
        yield Fault("flag-value", f"{flag.written} {text} must be {wanted}")
    if most and (number >= float(most[1:]) if most[0] == "<" else number > float(most)):
        wanted = f"below {most[1:]}" if most[0] == "<" else f"at most {most}"
        help_text = None
        if most in ("1", "1.0", "<1.0") and number <= 100:
            help_text = f"it is a share: write {number / 100:g}"
        yield Fault("flag-value", f"{flag.written} {text} must be {wanted}", help_text)


def _json(flag: Flag, text: str, version: Version | None) -> Iterator[Fault]:
    plain = _HUMAN_IN_JSON.sub(lambda m: m[1] or "1".ljust(len(m[2]), "0"), text)
    try:
        value = json.loads(plain)
    except (ValueError, RecursionError) as error:
        start = min(getattr(error, "pos", 0), max(len(text) - 1, 0))
        reason = getattr(error, "msg", "nested too deep").split(":")[0]
        reason = reason[:1].lower() + reason[1:]
        help_text = None
        if "'" in text and '"' not in text:
            help_text = "JSON quotes names and text with double quotes"
        yield Fault(
            "json", f"{flag.written} is no JSON: {reason}", help_text, start=start, length=1
        )
        return
    prefix = f"{flag.name}."
    if not isinstance(value, dict) or not any(name.startswith(prefix) for name in FLAGS):
        return
    for key, inner in value.items():
        one = FLAGS.get(prefix + key)
        start = max(text.find(f'"{key}"'), 0)
        length = len(key) + 2
        if one is None or (version is not None and not one.is_in(version)):
            yield _no_key(flag, key, one, version, start, length)
        elif one.kind in ("int", "float") and isinstance(inner, int | float | str):
            for fault in faults(one, str(inner), version):
                message = fault.message.replace(one.written, f"{key} of {flag.written}")
                yield Fault(fault.code, message, fault.help_text, fault.severity, start, length)


def _no_key(
    flag: Flag, key: str, one: Flag | None, version: Version | None, start: int, length: int
) -> Fault:
    import difflib

    if one is not None and version is not None:
        here = version_text(version)
        message = f"{flag.written} of vLLM {here} has no {key}"
        if one.until is not None and one.until < version:
            message += f": {version_text(one.until)} was the last with it"
        elif one.since is not None:
            message += f": it is new in {version_text(one.since)}"
        return Fault("removed-flag", message, None, "error", start, length)
    prefix = f"{flag.name}."
    keys = [name.removeprefix(prefix) for name in FLAGS if name.startswith(prefix)]
    close = difflib.get_close_matches(key, keys, n=1)
    help_text = f"did you mean {close[0]}?" if close else None
    message = f"{flag.written}: {key} is not in the table of its keys"
    return Fault("unknown-flag", message, help_text, "warning", start, length)

"""vLLM's command line: its words, the flags that driftwatch reads, and mistakes in them.

A check raises no error: it adds each problem to the file, at its flag.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from driftwatch.knobs import KNOBS, refusal
from driftwatch.yaml_positions import Place, Scalar, YamlFile

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])", re.ASCII)
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Flag(NamedTuple):
    """A flag of a command line."""

    written: str
    name: str  # with dashes, as vLLM documents it
    value: str | None  # after "=", else the next word; None where there is neither
    attached: bool  # the value came after "="


def human_int(text: str) -> int:
    """A number as vLLM's command line takes it: ``8192``, ``8k`` = 8,000, ``8K`` = 8,192.

    Raises ValueError: vLLM would not take it.
    """
    text = text.strip()
    match = _HUMAN.fullmatch(text)
    if match is None:
        return int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    return int(number) * _BINARY[suffix]  # 1.5K is refused, as by vLLM


def plain_words(text: str) -> list[str]:
    """Every word of a shell text, without its comments.

    A word with ``$`` or a backtick keeps it: only the shell knows its value.

    Raises ValueError: a quote is never closed.

    >>> plain_words("vllm serve m --port '8000' && ls")
    ['vllm', 'serve', 'm', '--port', '8000', '&&', 'ls']
    """
    try:
        return shlex.split(text.replace("\\\n", ""), comments=True)
    except ValueError:
        raise ValueError("a quote is never closed") from None


def words_of(args: Sequence[str]) -> list[str]:
    """The words of a command line; a script behind ``sh -c`` is split as the shell would."""
    words: list[str] = []
    for before, word in zip(["", *args], args, strict=False):
        if re.fullmatch(r"-[a-z]*c", before) and any(char.isspace() for char in word):
            try:
                words += plain_words(word)
            except ValueError:
                words += word.split()
        else:
            words.append(word)
    return words


def flags_of(args: Sequence[str]) -> Iterator[Flag]:
    """Every word of a command line as a flag with its value, even if it is none."""
    words = words_of(args)
    for word, following in zip(words, [*words, None][1:], strict=True):
        written, equals, attached = word.partition("=")
        name = written.replace("_", "-") if written.startswith("--") else written
        value = attached if equals else following
        yield Flag(written, name, None if value is None else value.strip(), bool(equals))


# vLLM's argument → our field
SETTINGS: Mapping[str, str] = {
    **{name: name for name in KNOBS},
    "max_model_len": "max_model_len",
    "block_size": "kv_block_tokens",
    "api_server_count": "api_server_count",
}
FIELDS: Mapping[str, str] = {
    **{f"--{name.replace('_', '-')}": field for name, field in SETTINGS.items()},
    "-asc": "api_server_count",
}
# their parser is ``human_readable_int``: 4k is 4,000 (vLLM 0.32 engine/arg_utils.py)
_WITH_SUFFIX = frozenset({"max_model_len", "max_num_batched_tokens", "max_num_queued_tokens"})


@dataclass(frozen=True, slots=True)
class Gone:
    """A flag that vLLM no longer has, or never had."""

    until: str | None  # the release that removed it; None = there never was one
    instead: str


GONE: Mapping[str, Gone] = {
    "--num-scheduler-steps": Gone(
        "0.10", "it ran several steps at once in the engine before V1; use --async-scheduling"
    ),
    "--preemption-mode": Gone(
        "0.11",
        "V1 preempts by computing again, it does not swap; use --kv-offloading-size",
    ),
    "--swap-space": Gone("0.18", "V1 does not swap; use --kv-offloading-size"),
    "--scheduler-delay-factor": Gone("0.11", "V1 never waits to fill a batch; remove it"),
    "--max-num-partial-prefills": Gone("0.27", "use --long-prefill-token-threshold"),
    "--max-long-partial-prefills": Gone("0.27", "use --long-prefill-token-threshold"),
    "--use-v2-block-manager": Gone("0.10", "it is the only block manager; remove it"),
    "--throughput-optimization-level": Gone(None, "use --performance-mode throughput"),
    "--chunked-prefill-batch-size": Gone(None, "use --max-num-batched-tokens"),
}


def number_of(flag: Flag) -> int | None:
    """The value of a flag of :data:`FIELDS`.

    None where only a shell or Kubernetes knows it (``$SEQS``, ``{{ .seqs }}``), and where it means
    "unset": ``auto``, -1, or a 0 that turns the setting off.

    Raises ValueError: it has no value, or one that vLLM refuses.
    """
    field, value = FIELDS[flag.name], flag.value
    if value is None:
        raise ValueError(f"{flag.written} has no value")
    if "$" in value or "`" in value or "{{" in value or value in {"auto", "-1"}:
        return None
    try:
        number = human_int(value) if field in _WITH_SUFFIX else int(value)
    except ValueError:
        wrong = f"{flag.written} {value!r} is not a number that vLLM would take"
        raise ValueError(wrong) from None
    if number == 0 and field in KNOBS and KNOBS[field].can_be_off:
        return None
    if number <= 0:
        raise ValueError(f"{flag.written} {value!r} must be above 0")
    return number


def check_text(text: Scalar, file: YamlFile) -> None:
    """Add every problem of a command line, or of the part after ``vllm serve``, at its flag."""
    line = str(text.value)
    try:
        words = plain_words(line)
    except ValueError as error:
        file.add(text.place, "quote", str(error))
        return
    places, end = [], 0
    for word in words:
        # a word with quotes or backslashes in it stands in the text in another form
        begin = line.find(word, end) if word else -1
        if begin < 0:
            places.append(text.place)
            continue
        end, before = begin + len(word), line[:begin]
        column = begin - (before.rfind("\n") + 1) + 1
        name = len(word.partition("=")[0])
        places.append(file.inside(text, before.count("\n") + 1, column, name))
    check_words(words, places, file)


def check_words(words: Sequence[str], places: Sequence[Place], file: YamlFile) -> None:
    """Add every problem of one command line, at the places of its words."""
    last: dict[str, tuple[float, Place]] = {}
    for flag, place in zip(flags_of(words), places, strict=False):
        if flag.written == "--":
            break
        if (gone := GONE.get(flag.name)) is not None:
            if gone.until is None:
                file.add(place, "no-such-flag", f"no vLLM has a flag {flag.name}", gone.instead)
            else:
                message = f"vLLM {gone.until} removed {flag.name}"
                file.add(place, "removed-flag", message, gone.instead, "warning")
        if (field := FIELDS.get(flag.name)) is None:
            continue
        last.pop(field, None)
        try:
            number = number_of(flag)
        except ValueError as error:
            file.add(place, "flag-value", str(error))
            continue
        if number is not None:
            last[field] = number, place
    why = refusal({field: number for field, (number, _) in last.items()})
    if why is not None:
        file.add(last["max_num_batched_tokens"][1], "flag-conflict", why)

"""Command lines as words, and words as vLLM's parser takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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

    Raises ValueError: it is no such number.
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
    """Every word of a command line as a flag with its value, those that are none as well."""
    words = words_of(args)
    for word, following in zip(words, [*words, None][1:], strict=True):
        written, equals, attached = word.partition("=")
        name = written.replace("_", "-") if written.startswith("--") else written
        value = attached if equals else following
        yield Flag(written, name, None if value is None else value.strip(), bool(equals))

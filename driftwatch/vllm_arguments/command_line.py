"""Command lines as words with their places, and words as vLLM's parser takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])", re.ASCII)
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ENDS = "\n;&|()<>"  # ends a word of the shell outside quotes
_REDIRECTIONS = "<>"


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command line and where it stands in its text."""

    text: str  # without the shell's quotes
    offsets: tuple[int, ...]  # of each character of ``text`` in the source text


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


def split(text: str) -> list[list[Word]]:
    """The commands of a shell text, each as its words; comments and redirections are left out.

    Quotes, backslashes and line continuations are taken as by the shell. A word with ``$`` or a
    backtick keeps it: only the shell knows its value. An open quote ends with the text.

    >>> [[w.text for w in command] for command in split("A=1 vllm serve 'm x' --port=1 && ls")]
    [['A=1', 'vllm', 'serve', 'm x', '--port=1'], ['ls']]
    """
    commands: list[list[Word]] = [[]]
    at, redirected = 0, False
    while at < len(text):
        char = text[at]
        if text.startswith("\\\n", at):
            at += 2
        elif char in " \t\r":
            at += 1
        elif char == "#":
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif char in _REDIRECTIONS:
            if commands[-1] and _is_descriptor(commands[-1][-1], at):
                commands[-1].pop()
            redirected = True
            at += 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip("<>&|"))
        elif char in _ENDS:
            if commands[-1]:
                commands.append([])
            at, redirected = at + 1, False
        else:
            word, at = _word(text, at)
            if not redirected:
                commands[-1].append(word)
            redirected = False
    return [command for command in commands if command]


def _is_descriptor(word: Word, at: int) -> bool:
    """Whether the word before a redirection is the ``2`` of ``2>``."""
    return word.text.isdecimal() and word.offsets[-1] == at - 1


def plain_words(text: str) -> list[str]:
    """Every word of a shell text.

    Raises ValueError: a quote is never closed.

    >>> plain_words("vllm serve m --port '8000'")
    ['vllm', 'serve', 'm', '--port', '8000']
    """
    if is_open(text):
        raise ValueError("a quote is never closed")
    return [word.text for command in split(text) for word in command]


def is_open(text: str) -> bool:
    """Whether a quote of the text is never closed.

    >>> is_open("--port '8000"), is_open("--port 8000")
    (True, False)
    """
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif not quote and char == "#" and text[at - 1 : at] in ("", " ", "\t", "\n"):
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        at += 1
    return bool(quote)


def _word(text: str, at: int) -> tuple[Word, int]:
    """The word that begins here, and where it ends."""
    characters: list[str] = []
    offsets: list[int] = []
    quote = ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == quote:
                quote, at = "", at + 1
                continue
            if char == "\\" and quote == '"' and text[at + 1 : at + 2] in ('"', "\\", "$", "`"):
                at += 1
        elif char in "'\"":
            quote, at = char, at + 1
            continue
        elif char in " \t\r" or char in _ENDS:
            end = _substitution_end(text, at) if char == "(" and text[at - 1 : at] == "$" else at
            if end == at:
                break
            characters += text[at:end]
            offsets += range(at, end)
            at = end
            continue
        elif char == "\\":
            if text.startswith("\\\n", at):
                at += 2
                continue
            at += 1
        if at < len(text):
            characters.append(text[at])
            offsets.append(at)
        at += 1
    return Word("".join(characters), tuple(offsets)), at


def _substitution_end(text: str, at: int) -> int:
    """Behind the bracket that closes the one here; the end of the text where none does."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            return end + 1
    return len(text)


def words_of(args: Sequence[str]) -> list[str]:
    """The words of a command line; a script behind ``sh -c`` is split as the shell would."""
    words: list[str] = []
    for position, word in enumerate(args):
        if position > 0 and is_script(args[position - 1]) and any(ch.isspace() for ch in word):
            words += [one.text for command in split(word) for one in command]
        else:
            words.append(word)
    return words


def is_script(word_before: str) -> bool:
    """Whether the word after ``-c``, ``-lc``, … is a script."""
    return re.fullmatch(r"-[a-z]*c", word_before) is not None


def flags_of(args: Sequence[str]) -> Iterator[Flag]:
    """Every word of a command line as a flag with its value, those that are none as well."""
    words = words_of(args)
    for word, following in zip(words, [*words[1:], None], strict=True):
        yield flag_of(word, following)


def flag_of(word: str, following: str | None = None) -> Flag:
    """A word as a flag with its value."""
    written, equals, attached = word.partition("=")
    name = written.replace("_", "-") if written.startswith("--") else written
    value = attached if equals else following
    return Flag(written, name, None if value is None else value.strip(), bool(equals))

"""The table of vLLM's flags by release, and what stands in place of those that are gone.

``flags.tsv`` is read from vLLM's own source releases (``scripts/vllm-flags``); ``cures.toml`` is
written by hand.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driftwatch.knobs import ARGUMENTS

Version = tuple[int, int]  # major, minor: patch releases change no flag of the scheduler
HERE = Path(__file__).parent

# groups of flags that no other server has: one of them shows that a command line is vLLM's
_OWN_GROUPS = frozenset({"SchedulerConfig", "CacheConfig", "SpeculativeConfig", "OffloadConfig"})
_OWN = frozenset(
    {"max-model-len", "tensor-parallel-size", "pipeline-parallel-size", "speculative-config",
     "enforce-eager", "distributed-executor-backend", "data-parallel-size", "enable-lora",
     "num-speculative-tokens", "speculative-model"}
)  # fmt: skip
_COMMON = frozenset({"block-size", "watermark"})  # in those groups, but a word of others too


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of ``vllm serve``, or one variable that vLLM reads."""

    name: str  # without dashes: ``max-num-seqs``, ``speculative-config.model``, ``VLLM_USE_V1``
    # int, size (4k is 4,000), float, text, json, list (several words), on (no value), switch (also
    # --no-…), bool (with or without a value), env
    kind: str
    since: Version | None  # first release that has it; None = the table's first, or before
    until: Version | None  # last release that has it; None = the table's last
    least: str = ""  # smallest value: ``1``, or ``>0``
    most: str = ""  # largest value: ``1``, or ``<1``
    aliases: tuple[str, ...] = ()  # as written: ``-tp``
    group: str = ""  # vLLM's class of its field
    earlier: tuple[str, Version] | None = None  # another kind, up to that release

    @property
    def written(self) -> str:
        """As typed: ``--max-num-seqs``."""
        return self.name if self.kind == "env" else f"--{self.name}"

    @property
    def knob(self) -> str | None:
        """The entry of ``driftwatch/knobs.py``; None where it is none."""
        return ARGUMENTS.get(self.name.replace("-", "_"))

    @property
    def is_own(self) -> bool:
        """Whether it shows that a command line is vLLM's."""
        return self.name in _OWN or (self.group in _OWN_GROUPS and self.name not in _COMMON)

    def kind_in(self, version: Version | None) -> str:
        """Its kind in a release."""
        if version is not None and self.earlier is not None and version <= self.earlier[1]:
            return self.earlier[0]
        return self.kind

    def is_in(self, version: Version) -> bool:
        """Whether a release has it."""
        return (self.since or FIRST) <= max(version, FIRST) and version <= (self.until or version)


@dataclass(frozen=True, slots=True)
class Cure:
    """What stands in place of a flag that is gone or never was."""

    why: str | None = None  # why it is gone
    instead: tuple[str, ...] = ()  # names of flags
    value: str | None = None  # of the flag that stands in its place


def parse_version(text: str) -> Version:
    """``v0.9.1``, ``0.9``, ``0.10.2+cu128`` → (major, minor).

    Raises ValueError: it is no version of vLLM.

    >>> parse_version("v0.10.2")
    (0, 10)
    """
    match = re.fullmatch(r"\s*v?(\d{1,3})\.(\d{1,3})(?:[.+-]\S*|rc\d+)?\s*", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is no version such as 0.32")
    return int(match[1]), int(match[2])


def version_text(version: Version) -> str:
    """``0.32``."""
    return f"{version[0]}.{version[1]}"


def version_of_image(image: str) -> Version | None:
    """The release in an image's name; None where it has none (``latest``, a digest, a date).

    >>> version_of_image("vllm/vllm-openai:v0.9.1"), version_of_image("vllm/vllm-openai:latest")
    ((0, 9), None)
    """
    name, _, tag = image.partition("@")[0].rpartition(":")
    if "vllm" not in name.rpartition("/")[2].lower():
        return None
    match = re.match(r"v?(0\.\d{1,3})(?![\d])", tag) or re.search(r"vllm[_-]?v?(0\.\d{1,3})", tag)
    return None if match is None else parse_version(match[1])


def flag_typed(word: str) -> Flag | None:
    """The flag of a word as typed, without its value: ``--max_num_seqs``, ``-tp``.

    ``--speculative-config.model`` is a flag of its own; of a configuration whose keys the table
    does not have, the configuration is meant.
    """
    if not word.startswith("--"):
        return FLAGS.get(_SPELLINGS.get(word, ""))
    name, dot, key = word[2:].partition(".")
    name = name.replace("_", "-")
    one = FLAGS.get(name) or FLAGS.get(_SPELLINGS.get(f"--{name}", ""))
    return (FLAGS.get(f"{one.name}.{key}") or one) if dot and one is not None else one


def abbreviated(name: str, version: Version | None) -> Flag | None:
    """The only flag of a release that begins so: vLLM's parser takes it (``argparse``)."""
    there = {
        one.name: one
        for one in FLAGS.values()
        if one.name.startswith(name)
        and "." not in one.name
        and (one.until is None if version is None else one.is_in(version))
    }
    return next(iter(there.values())) if len(there) == 1 and len(name) > 3 else None


def nearest(name: str, *, cutoff: float = 0.75) -> str | None:
    """The flag that is meant by a misspelled name; None without one."""
    names = [one for one in FLAGS if "." not in one]
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return close[0] if close else None


def _version(text: str) -> Version | None:
    return parse_version(text) if text else None


def _rows() -> tuple[Version, Version, dict[str, Flag], dict[str, Flag]]:
    lines = (HERE / "flags.tsv").read_text(encoding="utf-8").splitlines()
    first, last = re.findall(r"\d+\.\d+", lines[0])
    flags: dict[str, Flag] = {}
    variables: dict[str, Flag] = {}
    for line in lines[2:]:
        cells = [*line.split("\t"), *[""] * 9][:9]
        kind, until = cells[8].split() if cells[8] else ("", "")
        one = Flag(
            cells[0],
            cells[1],
            _version(cells[2]),
            _version(cells[3]),
            cells[4],
            cells[5],
            tuple(cells[6].split()),
            cells[7],
            (kind, parse_version(until)) if kind else None,
        )
        (variables if one.kind == "env" else flags)[one.name] = one
    return parse_version(first), parse_version(last), flags, variables


FIRST, LAST, _flags, _variables = _rows()
FLAGS: Mapping[str, Flag] = _flags  # name → flag
VARIABLES: Mapping[str, Flag] = _variables  # name → variable
_SPELLINGS: Mapping[str, str] = {alias: one.name for one in FLAGS.values() for alias in one.aliases}
CURES: Mapping[str, Cure] = {
    name: Cure(cure.get("why"), tuple(cure.get("instead", ())), cure.get("value"))
    for name, cure in tomllib.loads((HERE / "cures.toml").read_text(encoding="utf-8")).items()
}
RELEASES = f"{version_text(FIRST)} to {version_text(LAST)}"

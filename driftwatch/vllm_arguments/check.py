"""One command line against the table: flags that are gone, values that vLLM refuses.

Pure. Nothing is raised; every problem is in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from driftwatch.vllm_arguments.arguments import Argument, Finding, Stated
from driftwatch.vllm_arguments.missing_flags import no_negation, not_there, unknown
from driftwatch.vllm_arguments.relations import relations
from driftwatch.vllm_arguments.table import (
    CURES,
    FLAGS,
    Flag,
    Version,
    abbreviated,
    flag_typed,
    nearest,
    version_of_image,
    version_text,
)
from driftwatch.vllm_arguments.values import TRUTHS, Fault, faults, is_unknown

_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"  # what an editor makes of two hyphens


def own_part(words: Sequence[Argument]) -> Sequence[Argument]:
    """What follows ``vllm serve``, the module of vLLM's server or its image after ``docker run``.

    All, where none of these is there.
    """
    is_container = len(words) > 1 and words[0].text in _CONTAINERS
    for index, word in enumerate(words):
        if is_container and index > 1 and image_tag(word.text) is not None:
            return words[index + 1 :]
        if word.text.startswith("vllm.entrypoints."):
            return words[index + 1 :]
        if word.text == "serve" and index and words[index - 1].text.rpartition("/")[2] == "vllm":
            return words[index + 1 :]
    return words


def image_tag(word: str) -> str | None:
    """The tag of an image of vLLM's; None where the word is no such image."""
    match = re.fullmatch(r"(?:[\w.:-]+/)*vllm[\w.-]*:([\w.-]+)", word)
    return match[1] if match is not None else None


def image_version(words: Sequence[Argument]) -> Version | None:
    """The release in the image of a ``docker run``."""
    if not words or words[0].text not in _CONTAINERS:
        return None
    tagged = [word.text for word in words if image_tag(word.text) is not None]
    return version_of_image(tagged[0]) if tagged else None


def names_vllm(words: Sequence[Argument]) -> bool:
    """Whether a command line starts vLLM's server."""
    return own_part(words) is not words


def has_own_flag(words: Sequence[Argument]) -> bool:
    """Whether a flag stands there that no other server has."""
    return any(is_own_flag(word.text) for word in words)


def is_own_flag(text: str) -> bool:
    """Whether a word is a flag of vLLM's alone, or one that stands in ``cures.toml``."""
    if not text.startswith("--"):
        return False
    written = text.split(maxsplit=1)[0].partition("=")[0]
    name = written[2:].replace("_", "-")
    flag = flag_typed(written) or FLAGS.get(name.removeprefix("no-"))
    return flag.is_own if flag is not None else name in CURES


def check(
    words: Sequence[Argument], *, version: Version | None = None, is_vllm: bool = True
) -> list[Finding]:
    """Every problem of one command line, in its order.

    Args:
        words: the whole command line, or what follows ``vllm serve``.
        version: of vLLM; None where nothing names it.
        is_vllm: whether vLLM's own server gets these words. Where another program may stand
            between, a flag that the table does not have is none of ours.
    """
    version = image_version(words) if version is None else version
    stated, findings = flags_in(words, version=version, is_vllm=is_vllm)
    for one in stated:
        if one.value is not None and one.value_word is not None:
            findings += [
                Finding(one.value_word.part(one.value_start + f.start, f.length), f)
                for f in faults(one.flag, one.value, version)
            ]
    findings += [Finding(one.value_place, fault) for one, fault in relations(stated, version)]
    findings += _repeated(stated)
    return sorted(findings, key=lambda one: (one.place.line, one.place.column))


def flags_in(
    words: Sequence[Argument], *, version: Version | None = None, is_vllm: bool = True
) -> tuple[list[Stated], list[Finding]]:
    """The flags of a command line in its order, and what is wrong with their form."""
    words = own_part(words)
    findings: list[Finding] = []
    stated: list[Stated] = []
    at = 0
    while at < len(words) and words[at].text != "--":
        at = _next(words, at, version, is_vllm, stated, findings)
    return stated, findings


def _next(
    words: Sequence[Argument],
    at: int,
    version: Version | None,
    is_vllm: bool,
    stated: list[Stated],
    findings: list[Finding],
) -> int:
    """Take one word, with its value; where the next one is."""
    word = words[at]
    text = word.text
    if text[:1] and text[0] in _DASHES:
        text = "--" + text.lstrip(_DASHES + "-")
        if is_own_flag(text):
            message = "a dash stands here where vLLM wants two hyphens"
            findings.append(Finding(word.part(), Fault("dash", message, f"write {text}")))
    if not text.startswith("-") or is_unknown(text.partition("=")[0]):
        return at + 1
    written, equals, attached = text.partition("=")
    if any(ch.isspace() for ch in written):
        return at + 1
    length = len(written)
    flag = flag_typed(written)
    if flag is not None and "." in written and "." not in flag.name:
        # a key of a configuration whose keys the table does not have
        flag = replace(flag, name=written[2:], kind="text", earlier=None)
    is_off = False
    if flag is None and written.replace("_", "-").startswith("--no-"):
        switch = FLAGS.get(written.replace("_", "-")[5:])
        if switch is not None and switch.kind == "switch":
            flag, is_off = switch, True
            if (fault := no_negation(switch, version)) is not None:
                findings.append(Finding(word.part(0, length), fault))
    if flag is None:
        flag = _another(word, written, version, is_vllm, findings)
    elif (fault := not_there(flag, version)) is not None:
        findings.append(Finding(word.part(0, length), fault))
    if flag is None:
        return at + 1
    start = len(word.text) - len(attached)
    one, at = _with_value(words, at, flag, attached if equals else None, start, version, is_off)
    stated.append(one)
    findings += _of_value(one, version, has_equals=bool(equals))
    return at


def _another(
    word: Argument,
    written: str,
    version: Version | None,
    is_vllm: bool,
    findings: list[Finding],
) -> Flag | None:
    """A flag that the table does not have: an abbreviation, another server's, or unknown."""
    name = written.lstrip("-").replace("_", "-")
    if not written.startswith("--") or len(name) < 2 or name == "help":
        return None
    place = word.part(0, len(written))
    if is_vllm and name not in CURES and (flag := abbreviated(name, version)) is not None:
        message = f"{written} is short for {flag.written}, until another flag begins so"
        findings.append(
            Finding(place, Fault("abbreviated-flag", message, f"write {flag.written}", "warning"))
        )
        return flag
    close = None if is_vllm else nearest(name, cutoff=0.9)
    if is_vllm or name in CURES or (close is not None and FLAGS[close].is_own):
        findings.append(Finding(place, unknown(name, version)))
    return None


def _with_value(
    words: Sequence[Argument],
    at: int,
    flag: Flag,
    attached: str | None,
    start: int,
    version: Version | None,
    is_off: bool,
) -> tuple[Stated, int]:
    """A flag with its value, and where the next word is."""
    word, kind = words[at], flag.kind_in(version)
    if attached is not None:
        return Stated(flag, word, attached, word, start, is_off), at + 1
    following = words[at + 1] if at + 1 < len(words) else None
    if kind in ("on", "switch", "bool"):
        if following is not None and following.text.lower() in TRUTHS:
            return Stated(flag, word, following.text, following, 0, is_off), at + 2
        return Stated(flag, word, None, None, 0, is_off), at + 1
    if following is None or (following.text.startswith("-") and not _is_number(following.text)):
        return Stated(flag, word, None, None), at + 1
    end = at + 2
    while kind == "list" and end < len(words) and not words[end].text.startswith("-"):
        end += 1
    return Stated(flag, word, following.text, following), end


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _of_value(one: Stated, version: Version | None, *, has_equals: bool) -> Iterator[Finding]:
    """A value where none may stand, none where one must."""
    kind = one.flag.kind_in(version)
    if one.value is None:
        if kind not in ("on", "switch", "bool", "list"):
            yield Finding(one.word.part(), Fault("no-value", f"{one.flag.written} has no value"))
        return
    if kind not in ("on", "switch") or is_unknown(one.value):
        return
    truth = one.value.lower()
    since = one.flag.earlier if one.flag.earlier and one.flag.earlier[0] == "bool" else None
    message = f"{one.flag.written} takes no value"
    severity = "error"
    if since is not None and version is None:
        message += f" after vLLM {version_text(since[1])}"
        severity = "warning"
    help_text = f"write {one.flag.written}"
    if truth in ("false", "no", "off") and kind == "switch":
        help_text = f"write --no-{one.flag.name}"
    elif truth in ("false", "no", "off"):
        help_text = "leave it out"
    place = one.word.part() if has_equals else one.value_place
    yield Finding(place, Fault("takes-no-value", message, help_text, severity))


def _repeated(stated: Sequence[Stated]) -> Iterator[Finding]:
    """A flag that stands twice: the last one counts."""
    last = {one.flag.name: one for one in stated}
    for one in stated:
        final = last[one.flag.name]
        if final is one or one.flag.kind == "list" or "." in one.word.text.partition("=")[0]:
            continue
        message = f"{one.flag.written} stands twice: vLLM takes the last one"
        help_text = "remove one of them"
        yield Finding(one.word.part(), Fault("repeated-flag", message, help_text, "warning"))

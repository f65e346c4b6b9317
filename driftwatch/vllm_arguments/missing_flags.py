"""What to say of a flag or variable that a release of vLLM does not have."""

from __future__ import annotations

from driftwatch.vllm_arguments.table import (
    CURES,
    FIRST,
    FLAGS,
    LAST,
    RELEASES,
    Flag,
    Version,
    nearest,
    version_text,
)
from driftwatch.vllm_arguments.values import Fault


def not_there(flag: Flag, version: Version | None) -> Fault | None:
    """A flag of the table that this release does not have; None where it has it.

    Where the release is unknown, a flag that is gone is a warning.
    """
    if version is not None and flag.is_in(version):
        return None
    if version is not None and version < (flag.since or FIRST):
        if version < FIRST:
            return None
        message = f"vLLM {version_text(version)} has no {flag.written}: it is new in "
        message += version_text(flag.since or FIRST)
        return Fault("too-new-flag", message, cure_text(flag.name, version))
    if flag.until is None:
        return None
    removed = version_text(after(flag.until))
    if version is None:
        message = f"vLLM {removed} removed {flag.written}"
        return Fault("removed-flag", message, cure_text(flag.name, None), "warning")
    message = f"vLLM {version_text(version)} has no {flag.written}: {removed} removed it"
    return Fault("removed-flag", message, cure_text(flag.name, version))


def no_negation(flag: Flag, version: Version | None) -> Fault | None:
    """A switch whose ``--no-…`` this release does not have yet; None where it has it."""
    if version is None or flag.earlier is None or flag.kind_in(version) == flag.kind:
        return None
    since = version_text(after(flag.earlier[1]))
    message = f"vLLM {version_text(version)} has no --no-{flag.name}: it is new in {since}"
    is_bool = flag.earlier[0] == "bool"
    return Fault("too-new-flag", message, f"write {flag.written}=False" if is_bool else "remove it")


def unknown(name: str, version: Version | None) -> Fault:
    """A flag that the table does not have, without its dashes."""
    if name in CURES:
        message = f"no vLLM from {RELEASES} has a flag --{name}"
        return Fault("no-such-flag", message, cure_text(name, version))
    message = f"--{name} is not in the table of vLLM's flags ({RELEASES})"
    close = nearest(name)
    help_text = f"did you mean --{close}?" if close else None
    return Fault("unknown-flag", message, help_text, "warning")


def cure_text(name: str, version: Version | None) -> str | None:
    """What to do instead; None where the table names nothing."""
    cure = CURES.get(name)
    if cure is None:
        return None
    instead = []
    for other in cure.instead:
        flag = FLAGS.get(other) or FLAGS[other.partition(".")[0]]
        if version is not None and not flag.is_in(version):
            continue
        value = f" {cure.value}" if cure.value is not None else ""
        since = f" (since {version_text(flag.since)})" if version is None and flag.since else ""
        instead.append(f"--{other}{value}{since}")
    parts = [cure.why] if cure.why else []
    parts.append(f"use {' or '.join(instead)}" if instead else "remove it")
    return "; ".join(parts)


def after(version: Version) -> Version:
    """The first release after one of the table's."""
    later = {v for one in FLAGS.values() for v in (one.since,) if v and v > version}
    return min(later, default=LAST)

"""Variables that vLLM reads: ``VLLM_…`` of a container's environment."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from driftwatch.vllm_arguments.missing_flags import after, cure_text
from driftwatch.vllm_arguments.table import VARIABLES, Version, version_text
from driftwatch.vllm_arguments.values import Fault


def variable_faults(name: str, version: Version | None) -> Iterator[Fault]:
    """A variable that vLLM does not read (any more): it starts, and nothing happens."""
    if not name.startswith("VLLM_"):
        return
    one = VARIABLES.get(name)
    if one is None:
        close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.9)
        if close:
            message = f"vLLM reads no variable {name}"
            yield Fault("unknown-variable", message, f"did you mean {close[0]}?", "warning")
        return
    if version is not None and one.is_in(version):
        return
    if one.until is not None and (version is None or version > one.until):
        since = version_text(after(one.until))
        message = f"vLLM {since} and later do not read {name}"
        yield Fault("removed-variable", message, cure_text(name, version), "warning")
    elif version is not None and one.since is not None and version < one.since:
        message = f"vLLM {version_text(version)} does not read {name}: it is new in "
        yield Fault("too-new-variable", message + version_text(one.since), None, "warning")

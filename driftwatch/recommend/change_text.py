"""A change as people type it: vLLM arguments, Helm values of vLLM's production stack, a pod's args.

Keys of the chart: ``helm/values.yaml`` and ``helm/templates/deployment-vllm-multi.yaml`` of
github.com/vllm-project/production-stack (e9ba5fa, f1f9822). Of the knobs that are ever advised only
``max_num_seqs`` has a key of its own there, ``vllmConfig.maxNumSeqs``; every other one goes through
``vllmConfig.extraArgs``, which the template appends to the command line as it stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from driftwatch.knobs import KNOBS, flag_of
from driftwatch.model import KnobMove

# vLLM argument → the chart's own key under vllmConfig
_CHART_KEYS: Mapping[str, str] = {
    name: knob.helm_key for name, knob in KNOBS.items() if knob.helm_key is not None
}
# knobs that are no arguments of vLLM: how many servers there are is the deployment's
_REPLICAS = "replicas"
_UNSURE: Mapping[str, str] = {
    "inferred": "inferred: this line may not be there",
    "metrics": "read from metrics: this line may not be there",
}
_UNKNOWN = "unknown today: replace this line if it is there"


def vllm_arguments(moves: Sequence[KnobMove], *, undo: bool = False) -> tuple[str, ...]:
    """vLLM's command-line arguments, one each; replicas are none.

    ``undo``: those of today instead, as far as they are known.

    >>> vllm_arguments([KnobMove("max_num_seqs", 8.0, 56.0)])
    ('--max-num-seqs=56',)
    """
    arguments = []
    for move in moves:
        value = move.from_value if undo else move.to_value
        if move.knob != _REPLICAS and value is not None:
            arguments.append(_argument(move.knob, value))
    return tuple(arguments)


def helm_values_diff(moves: Sequence[KnobMove], model: str | None) -> tuple[str, ...]:
    """Lines of a unified diff of the production stack's values; context begins with a blank.

    ``moves``: what changes; empty gives no line; ``model``: ``modelSpec[].modelURL`` that it is
    about, which the chart serves under that name; None = unknown.
    """
    if not moves:
        return ()
    served = "..." if model is None else _quoted(model)
    out = [" servingEngineSpec:", "   modelSpec:", f"   - modelURL: {served}"]
    for move in moves:
        if move.knob == _REPLICAS:
            out += _lines(move, "    ", f"replicaCount: {_number(move.to_value)}", "replicaCount: ")
    own = [move for move in moves if move.knob in _CHART_KEYS]
    extra = [move for move in moves if move.knob not in _CHART_KEYS and move.knob != _REPLICAS]
    if own or extra:
        out.append("     vllmConfig:")
    for move in own:
        key = f"{_CHART_KEYS[move.knob]}: "
        out += _lines(move, "      ", f"{key}{_number(move.to_value)}", key)
    if extra:
        out.append("       extraArgs:")
        out += _arguments(extra, "      ")
    return tuple(out)


def _quoted(text: str) -> str:
    """In YAML's double quotes; what no terminal may be sent is written as an escape."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in quoted)


def pod_args_diff(moves: Sequence[KnobMove]) -> tuple[str, ...]:
    """Lines of a unified diff of a pod's ``args`` (Kubernetes' own field); replicas as such."""
    of_pod = [move for move in moves if move.knob != _REPLICAS]
    out: list[str] = []
    for move in moves:
        if move.knob == _REPLICAS:
            out += _lines(move, "", f"replicas: {_number(move.to_value)}", "replicas: ")
    if of_pod:
        out += [" containers:", " - name: vllm", "   args:", *_arguments(of_pod, "  ")]
    return tuple(out)


def _arguments(moves: Sequence[KnobMove], indent: str) -> list[str]:
    out: list[str] = []
    for move in moves:
        name = f'- "{flag_of(move.knob)}='
        out += _lines(move, indent, f'{name}{_number(move.to_value)}"', name, '"')
    return out


def _lines(move: KnobMove, indent: str, after: str, head: str, tail: str = "") -> list[str]:
    """``-`` where the value of today is known, ``+``; what is not sure is said behind ``#``."""
    if move.from_value is None:
        return [f"+{indent}{after}  # {_UNKNOWN}"]
    unsure = _UNSURE.get(move.from_provenance or "")
    comment = f"  # {unsure}" if unsure else ""
    return [f"-{indent}{head}{_number(move.from_value)}{tail}{comment}", f"+{indent}{after}"]


def _argument(knob: str, value: float) -> str:
    return f"{flag_of(knob)}={_number(value)}"


def _number(value: float) -> str:
    """As vLLM takes it: no separators."""
    return str(int(value)) if value == int(value) else repr(value)

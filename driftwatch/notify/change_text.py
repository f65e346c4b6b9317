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
from driftwatch.numbers import knob

# vLLM argument → the chart's own key under vllmConfig
_CHART_KEYS: Mapping[str, str] = {
    name: knob.helm_key for name, knob in KNOBS.items() if knob.helm_key is not None
}
_UNSURE: Mapping[str, str] = {
    "inferred": "inferred: this line may not be there",
    "metrics": "read from metrics: this line may not be there",
}
_UNKNOWN = "unknown today: replace this line if it is there"


def vllm_arguments(moves: Sequence[KnobMove], *, undo: bool = False) -> tuple[str, ...]:
    """vLLM's command-line arguments, one each; ``undo``: those of today, as far as known.

    >>> vllm_arguments([KnobMove("max_num_seqs", 8.0, 56.0)])
    ('--max-num-seqs=56',)
    """
    values = [(move.knob, move.from_value if undo else move.to_value) for move in moves]
    return tuple(f"{flag_of(name)}={knob(value)}" for name, value in values if value is not None)


def helm_values_diff(moves: Sequence[KnobMove], model: str | None) -> tuple[str, ...]:
    """Lines of a unified diff of the production stack's values; context begins with a blank.

    ``moves``: what changes; empty gives no line; ``model``: ``modelSpec[].modelURL`` that it is
    about, which the chart serves under that name; None = unknown.
    """
    if not moves:
        return ()
    # in YAML's double quotes; what no terminal may be sent is written as an escape
    quoted = "..." if model is None else json.dumps(model, ensure_ascii=False)
    served = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in quoted)
    out = [" servingEngineSpec:", "   modelSpec:", f"   - modelURL: {served}", "     vllmConfig:"]
    for move in moves:
        if move.knob in _CHART_KEYS:
            key = f"{_CHART_KEYS[move.knob]}: "
            out += _lines(move, "      ", f"{key}{knob(move.to_value)}", key)
    extra = [move for move in moves if move.knob not in _CHART_KEYS]
    if extra:
        out += ["       extraArgs:", *_arguments(extra, "      ")]
    return tuple(out)


def pod_args_diff(moves: Sequence[KnobMove]) -> tuple[str, ...]:
    """Lines of a unified diff of a pod's ``args`` (Kubernetes' own field)."""
    if not moves:
        return ()
    return (" containers:", " - name: vllm", "   args:", *_arguments(moves, "  "))


def _arguments(moves: Sequence[KnobMove], indent: str) -> list[str]:
    out: list[str] = []
    for move in moves:
        name = f'- "{flag_of(move.knob)}='
        out += _lines(move, indent, f'{name}{knob(move.to_value)}"', name, '"')
    return out


def _lines(move: KnobMove, indent: str, after: str, head: str, tail: str = "") -> list[str]:
    """``-`` where the value of today is known, ``+``; what is not sure is said behind ``#``."""
    if move.from_value is None:
        return [f"+{indent}{after}  # {_UNKNOWN}"]
    unsure = _UNSURE.get(move.from_provenance or "")
    comment = f"  # {unsure}" if unsure else ""
    return [f"-{indent}{head}{knob(move.from_value)}{tail}{comment}", f"+{indent}{after}"]

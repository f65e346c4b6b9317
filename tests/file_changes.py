"""Strategies: YAML files with some lines or values changed, conditions right and wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from driftwatch.evidence import BY_NAME

NUMBERS = [name for name, one in BY_NAME.items() if one.dtype == "float"]
_OPERANDS = st.one_of(
    st.sampled_from([*NUMBERS, "scraps", "pool", "vllm:num_requests_waiting"]),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.integers(-5, 10_000).map(str),
)
_SIGNS = st.sampled_from(
    ["<", "<=", "=", "<>", ">", ">=", "+", "-", "*", "/", "AND", "OR", "IN", "&"]
)
CONDITIONS = st.recursive(
    st.one_of(
        st.tuples(_OPERANDS, _SIGNS, _OPERANDS).map(" ".join),
        st.tuples(_OPERANDS, st.just(" BETWEEN "), _OPERANDS, st.just(" AND "), _OPERANDS).map(
            "".join
        ),
        st.tuples(_OPERANDS, st.sampled_from([" IS NULL", " IS NOT NULL", " IN (1, 2)"])).map(
            "".join
        ),
        st.sampled_from(["binding_limit = 'kv_cache'", "binding_limit IN ('none')", "restarted"]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map("".join),
        inner.map("NOT ({})".format),
    ),
    max_leaves=6,
)
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["", "-5m", "1e999", "9" * 400, "\x00", "\u202e", "{{ $value }}", "{", "{}", "{a.b}",
         "page", "undetermined", "pool", "batch-size-drift", "http://[", "0s", "*", "[", "(?P<"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    CONDITIONS,
)  # fmt: skip


@st.composite
def changed_lines(draw: st.DrawFn, texts: Mapping[str, str]) -> dict[str, str]:
    """One of the files with some of its lines changed."""
    name = draw(st.sampled_from(sorted(texts)))
    lines = texts[name].split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        kind = draw(
            st.sampled_from(["drop", "twice", "indent", "outdent", "cut", "insert", "swap"])
        )
        if kind == "drop":
            lines[at] = ""
        elif kind == "twice":
            lines.insert(at, line)
        elif kind == "indent":
            lines[at] = (
                draw(st.sampled_from([" ", "  ", "\t", "- ", "? ", "& ", "! ", "| "])) + line
            )
        elif kind == "outdent":
            lines[at] = line.lstrip()
        elif kind == "cut":
            lines[at] = line[: draw(st.integers(0, len(line)))]
        elif kind == "insert":
            cut = draw(st.integers(0, len(line)))
            lines[at] = line[:cut] + draw(st.text(max_size=5)) + line[cut:]
        else:
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], line
    return {name: draw(st.sampled_from(["\n", "\r\n"])).join(lines)}


@st.composite
def changed_values(draw: st.DrawFn, roots: Mapping[str, object]) -> dict[str, str]:
    """One of the files with some of its keys and values changed, as JSON, which is YAML."""
    name = draw(st.sampled_from(sorted(roots)))
    root: Any = json.loads(json.dumps(roots[name]))
    for _ in range(draw(st.integers(1, 3))):
        node, depth = root, draw(st.integers(0, 6))
        for _ in range(depth):
            inside = list(node.values()) if isinstance(node, dict) else node
            below = [one for one in inside if isinstance(one, dict | list) and one]
            if not below:
                break
            node = draw(st.sampled_from(below))
        place = draw(
            st.sampled_from(list(node) if isinstance(node, dict) else list(range(len(node))))
        )
        kind = draw(st.sampled_from(["value", "condition", "drop", "rename", "copy"]))
        if kind == "value":
            node[place] = draw(HOSTILE)
        elif kind == "condition":
            node["when" if isinstance(node, dict) else place] = draw(CONDITIONS)
        elif kind == "drop" and len(node) > 1:
            del node[place]
        elif isinstance(node, dict):
            new = draw(st.one_of(st.sampled_from(sorted(node)), st.text(max_size=6)))
            node[new] = node.pop(place) if kind == "rename" else node[place]
        else:
            node.append(node[place])
    text = json.dumps(root, indent=1, ensure_ascii=draw(st.booleans()))
    return {name: text.encode("utf-8", "replace").decode("utf-8")}

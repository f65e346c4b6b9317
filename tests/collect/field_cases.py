"""Pages of shared/data/field's stand-in for vLLM, as a Prometheus stores them."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from fakes.prometheus_api import Series

T0 = datetime(2026, 1, 1, tzinfo=UTC)
_SAMPLE = re.compile(r"([\w:]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def load_vsim(shared_data: Path) -> ModuleType:
    """The stand-in."""
    spec = importlib.util.spec_from_file_location("vsim", shared_data / "field/lib/vsim.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fleet:
    """Samples as a Prometheus has them."""

    def __init__(self) -> None:
        self._points: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}

    def page(
        self,
        at: float,
        body: str,
        target: Mapping[str, str],
        rename: Callable[[str], str] = str,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """A scrape of a page, with ``up``."""
        self.sample(at, "up", target, "1")
        for line in body.splitlines():
            if (match := _SAMPLE.fullmatch(line)) is not None:
                labels = {**dict(_LABEL.findall(match[2] or "")), **target, **(more or {})}
                self.sample(at, rename(match[1]), labels, match[3])

    def sample(self, at: float, name: str, labels: Mapping[str, str], value: str) -> None:
        """One number, ``at`` seconds after T0."""
        key = tuple(sorted({"__name__": name, **labels}.items()))
        self._points.setdefault(key, []).append((T0.timestamp() + at, value))

    def series(self) -> list[Series]:
        """All of them."""
        return [Series(dict(key), points, 15) for key, points in self._points.items()]


def engine(
    vsim: ModuleType,
    seed: int,
    rate: float,
    stuck: Callable[[float], bool] = lambda at: False,
    **more: object,
) -> Callable[[float], str]:
    """A server with this many requests a second; its page at a second."""
    began: dict[str, object] = {
        "t0": T0.timestamp() - 300 - seed,
        "max_num_seqs": 8,
        "kv_tokens": 60_000,
    }
    one = vsim.Engine(seed=seed, **(began | more))

    def page(at: float) -> str:
        one.stuck = stuck(at)
        one.advance(T0.timestamp() + at, rate=rate, p=300, g=150)
        return str(vsim.page([one]))

    return page

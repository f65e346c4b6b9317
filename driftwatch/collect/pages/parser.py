"""Pages of Prometheus text → scrape rows, one per engine and page."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.cells import (
    OWN_LABELS,
    VLLM,
    Slot,
    prefixes_of,
    slots_of,
    wire_names_of,
)
from driftwatch.collect.identity import Identity, identity_of
from driftwatch.collect.pages.foreign import NOT_AN_ENGINE, ROUTER_NAMES, without_vllm
from driftwatch.collect.pages.text import Series, SeriesCache, page_samples
from driftwatch.collect.samples import NONE, Attempt, Known, Samples
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes, folded
from driftwatch.model import Target, TargetKey

_LAYOUTS = 256  # shared by instances with the same series
_PAGES_PER_FLUSH = 512  # numbers held before they become rows: about 4 MB
# One page of vLLM shows the engines of one data-parallel deployment; each is a target to judge.
MAX_ENGINES = 256
# Names of targets: they stand in every row, page and file name.
MAX_NAME_CHARACTERS = 256
_SHOWN_CHARACTERS = 160
# each engine has one series of them, with the labels that tell servers of one page apart
_LABELLED = ("num_requests_running", "num_requests_waiting", "generation_tokens_total")


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """What pages brought."""

    frame: pl.DataFrame  # scrape table, a row per engine
    problems: tuple[SourceProblem, ...]  # what could not be read of it
    targets: dict[TargetKey, Target] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, in engine order."""
        return self.frame.to_dicts()


Place = tuple[Identity, str | None, str | None]  # server beside its address, engine, model


@dataclass(frozen=True, slots=True)
class Layout:
    """What driftwatch reads of a page with these series, worked out once per list of series."""

    series: tuple[Series, ...]  # every sample's, in page order
    take: npt.NDArray[np.intp]  # indexes of the samples that are read
    slots: tuple[npt.NDArray[np.int32], ...]  # of each of them, -1 where it has no (further) one
    places: tuple[Place, ...]
    place: npt.NDArray[np.int32]  # of each of them, index into the places
    configs: tuple[tuple[Place, str], ...]  # labels of cache_config_info, sorted JSON
    refused: str | None  # why it is none of a vLLM server's; None where it may be

    def text(self, index: int) -> str:
        """A sample that is read, as problems name it."""
        text: str = self.series[int(self.take[index])].text
        return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


class PageParser:
    """Reads pages of any number of instances; remembers series and engines between them.

    Not for use from several threads at once.
    """

    def __init__(self, cache: SeriesCache | None = None) -> None:
        self._cache = cache or SeriesCache()
        self.known = Known()
        self._layouts: OrderedDict[tuple[Series, ...], Layout] = OrderedDict()
        self._telling: frozenset[str] = frozenset()
        self._slots: dict[Slot, int] = {}

    def parse(self, instance: str, time: datetime, body: bytes) -> ParsedPage:
        """One page → its rows; a page that cannot be read gives rows with ``ok`` False."""
        return self.parse_many([(instance, time, body)])

    def parse_many(self, pages: Iterable[tuple[str, datetime, bytes]]) -> ParsedPage:
        """Many pages (instance, time, body) in any order → one sorted table."""
        batch = self.batch()
        for instance, time, body in pages:
            batch.add(instance, time, body)
        return batch.finish()

    def batch(self) -> Batch:
        """An empty batch, for pages that come one by one."""
        return Batch(self)

    def layout(self, series: tuple[Series, ...]) -> Layout:
        """The layout of a page with these series."""
        layout = self._layouts.pop(series, None)
        if layout is None:
            named = {name for one in series if one.name.endswith(_LABELLED) for name in one.labels}
            if not named - OWN_LABELS <= self._telling:
                self._telling |= named - OWN_LABELS
                self._layouts.clear()
            layout = self._lay_out(series)
        self._layouts[series] = layout
        if len(self._layouts) > _LAYOUTS:
            self._layouts.popitem(last=False)
        return layout

    def _lay_out(self, series: tuple[Series, ...]) -> Layout:
        take, place, slots = [], [], []
        places: dict[Place, int] = {}
        configs = []
        names = [one.name for one in series]
        if not any(name.startswith(VLLM) for name in names):
            wire = wire_names_of(prefixes_of(names))
            names = [wire.get(name, name) for name in names]
        for index, (name, one) in enumerate(zip(names, series, strict=True)):
            of = slots_of(name, one.labels)
            if not of:
                continue
            where = (self._server(one), one.labels.get("engine"), one.labels.get("model_name"))
            if of[0].part == "labels":
                apart = {"engine", *self._telling}
                ours = {k: v for k, v in one.labels.items() if k not in apart}
                text = orjson.dumps(ours, option=orjson.OPT_SORT_KEYS).decode()
                configs.append((where, text))
                continue
            take.append(index)
            place.append(places.setdefault(where, len(places)))
            slots.append([self._slots.setdefault(slot, len(self._slots)) for slot in of])
        deepest = max(map(len, slots), default=0)
        return Layout(
            series,
            np.array(take, np.intp),
            tuple(
                np.array([each[i] if i < len(each) else NONE for each in slots], np.int32)
                for i in range(deepest)
            ),
            tuple(places),
            np.array(place, np.int32),
            tuple(configs),
            _refused(names, series),
        )

    def _server(self, series: Series) -> Identity:
        labels = series.labels
        # a page of several servers may call them so; the address that it was read from is another
        own = {
            "exported_instance" if name == "instance" else name: labels[name]
            for name in self._telling
            if labels.get(name)
        }
        return identity_of(own, ())


class Batch:
    """Pages of one call to a source, made into one table at the end."""

    def __init__(self, parser: PageParser) -> None:
        self._parser = parser
        self._samples = Samples(parser._slots)
        self._attempts: list[Attempt] = []
        self._failed: list[Attempt] = []
        self._brought: list[Collected] = []
        self._problems: list[SourceProblem] = []

    def add(self, instance: str, time: datetime, body: bytes) -> None:
        """A page that was answered."""
        samples = page_samples(body, self._parser._cache)
        if isinstance(samples, str):
            self.fail(instance, time, samples)
            return
        layout = self._parser.layout(tuple(samples.series))
        if layout.refused is not None:
            self.fail(instance, time, layout.refused)
            return
        micros = _micros(time)
        scrape: Identity = (("instance", instance),)

        def unit(place: Place) -> int:
            server, engine, model = place
            return self._samples.unit(tuple(sorted((*scrape, *server))), engine, model)

        for place, text in layout.configs:
            self._samples.add_config(unit(place), [micros], text)
        if len(layout.take):
            units = np.array([unit(place) for place in layout.places], np.int32)
            width = len(layout.take)
            self._samples.add(
                np.arange(width, dtype=np.int32),
                np.full(width, micros),
                np.array(samples.values)[layout.take],
                unit=units[layout.place],
                slots=layout.slots,
                text=layout.text,
            )
        for doubt in samples.doubts:
            self._samples.doubt(scrape, micros, doubt)
        self._attempts.append(Attempt(scrape, micros, None))
        if len(self._attempts) >= _PAGES_PER_FLUSH:
            self._flush()

    def fail(self, instance: str, time: datetime, reason: str) -> None:
        """A scrape that brought no page: a row for each engine, with the reason."""
        self._failed.append(Attempt((("instance", instance),), _micros(time), reason))

    def problem(self, where: str, reason: str, time: datetime | None) -> None:
        """Something outside a page that could not be read."""
        self._problems.append(SourceProblem(where, reason, time))

    def finish(self) -> ParsedPage:
        """All rows, sorted by instance, engine and time, and the problems, repeats folded."""
        self._flush()
        self._attempts = self._failed
        self._flush()
        frame = pl.concat([empty_scrapes(), *(one.scrapes for one in self._brought)])
        frame = frame.sort("instance", "engine", "time", maintain_order=True)
        targets = {key: t for one in self._brought for key, t in one.targets.items()}
        return ParsedPage(frame.rechunk(), folded(self._problems), targets)

    def _flush(self) -> None:
        if not self._attempts and not self._samples.any:
            return
        brought = self._samples.rows(self._attempts, self._parser.known)
        self._brought.append(brought)
        self._problems += brought.problems
        self._samples, self._attempts = Samples(self._parser._slots), []


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def _refused(names: Sequence[str], series: Sequence[Series]) -> str | None:
    """Why a page is none of a vLLM server; None where it may be.

    ``names``: of the series, in the registry's words where they have another prefix.
    """
    vllm = [one for name, one in zip(names, series, strict=True) if name.startswith(VLLM)]
    if not vllm:
        return without_vllm(names)
    if not ROUTER_NAMES.isdisjoint(names):
        return NOT_AN_ENGINE
    engines = {one.labels.get("engine", "") for one in vllm} - {""}
    if len(engines) > MAX_ENGINES:
        return f"page refused: {len(engines)} engines, more than {MAX_ENGINES}"
    for label in ("engine", "model_name"):
        longest = max((len(one.labels.get(label, "")) for one in vllm), default=0)
        if longest > MAX_NAME_CHARACTERS:
            what = f"a label {label} of {longest} characters, more than {MAX_NAME_CHARACTERS}"
            return f"page refused: {what}"
    return None

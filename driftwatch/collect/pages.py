"""Pages of Prometheus text → scrape rows, one per engine and page; and servers scraped directly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson
import polars as pl

from driftwatch.clock import Clock
from driftwatch.collect.doubles import without_doubles
from driftwatch.collect.fingerprint import from_models, from_version, merged
from driftwatch.collect.foreign import NOT_AN_ENGINE, ROUTER_NAMES, without_vllm
from driftwatch.collect.http import PageFetcher
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.identity import Identity, identity_of
from driftwatch.collect.page_text import PageSamples, PageText
from driftwatch.collect.registry import OWN_LABELS, SERVER_SERIES, VLLM, prefixes_of
from driftwatch.collect.rows import scrape_rows
from driftwatch.collect.samples import Attempt, Samples, SeriesReader, SourceMemory, Unit, unit_of
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes, folded
from driftwatch.model import Fingerprint, Target, TargetKey

_PAGES_PER_FLUSH = 512  # numbers held before they become rows: about 4 MB
# One page of vLLM shows the engines of one data-parallel deployment; each is a target to judge.
MAX_ENGINES = 256
# What no fleet has: pages whose labels change with every scrape must not fill the memory.
_MOST_UNITS = 100_000
# Names of targets: they stand in every row, page and file name.
MAX_NAME_CHARACTERS = 256


class _Series(NamedTuple):
    """What a series of a page is."""

    name: str  # in the registry's words, where it is known there
    labels: Mapping[str, str]
    place: Unit  # labels that distinguish its server on the page, engine, model
    cells: tuple[int, ...] | None  # numbers of slots; None: its labels are the value


class PageParser:
    """Reads pages of any number of instances; remembers series and engines between them.

    Not for use from several threads at once.
    """

    def __init__(self, max_series: int = 100_000) -> None:
        self.known = SourceMemory()
        self.reader = SeriesReader()
        self._prefixes: frozenset[str] = frozenset()
        self._text = PageText(self._series, max_series)

    def parse(self, instance: str, time: datetime, body: bytes) -> Collected:
        """One page → its rows; a page that cannot be read gives rows with ``ok`` False."""
        return self.parse_many([(instance, time, body)])

    def parse_many(self, pages: Iterable[tuple[str, datetime, bytes]]) -> Collected:
        """Many pages (instance, time, body) in any order → one sorted table."""
        batch = self.batch()
        for page in pages:
            batch.add(*page)
        return batch.finish()

    def batch(self) -> Batch:
        """An empty batch, for pages that come one by one."""
        return Batch(self)

    def samples(self, body: bytes) -> PageSamples[_Series] | str:
        """The samples of a page, or why it has none."""
        if len(self.reader.units) > _MOST_UNITS:
            self.reader = SeriesReader(self._prefixes, self.reader.server_labels)
            self._text.forget()
        page = self._text.samples(body)
        if not isinstance(page, str) and self._has_new_labels(page.series):
            self._text.forget()
            page = self._text.samples(body)
        if isinstance(page, str):
            return page
        return _refused(page.series) or page

    def _has_new_labels(self, series: Sequence[_Series]) -> bool:
        """The page has prefixes, or labels that distinguish servers, that no page had before."""
        labels = [one.labels.keys() for one in series if one.name.endswith(SERVER_SERIES)]
        server_labels = self.reader.server_labels.union(*labels) - OWN_LABELS
        if not any(one.name.startswith(VLLM) for one in series):
            self._prefixes |= prefixes_of(one.name for one in series)
        elif server_labels == self.reader.server_labels:
            return False
        is_new = server_labels != self.reader.server_labels
        is_new = is_new or self._prefixes != self.reader.prefixes
        if is_new:
            self.reader = SeriesReader(self._prefixes, server_labels)
        return is_new

    def _series(self, labels: Mapping[str, str]) -> _Series:
        written = labels["__name__"]
        # a page of several servers may call them so; the address that it was read from is another
        beside = {
            "exported_instance" if name == "instance" else name: labels[name]
            for name in self.reader.server_labels
            if labels.get(name)
        }
        name = self.reader.wire_names.get(written, written)
        place = unit_of(identity_of(beside, ()), labels)
        return _Series(name, labels, place, self.reader.cells(labels))


class Batch:
    """Pages of one call to a source, made into one table at the end."""

    def __init__(self, parser: PageParser) -> None:
        self._parser = parser
        self._begin()
        self._failed: list[Attempt] = []
        self._parts: list[Collected] = []
        self._problems: list[SourceProblem] = []

    def _begin(self) -> None:
        self._samples, self._attempts = Samples(self._parser.reader), list[Attempt]()
        # of each sample: unit, slot, unix microseconds, value
        self._columns: tuple[list[int], list[int], list[int], list[float]] = ([], [], [], [])

    def add(self, instance: str, time: datetime, body: bytes) -> None:
        """A page that was answered."""
        found = self._parser.samples(body)
        if isinstance(found, str):
            self.fail(instance, time, found)
            return
        if self._samples.reader is not self._parser.reader:
            self._flush()
        micros, reader = _micros(time), self._parser.reader
        scrape: Identity = (("instance", instance),)
        unit_of_place: dict[Unit, int] = {}
        units, slots, times, numbers = self._columns
        for (_, labels, place, cells), value in zip(found.series, found.values, strict=True):
            if (unit := unit_of_place.get(place)) is None:
                whole = place._replace(server=(*scrape, *place.server))
                unit = unit_of_place[place] = reader.unit(whole)
            if cells is None:
                text = reader.configuration(labels)
                self._samples.configurations.append((unit, micros, text))
            for slot in cells or ():
                units.append(unit)
                slots.append(slot)
                numbers.append(value)
        times += [micros] * (len(units) - len(times))
        self._samples.doubts += [(scrape, micros, doubt) for doubt in found.doubts]
        self._attempts.append(Attempt(scrape, micros, None))
        if len(self._attempts) >= _PAGES_PER_FLUSH:
            self._flush()

    def fail(self, instance: str, time: datetime, reason: str) -> None:
        """A scrape without a page: a row for each engine, with the reason."""
        self._failed.append(Attempt((("instance", instance),), _micros(time), reason))

    def problem(self, where: str, reason: str, time: datetime | None) -> None:
        """Something outside a page that could not be read."""
        self._problems.append(SourceProblem(where, reason, time))

    def finish(self) -> Collected:
        """All rows, sorted by instance, engine and time, and the problems, repeats folded."""
        self._flush()
        self._attempts = self._failed
        self._flush()
        scrapes = pl.concat([empty_scrapes(), *(one.scrapes for one in self._parts)])
        scrapes = scrapes.sort("instance", "engine", "time", maintain_order=True)
        targets = {key: t for one in self._parts for key, t in one.targets.items()}
        return Collected(scrapes.rechunk(), targets, folded(self._problems))

    def _flush(self) -> None:
        self._samples.add_lists(*self._columns)
        if self._attempts or not self._samples.is_empty:
            part = scrape_rows(self._samples, self._attempts, self._parser.known)
            self._parts.append(part)
            self._problems += part.problems
        self._begin()


def _micros(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


def _refused(series: Sequence[_Series]) -> str | None:
    """Why a page cannot be a vLLM server's; None where it can."""
    names = {one.name for one in series}
    vllm = [one.labels for one in series if one.name.startswith(VLLM)]
    if not vllm:
        return without_vllm(names)
    if not ROUTER_NAMES.isdisjoint(names):
        return NOT_AN_ENGINE
    engines = {one.get("engine", "") for one in vllm} - {""}
    if len(engines) > MAX_ENGINES:
        return f"page refused: {len(engines)} engines, more than {MAX_ENGINES}"
    for label in ("engine", "model_name"):
        longest = max((len(one.get(label, "")) for one in vllm), default=0)
        if longest > MAX_NAME_CHARACTERS:
            what = f"a label {label} of {longest} characters, more than {MAX_NAME_CHARACTERS}"
            return f"page refused: {what}"
    return None


_REPORTS = {"/version": from_version, "/v1/models": from_models}


class PagesSource:
    """vLLM servers scraped without a Prometheus between.

    ``urls``: addresses, or address → labels for its targets. A label ``instance`` replaces
    ``host:port`` as the instance's name (two servers behind one gateway need it); ``clock``: gives
    each scrape its time, taken when the scrape starts; ``verify``: address → file of authorities
    that check its certificate, where it is not the system's.
    Raises UsageError: no address, not an address, or two with the same instance name.
    """

    is_live = True

    def __init__(
        self,
        urls: Iterable[str] | Mapping[str, Mapping[str, str]],
        clock: Clock | None = None,
        bounds: Bounds | None = None,
        workers: int = 32,
        verify: Mapping[str, str] | None = None,
    ) -> None:
        self.name = "pages"
        self.settle_seconds = 0.0
        self._parser = PageParser()
        self._targets: dict[TargetKey, Target] = {}
        # instance → page → what it reports
        self._reported: dict[str, dict[str, Fingerprint]] = defaultdict(dict)
        labelled = urls if isinstance(urls, Mapping) else {url: {} for url in urls}
        names = ((url, labels.get("instance")) for url, labels in labelled.items())
        self._fetcher = PageFetcher(names, clock, bounds, workers, verify)
        self._labels = dict(zip(self._fetcher.addresses, labelled.values(), strict=True))

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each page once, now, whatever ``since`` and ``until`` are.

        A page that cannot be had or read is a row with ``ok`` False and the reason.
        """
        batch = self._parser.batch()
        for instance, answer in self._fetcher.answers(
            {one: to.url for one, to in self._fetcher.addresses.items()}
        ):
            if answer.body is None:
                batch.fail(instance, answer.time, answer.reason or "no answer")
            else:
                batch.add(instance, answer.time, answer.body)
        page = batch.finish()
        targets = {
            key: Target(key, {**self._labels[target.labels["instance"]], **target.labels})
            for key, target in page.targets.items()
        }
        found = Collected(page.scrapes, targets, page.problems)
        found = without_doubles(found, self._targets)
        self._targets = dict(found.targets)
        return found

    def reports(self) -> dict[str, Fingerprint]:
        """The release and model that each instance reports, from ``/version`` and ``/v1/models``.

        A page that answered is not fetched again.
        """
        for path, read in _REPORTS.items():
            addresses = self._fetcher.addresses.items()
            wanted = {
                one: to.beside(path) for one, to in addresses if path not in self._reported[one]
            }
            for instance, answer in self._fetcher.answers(wanted):
                if not answer.is_answered:
                    continue  # not reached: ask again next time
                try:
                    parsed = orjson.loads(answer.body or b"null")
                except orjson.JSONDecodeError:
                    parsed = None
                self._reported[instance][path] = read(parsed if isinstance(parsed, dict) else {})
        return {one: merged(*self._reported[one].values()) for one in sorted(self._labels)}

    def forget(self, instances: Iterable[str]) -> None:
        """Ask these servers again: they restarted."""
        for instance in instances:
            self._reported[instance].clear()

    def remember(self, stored: Mapping[TargetKey, Target]) -> None:
        """The targets of a store: they keep their names."""
        self._parser.known.names.remember(stored)

    def close(self) -> None:
        """End what is under way and give back the connections."""
        self._fetcher.close()

"""Scrapes of ``/metrics`` pages, directly: one or many servers, all at once, each bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

import orjson

from driftwatch.clock import Clock
from driftwatch.collect.fingerprint import from_models, from_version, merged
from driftwatch.collect.http import Gets
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.pages.parser import PageParser
from driftwatch.collect.schema import Collected
from driftwatch.model import Fingerprint, Target, TargetKey

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
        # instance → page → what it said
        self._told: dict[str, dict[str, Fingerprint]] = defaultdict(dict)
        labelled = urls if isinstance(urls, Mapping) else {url: {} for url in urls}
        names = ((url, labels.get("instance")) for url, labels in labelled.items())
        self._gets = Gets(names, clock, bounds, workers, verify)
        self._labels = dict(zip(self._gets.addresses, labelled.values(), strict=True))

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each page once, now: ``since`` and ``until`` say nothing to a live page.

        A page that cannot be had or read is a row with ``ok`` False and the reason.
        """
        batch = self._parser.batch()
        for instance, answer in self._gets.answers(self._gets.addresses):
            if answer.body is None:
                batch.fail(instance, answer.time, answer.reason or "no answer")
            else:
                batch.add(instance, answer.time, answer.body)
        page = batch.finish()
        targets = {
            key: Target(key, {**self._labels[target.labels["instance"]], **target.labels})
            for key, target in page.targets.items()
        }
        return Collected(page.scrapes, targets, page.problems)

    def reports(self) -> dict[str, Fingerprint]:
        """What each instance says of itself, from ``/version`` and ``/v1/models``.

        A page that was answered is not asked for again.
        """
        for path, read in _REPORTS.items():
            urls = self._gets.beside(path)
            wanted = {one: url for one, url in urls.items() if path not in self._told[one]}
            for instance, answer in self._gets.answers(wanted):
                if answer.status is None:
                    continue  # not reached: ask again next time
                try:
                    said = orjson.loads(answer.body or b"null")
                except orjson.JSONDecodeError:
                    said = None
                self._told[instance][path] = read(said if isinstance(said, dict) else {})
        return {one: merged(*self._told[one].values()) for one in sorted(self._labels)}

    def forget(self, instances: Iterable[str]) -> None:
        """Ask these servers again: they restarted."""
        for instance in instances:
            self._told[instance].clear()

    def remember(self, stored: Mapping[TargetKey, Target]) -> None:
        """The targets of a store: they keep their names."""
        self._parser.known.names.remember(stored)

    def close(self) -> None:
        """End what is under way and give back the connections."""
        self._gets.close()

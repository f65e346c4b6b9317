"""Scrapes of ``/metrics`` pages, directly: one or many servers, all at once, each bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import orjson

from driftwatch.clock import Clock
from driftwatch.collect.http import Bounds, Gets
from driftwatch.collect.pages.parser import PageParser
from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey


class PagesSource:
    """vLLM servers scraped without a Prometheus between.

    ``urls``: addresses, or address → labels for its targets. A label ``instance`` replaces
    ``host:port`` as the instance's name (two servers behind one gateway need it); ``clock``: gives
    each scrape its time, taken when the scrape starts; ``verify``: address → file of authorities
    that check its certificate, where it is not the system's.
    Raises UsageError: no address, not an address, or two with the same instance name.
    """

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
        self._versions: dict[str, str | None] = {}
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
        return Collected(page.frame, targets, page.problems)

    def version(self) -> dict[str, str | None]:
        """vLLM's version by instance, from ``/version``; None where it does not say.

        An instance that answered is not asked again.
        """
        urls = self._gets.beside("/version")
        urls = {one: url for one, url in urls.items() if one not in self._versions}
        for instance, answer in self._gets.answers(urls):
            if answer.status is None:
                continue  # not reached: ask again next time
            try:
                told = orjson.loads(answer.body or b"null")
            except orjson.JSONDecodeError:
                told = None
            version = told.get("version") if isinstance(told, dict) else None
            self._versions[instance] = version if isinstance(version, str) else None
        return {instance: self._versions.get(instance) for instance in sorted(self._labels)}

    def forget(self, instances: Iterable[str]) -> None:
        """Ask these servers for their version again: they restarted."""
        for instance in instances:
            self._versions.pop(instance, None)

    def remember(self, stored: Mapping[TargetKey, Target]) -> None:
        """The targets of a store: they keep their names."""
        self._parser.known.names.remember(stored)

    def close(self) -> None:
        """End what is under way and give back the connections."""
        self._gets.close()

"""Scrapes of ``/metrics`` pages, directly: one or many servers, all at once, each bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

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
        self._json: dict[tuple[str, str], Any] = {}
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
        answers = self._ask("/version")
        return {
            instance: answer["version"]
            if isinstance(answer, dict) and isinstance(answer.get("version"), str)
            else None
            for instance, answer in answers.items()
        }

    def server_info(self) -> dict[str, dict[str, Any] | None]:
        """``/server_info`` as JSON by instance; None where it is not served.

        vLLM serves it in its development mode only, which no production server should run.
        """
        answers = self._ask("/server_info?config_format=json")
        return {i: answer if isinstance(answer, dict) else None for i, answer in answers.items()}

    def forget(self, instances: Iterable[str]) -> None:
        """Ask these servers for version and settings again: they restarted."""
        restarted = set(instances)
        self._json = {key: answer for key, answer in self._json.items() if key[0] not in restarted}

    def remember(self, stored: Mapping[TargetKey, Target]) -> None:
        """The targets of a store: they keep their names."""
        self._parser.known.names.remember(stored)

    def close(self) -> None:
        """End what is under way and give back the connections."""
        self._gets.close()

    def _ask(self, path: str) -> dict[str, Any]:
        """JSON answer by instance, None where there was none; a server's word is kept."""
        urls = {
            instance: url
            for instance, url in self._gets.beside(path).items()
            if (instance, path) not in self._json
        }
        for instance, answer in self._gets.answers(urls):
            if answer.status is None:
                continue  # not reached: ask again next time
            try:
                self._json[instance, path] = orjson.loads(answer.body or b"null")
            except orjson.JSONDecodeError:
                self._json[instance, path] = None
        return {instance: self._json.get((instance, path)) for instance in sorted(self._labels)}

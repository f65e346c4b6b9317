"""Reload: the configuration and its rules read anew while the service runs, whole or not at all.

On SIGHUP at once; by itself when a file has other content than before and the same content in two
looks, as one that is being written has not. Nothing is taken that does not parse, and nothing
while a tick is under way (:meth:`driftwatch.service.run.Service.adopt`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from driftwatch.clock import Clock
from driftwatch.errors import ConfigError, DriftwatchError, Problem
from driftwatch.pipeline.plan import Plan
from driftwatch.rulebook.book import display_path, read_rulebook, rule_files
from driftwatch.service.configuration import plan_of_settings
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.receivers import Receiver, receivers_of
from driftwatch.settings import Settings, load_settings

LOOK_SECONDS = 5.0
# What a process is connected to; the rest of the configuration is what it decides with.
AT_START = (
    "sources", "interval", "connect_timeout", "read_timeout", "database",
    "database_password_file", "listen", "retention", "report",
    "heartbeat", "batches", "worker_heartbeat",
)  # fmt: skip
_Digests = Mapping[Path, str]  # file → of its content; "" = it cannot be read
Adopt = Callable[[Plan, Sequence[Receiver]], None]


class Reload:
    """Reloads one configuration file; every method is for one thread.

    Args:
        settings, plan: as loaded from ``config`` at the start.
        adopt: takes what was read.
    """

    def __init__(
        self,
        config: Path,
        settings: Settings,
        plan: Plan,
        adopt: Adopt,
        metrics: OwnMetrics,
        clock: Clock,
        log: Any,
    ) -> None:
        self._config, self._adopt, self._log = config, adopt, log
        self._metrics, self._clock = metrics, clock
        self._started = self._in_force = self._latest = settings
        self._plan = plan
        # files as they were read last, taken or refused, and as they are in force
        self._digests = self._digests_in_force = self._now()
        self._unsettled: _Digests | None = None
        metrics.reloaded(good=True, at=clock.now())

    @property
    def rules(self) -> int:
        """How many rules are evaluated."""
        return len(self._plan.enabled)

    def look(self) -> None:
        """Reload where a file has changed, once two looks find the same."""
        digests = self._now()
        if digests == self._digests:
            self._unsettled = None
        elif digests != self._unsettled:
            self._unsettled = digests
        else:
            self.reload()

    def reload(self) -> None:
        """Read everything anew, and take it unless there is a problem."""
        self._unsettled = None
        problems: tuple[Problem, ...] = ()
        before = self._now()
        try:
            self._latest = load_settings(self._config)
            before = {path: before.get(path, digest) for path, digest in self._now().items()}
            plan, receivers = plan_of_settings(self._latest), receivers_of(self._latest)
        except DriftwatchError as error:
            problems = self._problems(error)
        except Exception as error:  # noqa: BLE001 - whatever a file does, the service watches on
            problems = (_whole(self._config, f"{type(error).__name__}: {error}"),)
        self._digests, after = before, self._now()
        if after != before:
            self._unsettled = after
            self._log.info("not reloaded yet: a file changed while it was read")
        elif problems:
            self._refuse(problems)
        else:
            self._adopt(plan, receivers)
            self._note(plan)

    def _now(self) -> _Digests:
        try:
            return _digests(self._files())
        except OSError as error:  # a folder that cannot be entered
            return {self._config: str(error)}

    def _files(self) -> list[Path]:
        """The configuration, and the rule files that it names or named when it was last right."""
        named = [path for one in (self._in_force, self._latest) for path in one.rules.files]
        return [self._config, *rule_files(named)]

    def _problems(self, error: DriftwatchError) -> tuple[Problem, ...]:
        """Those of the configuration, and those of its rules, which were not read then."""
        if not isinstance(error, ConfigError):
            return (_whole(self._config, str(error)),)
        of_files = {problem.path for problem in error.problems}
        others = read_rulebook(self._latest.rules.files).problems
        return (*error.problems, *(p for p in others if p.path not in of_files))

    def _refuse(self, problems: Sequence[Problem]) -> None:
        errors = [problem for problem in problems if problem.severity == "error"]
        for problem in errors:
            self._log.error("refused", **_words(problem))
        self._log.error("not reloaded: what is in force stays", problems=len(errors))
        self._metrics.reloaded(good=False, at=self._clock.now())

    def _note(self, plan: Plan) -> None:
        before, after = ({rule.id for rule in one.rules} for one in (self._plan, plan))
        files = {**self._digests_in_force, **self._digests}
        changed = [
            path for path in files if self._digests_in_force.get(path) != self._digests.get(path)
        ]
        facts = {
            "files": _listed(display_path(path) for path in changed),
            "added": _listed(sorted(after - before)),
            "removed": _listed(sorted(before - after)),
        }
        self._log.info(
            "reloaded" if changed else "reloaded: no file has changed",
            rules=len(plan.enabled),
            **{name: text for name, text in facts.items() if text},
        )
        for key in AT_START:
            if getattr(self._latest, key) != getattr(self._started, key):
                self._log.warning("needs a restart", key=key)
        self._plan, self._in_force, self._digests_in_force = plan, self._latest, self._digests
        self._metrics.reloaded(good=True, at=self._clock.now())


def _words(problem: Problem) -> dict[str, str]:
    where = [problem.path, problem.line, problem.column]
    facts = {
        "where": ":".join(str(part) for part in where if part is not None),
        "code": problem.code,
        "reason": problem.message,
        "help": problem.help_text or "",
    }
    return {name: text for name, text in facts.items() if text}


def _whole(path: Path, message: str) -> Problem:
    return Problem(str(path), None, None, "unreadable", message)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - 10} more" if len(every) > 10 else ""
    return ", ".join(every[:10]) + more


def _digests(paths: Iterable[Path]) -> _Digests:
    digests = {}
    for path in paths:
        try:
            digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            digests[path] = ""
    return digests

"""Reload at SIGHUP: read configuration and rules anew, and take all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from driftwatch.clock import Clock
from driftwatch.errors import ConfigError, DriftwatchError, Problem
from driftwatch.incidents.planner import FIRST_RECEIVER
from driftwatch.pipeline.plan import Plan
from driftwatch.receivers.registry import Receiver, receivers_of, subscriptions_of
from driftwatch.rulebook.book import read_rulebook
from driftwatch.service.configuration import plan_of_settings
from driftwatch.service.metrics import OwnMetrics
from driftwatch.settings import Settings, load_settings

# What a process is connected to; the rest of the configuration is what it decides with.
AT_START = (
    "sources", "interval", "database",
    "database_password_file", "listen", "report",
    "heartbeat",
)  # fmt: skip
Checked = tuple[Settings, Plan, list[Receiver]]


def checked(config: Path, started: Settings) -> Checked | list[Problem]:
    """A configuration with its plan and receivers, or every problem of it and of its rules.

    ``started``: of the start, whose rules are read where the configuration names none.
    """
    rules = started.rules.files
    try:
        settings = load_settings(config)
        rules = settings.rules.files
        return settings, plan_of_settings(settings), list(receivers_of(settings))
    except ConfigError as error:
        of_files = {problem.path for problem in error.problems}
        others = (p for p in read_rulebook(rules).problems if p.path not in of_files)
        return [one for one in (*error.problems, *others) if one.severity == "error"]
    except Exception as error:  # noqa: BLE001 - whatever a file does, the service watches on
        kind = "" if isinstance(error, DriftwatchError) else f"{type(error).__name__}: "
        return [Problem(str(config), None, None, "unreadable", f"{kind}{error}")]


class Reload:
    """Reloads one configuration file; every method is for one thread.

    Args:
        settings, plan: as loaded from ``config`` at the start.
        adopt: takes what was read, between two ticks.
    """

    def __init__(
        self,
        config: Path,
        settings: Settings,
        plan: Plan,
        adopt: Callable[[Plan, Sequence[Receiver]], None],
        metrics: OwnMetrics,
        clock: Clock,
        log: Any,
    ) -> None:
        self._config, self._adopt, self._log = config, adopt, log
        self._metrics, self._clock = metrics, clock
        self._started, self._plan = settings, plan
        self._note_routes(settings, plan)
        metrics.note_reload(good=True, at=clock.now())

    @property
    def rules(self) -> int:
        """How many rules are evaluated."""
        return len(self._plan.enabled)

    def reload(self) -> None:
        """Read everything anew, and take it unless there is a problem."""
        found = checked(self._config, self._started)
        self._metrics.note_reload(good=not isinstance(found, list), at=self._clock.now())
        if isinstance(found, list):
            for problem in found:
                self._log.error("refused", **_words(problem))
            self._log.error("not reloaded: what is in force stays", problems=len(found))
            return
        settings, plan, receivers = found
        self._adopt(plan, receivers)
        self._log.info("reloaded", rules=len(plan.enabled))
        self._note_routes(settings, plan)
        for key in AT_START:
            if getattr(settings, key) != getattr(self._started, key):
                self._log.warning("needs a restart", key=key)
        self._plan = plan

    def _note_routes(self, settings: Settings, plan: Plan) -> None:
        """Warn where nobody gets a page."""
        routes = plan.routes_to(subscriptions_of(settings))
        if routes.of_severity("page").reaches_nobody:
            why = "no receiver takes pages" if routes.names else "there are no receivers"
            self._log.warning("nobody gets a page", reason=why, help=FIRST_RECEIVER)


def _words(problem: Problem) -> dict[str, str]:
    where = [problem.path, problem.line, problem.column]
    facts = {
        "where": ":".join(str(part) for part in where if part is not None),
        "code": problem.code,
        "reason": problem.message,
        "help": problem.help_text or "",
    }
    return {name: text for name, text in facts.items() if text}

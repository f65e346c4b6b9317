"""Answers that hold until the database has something new: made once, whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_MOST = 32


class AnswerCache:
    """Answers by question; of an older state of the database none is given."""

    def __init__(self) -> None:
        self._answers: dict[object, tuple[object, Any]] = {}
        self._lock = threading.Lock()
        self._making: dict[object, threading.Lock] = {}

    def get(self, question: object, state: object, make: Callable[[], Any]) -> Any:
        """The answer as of a state; of several who ask at once the first makes it.

        ``question``, ``state``: compared by value.
        """
        with self._lock:
            making = self._making.setdefault(question, threading.Lock())
        with making:
            answer = self._answers.get(question)
            if answer is None or answer[0] != state:
                answer = state, make()
                with self._lock:
                    self._answers[question] = answer
                    while len(self._answers) > _MOST:
                        oldest = next(iter(self._answers))
                        del self._answers[oldest]
                        self._making.pop(oldest, None)
            return answer[1]

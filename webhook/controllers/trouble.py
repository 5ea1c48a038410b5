"""What keeps a controller from writing, logged once for each cause however many objects it befalls."""

from __future__ import annotations

from webhook.cluster.api import ApiError
from webhook.telemetry.log import Log


class Trouble(str):
    """The ``error`` of a write about one object, as it is told. Its ``cause`` is what other objects may have alike: the
    API server's message names the object.
    """

    cause: str

    def __new__(cls, about: str, error: ApiError) -> Trouble:
        """``about`` says what could not be written."""
        made = super().__new__(cls, f"{about}: {error}")
        made.cause = f"{error.status} {error.reason}"
        return made


class Once:
    """Writes ``event`` to the log, with a trouble, once for each cause until it is over."""

    def __init__(self, log: Log, event: str) -> None:
        self._log = log
        self._event = event
        self._causes: set[str] = set()

    def tell(self, trouble: str) -> None:
        """Log ``trouble``, whose cause is its text where it is no :class:`Trouble`."""
        cause = trouble.cause if isinstance(trouble, Trouble) else trouble
        if cause not in self._causes:
            self._causes.add(cause)
            self._log.write("warning", self._event, message=str(trouble))

    def over(self) -> None:
        """It works again."""
        self._causes.clear()

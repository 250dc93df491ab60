# SPDX-License-Identifier: Apache-2.0
"""Events that observers get, the inbox where they wait, and the error of a refused call."""
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any


class Error(Exception):
    """A call was refused.

    ``name`` is the name of the D-Bus error, such as ``org.carillon.Error.NotAllowed``: programs look at it, people read the
    message. With ``org.freedesktop.DBus.Error.NoReply`` the service ended during the call, and the call may have had its
    effect or not.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name

    def __str__(self) -> str:
        return ": ".join(self.args)


@dataclass(frozen=True)
class Notification:
    """A notification, or a retained value."""

    name: str
    object: str
    """Empty if it has none."""
    user_info: dict[str, Any]
    sequence: int
    """Its number among those that were sent to this program; 0 for a result of ``get``."""
    poster: str
    """The unique bus name of the poster, as the bus verified it."""
    serial: int
    """Its number among all that the service accepted."""
    details: dict[str, Any]
    """As far as they are known: ``uid``, ``pid``, ``process``, ``app`` and ``unit`` of the poster; ``host`` and ``user`` of a
    notification from outside of the session; ``time`` and ``expiry`` (datetime); ``kept``: whether it is retained;
    ``retained``: whether it was there before the observer."""


@dataclass(frozen=True)
class Dropped:
    """Notifications for this program were lost."""

    count: int
    """The number of lost notifications; an upper bound with ``bus-limits``, ``bus-disconnected`` and ``service-restarted``;
    0 with ``not-allowed``, when policy has removed the observer, which ends it."""
    reason: str
    """That of the D-Bus signal ``Dropped``; or ``not-taken``: too many events waited in this program."""


@dataclass(frozen=True)
class Gap:
    """Notifications may have been lost, and their number is unknown."""

    reason: str
    """``service-changed``: another service took over that did not know the observer, which has been registered again.
    ``sequence``: sequence numbers are missing that no ``Dropped`` explains."""


Event = Notification | Dropped | Gap


def again(error: Exception) -> Exception:
    """The same error for another caller: one that is raised twice keeps the frames of both."""
    return type(error)(*error.args)


class EndOfEvents(Exception):
    """No event follows."""


class Inbox:
    """Events that a program has not taken yet. Of more than ``MAX_WAITING`` the oldest are lost. Any thread may use it."""

    MAX_WAITING = 1000

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._lost = 0
        self._end: Exception | None = None

    def put(self, event: Event) -> None:
        with self.changed:
            if self._end is None:
                if len(self._events) >= self.MAX_WAITING:
                    self._events.popleft()
                    self._lost += 1
                self._events.append(event)
            self._notify()

    def end(self, reason: Exception, keep: bool = True) -> None:
        """No event follows. Those that wait are taken first with ``keep``, and are dropped without."""
        with self.changed:
            self._end = self._end or reason
            if not keep:
                self._events.clear()
                self._lost = 0
            self._notify()

    def take(self) -> Event | None:
        """The next event; None if there is none yet. Raises the reason of the end."""
        with self.changed:
            if self._lost:
                lost, self._lost = self._lost, 0
                return Dropped(lost, "not-taken")
            if self._events:
                return self._events.popleft()
            if self._end is not None:
                raise again(self._end)
            return None

    def _notify(self) -> None:
        self.changed.notify_all()

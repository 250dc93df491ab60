# SPDX-License-Identifier: Apache-2.0
"""Events that observers get, and the error of a refused call."""
from dataclasses import dataclass
from typing import Any


class Error(Exception):
    """A call was refused.

    ``name`` is the name of the D-Bus error, such as ``org.carillon.Error.NotAllowed``: programs look at it, people read the
    message. With ``org.freedesktop.DBus.Error.NoReply`` the service ended during the call, and the call may have had its
    effect or not.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


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
    0 with ``not-allowed``, when policy has removed the observer."""
    reason: str


@dataclass(frozen=True)
class Ended:
    """A retained value has ended; for observers with the option ``endings``."""

    name: str
    object: str
    reason: str
    """``removed``, ``expired`` or ``poster-left``."""
    serial: int
    sequence: int
    details: dict[str, Any]


@dataclass(frozen=True)
class Gap:
    """Notifications may have been lost, and their number is unknown."""

    reason: str
    """``service-changed``: another service took over that did not know the observer, which has been registered again.
    ``sequence``: sequence numbers are missing that no ``Dropped`` explains."""


Event = Notification | Dropped | Ended | Gap

# SPDX-License-Identifier: Apache-2.0
"""Carillon, the distributed notification center of the desktop session, for Python programs.

    import carillon

    with carillon.Center() as center:
        center.post("com.example.Saved", "report.txt", {"bytes": 4711})
        for event in center.observe("com.example.Saved"):
            print(event)

A program with GLib's main loop passes a handler to ``observe``. A program with asyncio uses ``carillon.aio.Center``.
"""
import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from . import aio
from ._events import Dropped, Ended, Error, Event, Gap, Notification

__all__ = ["Center", "Dropped", "Ended", "Error", "Event", "Gap", "Notification", "Observation", "aio"]


class Observation(Iterator[Event], AbstractContextManager):
    """The result of ``observe``: an iterator that waits for the next event. ``close`` ends it."""

    def __init__(self, center: "Center", handler: Callable[[Event], Any] | None) -> None:
        self._center, self._handler = center, handler
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.qsize = self._queue.qsize

    def put_nowait(self, event: Event | Exception) -> None:
        """For the thread of the connection."""
        self._queue.put(event)
        if self._handler is not None:
            from gi.repository import GLib

            GLib.idle_add(self._call, priority=GLib.PRIORITY_DEFAULT)

    def _call(self) -> bool:
        self._handler(self.next())
        return False

    def next(self, timeout: float | None = None) -> Event:
        """The next event. Raises ``TimeoutError`` if there is none for so many seconds."""
        try:
            event = self._queue.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event for {timeout:g} s") from None
        if isinstance(event, Exception):
            self._queue.put(event)
            raise event
        if not self._center._center._more.is_set():
            self._center._loop.call_soon_threadsafe(self._center._center._more.set)
        return event

    __next__ = next

    def close(self) -> None:
        """Stop observing. Events that were not taken are dropped."""
        with suppress(RuntimeError):  # the center is closed
            self._center._loop.call_soon_threadsafe(self._observation.close)

    def __exit__(self, *error: Any) -> None:
        self.close()


class Center(AbstractContextManager):
    """A connection to the notification center, which any thread may use.

    As ``carillon.aio.Center``, but methods wait. The connection is served by a thread of its own.
    """

    def __init__(self, bus: str = "SESSION", timeout: float = 30) -> None:
        """``bus`` is ``SESSION``, ``SYSTEM`` or the address of a bus; ``timeout`` is that of each call, in seconds."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="carillon", daemon=True)
        self._thread.start()
        self._center = aio.Center(bus, timeout)
        try:
            self._wait(self._center.open())
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def close(self) -> None:
        """Leave the bus. All observers end."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._center.close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def post(self, name: str, object: str = "", user_info: dict | None = None, **options: Any) -> int:
        """As ``carillon.aio.Center.post``."""
        return self._wait(self._center.post(name, object, user_info, **options))

    def get(self, name: str, object: str = "") -> list[Notification]:
        """As ``carillon.aio.Center.get``."""
        return self._wait(self._center.get(name, object))

    def wait(self, name: str, object: str = "", timeout: float | None = None, **options: Any) -> Notification:
        """As ``carillon.aio.Center.wait``."""
        return self._wait(self._center.wait(name, object, timeout, **options))

    def observe(
        self, name: str = "", object: str = "", handler: Callable[[Event], Any] | None = None, **options: Any
    ) -> Observation:
        """Observe a name and an object; an empty one matches all. ``options`` are those of ``carillon.aio.Center.observe``.

        Events come from the result, or with ``handler`` as calls of it by GLib's default main context (PyGObject).
        """
        observation = Observation(self, handler)

        async def begin() -> aio.Observation:
            return await self._center._observe(name, object, options, observation)

        observation._observation = self._wait(begin())
        return observation

    def _wait(self, coroutine: Any) -> Any:
        if self._center._failure is not None:
            coroutine.close()
            raise self._center._failure
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

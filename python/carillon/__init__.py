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
import atexit
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any

from . import aio
from ._events import Dropped, EndOfEvents, Error, Event, Gap, Inbox, Notification

__all__ = ["Center", "Dropped", "Error", "Event", "Gap", "Notification", "Observation", "aio"]
Handler = Callable[[Event | ConnectionError | Error], Any]
_centers: "weakref.WeakSet[Center]" = weakref.WeakSet()


@functools.cache
def _end_at_exit() -> None:
    """At the exit of the program ends the threads of centers that are still there, so that none stands still in the middle.

    To be called when there is a finalizer: from the exit function of ``weakref`` on, which then comes later, none works.
    """
    atexit.register(_end_all)


def _end_all() -> None:
    for center in list(_centers):
        if center._process == os.getpid():
            center._end()
            center._thread.join(timeout=5)


class Observation(Iterator[Event], AbstractContextManager):
    """The result of ``observe``: an iterator that waits for the next event.

    It ends by ``close``; without a handler also when the program lets go of it.
    """

    def __init__(self, center: "Center", inbox: Inbox) -> None:
        self._center, self._inbox = center, inbox

    def next(self, timeout: float | None = None) -> Event:
        """The next event. Raises ``TimeoutError`` if there is none for so many seconds, and ``StopIteration`` at the end."""
        if isinstance(self._inbox, _HandlerInbox):
            raise RuntimeError("the events of this observation go to its handler")
        found: list[Event] = []
        with self._inbox.changed:
            try:
                if not self._inbox.changed.wait_for(lambda: self._take(found), timeout):
                    raise TimeoutError(f"no event for {timeout:g} s")
            except EndOfEvents:
                raise StopIteration from None
        return found[0]

    def _take(self, found: list[Event]) -> bool:
        event = self._inbox.take()
        if event is not None:
            found.append(event)
        return event is not None

    __next__ = next

    def close(self) -> None:
        """Stop observing. Events that were not taken are dropped, and the iteration ends."""
        self._inbox.end(EndOfEvents(), keep=False)
        aio._call_soon(self._center._loop, self._registration.close)

    def __exit__(self, *error: Any) -> None:
        self.close()


class _HandlerInbox(Inbox):
    """Its events go to a handler, by GLib's default main context."""

    def __init__(self, handler: Handler, center: "Center") -> None:
        from gi.repository import GLib

        super().__init__()
        # The center lives as long as a handler is to be called.
        self._glib, self._handler, self._center = GLib, handler, center
        self._has_failed = False

    def _notify(self) -> None:
        self._glib.idle_add(self._call, priority=self._glib.PRIORITY_DEFAULT)

    def _call(self) -> bool:
        try:
            event = self.take()
        except EndOfEvents:
            return False
        except (ConnectionError, Error) as error:
            if self._has_failed:
                return False
            self._has_failed = True
            event = error
        if event is not None:
            self._handler(event)
        return False


class Center(AbstractContextManager):
    """A connection to the notification center, which any thread may use.

    As ``carillon.aio.Center``, but methods wait. The connection is served by a thread of its own. It does not work in a
    process that was made by ``os.fork`` afterwards.
    """

    def __init__(self, bus: str = "SESSION", timeout: float = 30) -> None:
        """``bus`` is ``SESSION``, ``SYSTEM`` or the address of a bus; ``timeout`` is that of each call, in seconds."""
        self._process = os.getpid()
        # A handler of a signal may call while a call is made.
        self._lock = threading.RLock()
        self._loop = asyncio.new_event_loop()
        self._center = aio.Center(bus, timeout)
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="carillon", daemon=True)
        self._thread.start()
        # When the program lets go of it, the thread and the connection end.
        self._end = weakref.finalize(self, aio._call_soon, self._loop, _Ending(self._loop, self._center))
        self._end.atexit = False
        _centers.add(self)
        _end_at_exit()
        try:
            self._wait(self._center.open())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Leave the bus. All observers end."""
        if self._process == os.getpid():
            with self._lock:
                self._end()
        if threading.current_thread() is not self._thread and self._process == os.getpid():
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
        self, name: str = "", object: str = "", handler: Handler | None = None, **options: Any
    ) -> Observation:
        """Observe a name and an object; an empty one matches all. ``options`` are those of ``carillon.aio.Center.observe``.

        Events come from the result, or with ``handler`` as calls of it by GLib's default main context (PyGObject); when the
        bus is gone, it gets the ``ConnectionError``, and when the service does not take the observer again, an ``Error``.
        """
        inbox = Inbox() if handler is None else _HandlerInbox(handler, self)
        observation = Observation(self, inbox)
        observation._registration = self._wait(_register(self._center, name, object, options, inbox))
        if handler is None:
            end = weakref.finalize(observation, aio._call_soon, self._loop, observation._registration.close)
            end.atexit = False
        return observation

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._process != os.getpid() or threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a Center can't be used in a process that was made by fork, nor by its own thread")
        with self._lock:
            if not self._end.alive:
                coroutine.close()
                raise ConnectionAbortedError("the center is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Control-C: what was begun is taken back.
            future.cancel()
            raise


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    # The results of calls that have just ended go to their threads.
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


class _Ending:
    """Closes a center, and ends what is left of its calls and its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, center: aio.Center) -> None:
        self._loop, self._center = loop, center

    def __call__(self) -> None:
        self._task = self._loop.create_task(self._close())

    async def _close(self) -> None:
        await self._center.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        # They have been told by then.
        await asyncio.wait(others, timeout=1) if others else None
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.stop()


async def _register(
    center: aio.Center, name: str, object: str, options: dict[str, Any], inbox: Inbox
) -> aio.Registration:
    center._prepare()
    registration = aio.Registration(center, name, object, options, inbox)
    await center._timed(registration.begin(registration.call()))
    return registration

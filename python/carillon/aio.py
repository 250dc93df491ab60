# SPDX-License-Identifier: Apache-2.0
"""The notification center for programs that use asyncio.

    async with carillon.aio.Center() as center:
        await center.post("com.example.Saved", "report.txt", {"bytes": 4711})
        async for event in center.observe("com.example.Saved"):
            print(event)
"""
import asyncio
import itertools
from collections.abc import AsyncIterator, Generator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from jeepney import DBusAddress, HeaderFields, Message, MessageFlag, MessageType
from jeepney import new_error, new_method_call, new_method_return
from jeepney.io.asyncio import open_dbus_connection

from . import _values
from ._events import Dropped, Ended, Error, Event, Gap, Notification

__all__ = ["Center", "Observation"]
_SERVICE = "org.carillon.NotificationCenter1"
_BUS = "org.freedesktop.DBus"
_NO_REPLY = "org.freedesktop.DBus.Error.NoReply"
_NOT_ALLOWED = "org.carillon.Error.NotAllowed"
_center = DBusAddress("/org/carillon/NotificationCenter1", bus_name=_SERVICE, interface=_SERVICE)
_bus = DBusAddress("/org/freedesktop/DBus", bus_name=_BUS, interface=_BUS)
# A program in a sandbox gets the last four only.
_DETAILS = ["uid", "pid", "process", "app", "unit", "host", "user", "retained", "time", "kept", "expiry"]
# With more events that the program has not taken, nothing is read: the service keeps the rest in its bounded queue.
_MAX_WAITING = 1000


class Observation(AsyncIterator[Event], AbstractAsyncContextManager):
    """The result of ``observe``: an asynchronous iterator over events. Awaiting it waits for the registration only."""

    def __init__(self, center: "Center", body: tuple, events: Any) -> None:
        self._center, self._body, self._events = center, body, events
        self._id: int | None = None
        self._is_closed = False
        self._registration = asyncio.ensure_future(self._begin(self._register()))

    def _register(self) -> "asyncio.Future[tuple]":
        return self._center._call(_center, "AddObserver", "ssa{sv}", *self._body)

    async def _begin(self, registered: "asyncio.Future[tuple]") -> None:
        while self._id is None:
            try:
                (self._id,) = await registered
            except Error as error:
                if error.name != _NO_REPLY:
                    raise
                registered = self._register()
        self._center._observations.append(self)
        if self._is_closed:
            self.close()

    def __await__(self) -> Generator[Any, None, "Observation"]:
        yield from asyncio.shield(self._registration).__await__()
        return self

    async def __anext__(self) -> Event:
        await self
        event = await self._events.get()
        self._center._more.set()
        if isinstance(event, Exception):
            self._events.put_nowait(event)
            raise event
        return event

    def close(self) -> None:
        """Stop observing. Events that were not taken are dropped."""
        self._is_closed = True
        self._center._more.set()
        # While it is being registered it is not in the list yet.
        with suppress(ValueError, ConnectionError):
            self._center._observations.remove(self)
            self._center._call(_center, "RemoveObserver", "t", self._id)

    async def __aexit__(self, *error: Any) -> None:
        self.close()


class Center(AbstractAsyncContextManager):
    """A connection to the notification center. ``open``, or ``async with``, connects it.

    A call waits for at most ``timeout`` seconds and then raises ``TimeoutError``; a call that the service refuses raises
    ``Error``. Without a bus every call raises ``ConnectionError``. The service may end and come back at any time: observers
    are registered again, and get ``Dropped`` or ``Gap`` where they may have missed notifications.
    """

    def __init__(self, bus: str = "SESSION", timeout: float = 30) -> None:
        """``bus`` is ``SESSION``, ``SYSTEM`` or the address of a bus."""
        self._bus, self._timeout = bus, timeout
        self._failure: Exception | None = None
        self._owner: str | None = None
        self._calls: dict[int, asyncio.Future[tuple]] = {}
        self._observations: list[Observation] = []
        self._last_sequence: int | None = None
        self._excused = 0

    async def open(self) -> "Center":
        """Connect to the bus, and start the service unless it runs."""
        self._connection = await open_dbus_connection(self._bus)
        self._more = asyncio.Event()
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(asyncio.sleep(0))]
        rule = f"type='signal',sender='{_BUS}',member='NameOwnerChanged',arg0='{_SERVICE}'"
        try:
            self._call(_bus, "AddMatch", "s", rule)
            await self._timed(self._find_owner())
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Leave the bus. All observers end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(ConnectionAbortedError("the center is closed"))
        with suppress(OSError):
            await self._connection.close()

    async def __aenter__(self) -> "Center":
        return await self.open()

    async def __aexit__(self, *error: Any) -> None:
        await self.close()

    async def post(self, name: str, object: str = "", user_info: dict | None = None, **options: Any) -> int:
        """Post a notification, and return the number of programs with an observer that matches.

        ``options`` are those of the D-Bus method Post, with underscores: ``retain=True``, ``expires_after=60``,
        ``deliver_immediately=True``, ``posting_style="when-idle"``, ``coalesce_on=["name"]``.
        """
        body = _values.text(name), _values.text(object), _values.dictionary(user_info or {}), _values.options(options)
        return (await self._timed(self._call(_center, "Post", "ssa{sv}a{sv}", *body)))[0]

    async def get(self, name: str, object: str = "") -> list[Notification]:
        """The retained values of this name; with an object only the one of that object."""
        (values,) = await self._timed(self._call(_center, "Get", "ss", _values.text(name), _values.text(object)))
        return [
            _notification(name, object, info, details.pop("poster")[1], details.pop("serial")[1], 0, details)
            for name, object, info, details in values
        ]

    def observe(self, name: str = "", object: str = "", **options: Any) -> Observation:
        """Observe a name and an object; an empty one matches all. It begins before the next post of this program.

        ``options`` are those of the D-Bus method AddObserver, with underscores: ``suspension_behavior="hold"``,
        ``retained=True``, ``minimum_interval=100`` (milliseconds).
        """
        return self._observe(name, object, options, asyncio.Queue())

    async def wait(self, name: str, object: str = "", timeout: float | None = None, **options: Any) -> Notification:
        """The next notification of this name, within so many seconds; with ``retained=True`` a value that is there."""
        async with asyncio.timeout(timeout), self.observe(name, object, **options) as events:
            while not isinstance(event := await anext(events), Notification):
                pass
            return event

    def _observe(self, name: str, object: str, options: dict[str, Any], events: Any) -> Observation:
        body = _values.text(name), _values.text(object), _values.options(options)
        if not self._observations:
            self._set_options(_DETAILS)
        return Observation(self, body, events)

    def _set_options(self, details: list[str]) -> None:
        def done(future: "asyncio.Future[tuple]") -> None:
            if details is _DETAILS and isinstance(error := future.exception(), Error) and error.name == _NOT_ALLOWED:
                self._set_options(_DETAILS[-4:])

        options = _values.options({"batches": True, "details": details})
        self._call(_center, "SetClientOptions", "a{sv}", options).add_done_callback(done)

    async def _timed(self, awaitable: Any) -> Any:
        return await asyncio.wait_for(awaitable, self._timeout)

    def _call(self, to: DBusAddress, member: str, signature: str, *body: Any) -> "asyncio.Future[tuple]":
        """Send a call now."""
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[tuple] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._calls[self._send(new_method_call(to, member, signature, body))] = future
        self._more.set()
        return future

    def _send(self, message: Message) -> int:
        serial = next(self._connection.outgoing_serial)
        self._connection.writer.write(message.serialise(serial))
        return serial

    async def _read(self) -> None:
        try:
            while True:
                while not self._calls and sum(each._events.qsize() for each in self._observations) >= _MAX_WAITING:
                    self._more.clear()
                    await self._more.wait()
                self._receive(await self._connection.receive())
                # A task that waits for this answer goes on before the next message is handled.
                await asyncio.sleep(0)
        except (OSError, EOFError) as error:
            self._fail(ConnectionResetError(f"the bus is gone: {error!r}"))

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        for future in self._calls.values():
            if not future.done():
                future.set_exception(self._failure)
        for observation in self._observations:
            observation._events.put_nowait(self._failure)

    def _receive(self, message: Message) -> None:
        fields, kind, body = message.header.fields, message.header.message_type, message.body
        sender, member = fields.get(HeaderFields.sender), fields.get(HeaderFields.member)
        if kind is MessageType.method_call:
            if not message.header.flags & MessageFlag.no_reply_expected:
                is_ping = (fields.get(HeaderFields.interface), member) == ("org.freedesktop.DBus.Peer", "Ping")
                unknown = "org.freedesktop.DBus.Error.UnknownMethod"
                self._send(new_method_return(message) if is_ping else new_error(message, unknown))
        elif sender not in (_BUS, self._owner):
            pass  # Any program on the bus can send what looks like an answer or a notification.
        elif kind is not MessageType.signal:
            future = self._calls.pop(fields[HeaderFields.reply_serial], None)
            if future is None or future.done():
                pass
            elif kind is MessageType.error:
                future.set_exception(Error(fields[HeaderFields.error_name], str(body[0]) if body else ""))
            else:
                future.set_result(body)
        elif sender == _BUS and member == "NameOwnerChanged" and body[0] == _SERVICE:
            self._owner = body[2] or None
            self._tasks.pop().cancel()
            self._tasks.append(asyncio.ensure_future(self._recover()))
        elif fields.get(HeaderFields.interface) == _SERVICE:
            self._take(member, body)

    def _take(self, member: str, body: tuple) -> None:
        if member in ("Notifications", "Notification"):
            for name, object, info, ids, *rest in body[0] if member == "Notifications" else [(*body, {})]:
                self._take_number(_notification(name, object, info, *rest), ids)
        elif member == "ValueEnded":
            name, object, ids, reason, serial, sequence, known = body
            self._take_number(Ended(name, object, reason, serial, sequence, _values.details(known)), ids)
        elif member == "Dropped":
            count, ids, reason = body
            self._excused += count
            self._deliver(Dropped(count, reason), ids or None)
            if reason == "not-allowed":
                self._observations = [each for each in self._observations if each._id not in ids]

    def _take_number(self, event: Notification | Ended, ids: list[int]) -> None:
        if self._last_sequence is not None and event.sequence > self._last_sequence + 1 + self._excused:
            self._deliver(Gap("sequence"), None)
        self._last_sequence, self._excused = event.sequence, 0
        self._deliver(event, ids)

    def _deliver(self, event: Event, ids: list[int] | None) -> None:
        for observation in self._observations:
            if ids is None or observation._id in ids:
                observation._events.put_nowait(event)

    async def _find_owner(self) -> None:
        with suppress(Error):
            (self._owner,) = await self._call(_bus, "GetNameOwner", "s", _SERVICE)
            return
        await self._call(_bus, "StartServiceByName", "su", _SERVICE, 0)
        (self._owner,) = await self._call(_bus, "GetNameOwner", "s", _SERVICE)

    async def _recover(self) -> None:
        """The service is gone, or another has its name: have a service, and all observers registered with it."""
        for attempt in itertools.count():
            with suppress(Error, TimeoutError):
                await self._timed(self._find_owner())
                return await self._timed(self._register_again()) if self._observations else None
            await asyncio.sleep(min(0.05 * 2**attempt, 30))

    async def _register_again(self) -> None:
        self._set_options(_DETAILS)
        (found,) = await self._call(_center, "ListObservers", "s", self._connection.unique_name)
        known = {id: (name, object) for id, name, object, _ in found}
        if not known:
            self._last_sequence, self._excused = None, 0
        for observation in [each for each in self._observations if known.get(each._id or 0) != each._body[:2]]:
            if observation._id is not None:
                observation._events.put_nowait(Gap("service-changed"))
            observation._id = None
            try:
                (observation._id,) = await observation._register()
            except Error as error:
                if error.name != _NOT_ALLOWED:
                    raise
                self._observations.remove(observation)
                observation._events.put_nowait(Dropped(0, "not-allowed"))


def _notification(
    name: str, object: str, info: dict, poster: str, serial: int, sequence: int, details: dict
) -> Notification:
    info = _values.plain("a{sv}", info)
    return Notification(name, object, info, sequence, poster, serial, _values.details(details))

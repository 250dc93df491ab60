# SPDX-License-Identifier: Apache-2.0
"""The notification center for programs that use asyncio.

    async with carillon.aio.Center() as center:
        await center.post("com.example.Saved", "report.txt", {"bytes": 4711})
        async for event in center.observe("com.example.Saved"):
            print(event)
"""
import asyncio
import itertools
import logging
import os
import weakref
from collections.abc import AsyncIterator, Generator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from jeepney import DBusAddress, HeaderFields, Message, MessageFlag, MessageType
from jeepney import new_error, new_method_call, new_method_return
from jeepney.io.asyncio import DBusConnection, open_dbus_connection

from . import _values
from ._events import Dropped, EndOfEvents, Error, Event, Gap, Inbox, Notification, again

__all__ = ["Center", "Observation"]
_log = logging.getLogger("carillon")
_SERVICE = "org.carillon.NotificationCenter1"
_BUS = "org.freedesktop.DBus"
_NO_REPLY = "org.freedesktop.DBus.Error.NoReply"
_NOT_ALLOWED = "org.carillon.Error.NotAllowed"
_LIMIT_EXCEEDED = "org.carillon.Error.LimitExceeded"
_center = DBusAddress("/org/carillon/NotificationCenter1", bus_name=_SERVICE, interface=_SERVICE)
_bus = DBusAddress("/org/freedesktop/DBus", bus_name=_BUS, interface=_BUS)
# A program in a sandbox gets the last four only.
_DETAILS = ["uid", "pid", "process", "app", "unit", "host", "user", "retained", "time", "kept", "expiry"]


class Registration:
    """An observer at the service, and the inbox of its events. It belongs to the loop of its center."""

    def __init__(self, center: "Center", name: str, object: str, options: dict[str, Any], inbox: Inbox) -> None:
        self.inbox = inbox
        self.key = _values.text(name), _values.text(object)
        self._center, self._options = center, _values.options(options)
        self.id: int | None = None
        self.is_closed = False

    def call(self) -> "asyncio.Future[tuple]":
        answer = self._center._call(_center, "AddObserver", "ssa{sv}", *self.key, self._options)
        answer.add_done_callback(self._answered)
        return answer

    def _answered(self, answer: "asyncio.Future[tuple]") -> None:
        """Before the next message is handled, and also where nobody waits for the answer any more."""
        if answer.cancelled() or answer.exception() is not None:
            return
        try:
            (self.id,) = answer.result()
        except ValueError:
            return self.inbox.end(Error("org.freedesktop.DBus.Error.InvalidArgs", "the answer to AddObserver is none"))
        if self.is_closed:
            self._remove()
        elif self not in self._center._registrations:
            self._center._registrations.append(self)

    async def begin(self, answer: "asyncio.Future[tuple]") -> None:
        while True:
            try:
                await asyncio.shield(answer)
                return
            except Error as error:
                # With NoReply the service ended during the call.
                if error.name != _NO_REPLY or self.is_closed:
                    self.close()
                    raise
                answer = self.call()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Stop observing. While it is being registered, the answer removes it."""
        self.is_closed = True
        self.inbox.end(EndOfEvents(), keep=False)
        if self in self._center._registrations:
            self._center._registrations.remove(self)
            self._remove()

    def _remove(self) -> None:
        if self.id is not None:
            with suppress(ConnectionError):
                self._center._call(_center, "RemoveObserver", "t", self.id)
        self.id = None


class _AsyncInbox(Inbox):
    def __init__(self) -> None:
        super().__init__()
        self.ready = asyncio.Event()

    def _notify(self) -> None:
        self.ready.set()


class Observation(AsyncIterator[Event], AbstractAsyncContextManager):
    """The result of ``observe``: an asynchronous iterator over events. Awaiting it waits for the registration only.

    It ends by ``close``, and when the program lets go of it.
    """

    def __init__(self, center: "Center", name: str, object: str, options: dict[str, Any]) -> None:
        self._inbox = _AsyncInbox()
        self._center = center
        self._registration = Registration(center, name, object, options, self._inbox)
        self._begun = asyncio.ensure_future(self._registration.begin(self._registration.call()))
        self._begun.add_done_callback(lambda task: task.cancelled() or task.exception())
        loop = asyncio.get_running_loop()
        weakref.finalize(self, _call_soon, loop, self._registration.close).atexit = False

    def __await__(self) -> Generator[Any, None, "Observation"]:
        yield from self._center._timed(asyncio.shield(self._begun)).__await__()
        return self

    async def __anext__(self) -> Event:
        if not self._begun.done():
            await self
        elif not self._begun.cancelled() and (error := self._begun.exception()):
            raise again(error)
        try:
            while (event := self._inbox.take()) is None:
                self._inbox.ready.clear()
                await self._inbox.ready.wait()
            return event
        except EndOfEvents:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Stop observing. Events that were not taken are dropped, and the iteration ends."""
        self._registration.close()

    async def __aexit__(self, *error: Any) -> None:
        self.close()


def _call_soon(loop: asyncio.AbstractEventLoop, action: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(action)


class Center(AbstractAsyncContextManager):
    """A connection to the notification center. ``open``, or ``async with``, connects it.

    A call waits for at most ``timeout`` seconds and then raises ``TimeoutError``; a call that the service refuses raises
    ``Error``. Without a bus every call raises ``ConnectionError``. The service may end and come back at any time: observers
    are registered again, and get ``Dropped`` or ``Gap`` where they may have missed notifications.
    """

    def __init__(self, bus: str = "SESSION", timeout: float = 30) -> None:
        """``bus`` is ``SESSION``, ``SYSTEM`` or the address of a bus."""
        self._bus, self._timeout = bus, timeout
        self._connection: DBusConnection | None = None
        self._failure: Exception | None = ConnectionError("the center is not open")
        self._tasks: list[asyncio.Future[None]] = []
        self._owner: str | None = None
        self._calls: dict[int, asyncio.Future[tuple]] = {}
        self._registrations: list[Registration] = []
        self._last_sequence: int | None = None
        self._excused = 0

    async def open(self) -> "Center":
        """Connect to the bus, and start the service unless it runs."""
        self._connection = await self._timed(_connect(self._bus))
        self._failure = None
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
        self._registrations.clear()
        if self._connection is not None:
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
        self._prepare()
        return Observation(self, name, object, options)

    async def wait(self, name: str, object: str = "", timeout: float | None = None, **options: Any) -> Notification:
        """The next notification of this name, within so many seconds; with ``retained=True`` a value that is there."""
        try:
            async with asyncio.timeout(timeout), self.observe(name, object, **options) as events:
                async for event in events:
                    if isinstance(event, Notification):
                        return event
        except TimeoutError:
            raise TimeoutError(f"no notification {name!r} in time") from None
        raise Error(_NOT_ALLOWED, "the observer was removed, as policy does not allow it any more")

    def _prepare(self) -> None:
        """Before an observer is registered."""
        if not self._registrations:
            self._set_options(_DETAILS)

    def _set_options(self, details: list[str]) -> None:
        def done(future: "asyncio.Future[tuple]") -> None:
            error = None if future.cancelled() else future.exception()
            if isinstance(error, Error) and self._failure is None:
                if error.name == _NOT_ALLOWED and details is _DETAILS:
                    self._set_options(_DETAILS[-4:])
                elif error.name == _LIMIT_EXCEEDED:
                    asyncio.get_running_loop().call_later(1, self._repeat_options, details)

        options = _values.options({"batches": True, "details": details})
        self._call(_center, "SetClientOptions", "a{sv}", options).add_done_callback(done)

    def _repeat_options(self, details: list[str]) -> None:
        if self._failure is None:
            self._set_options(details)

    async def _timed(self, awaitable: Any) -> Any:
        # The wait_for of Python 3.11 forgets that its task is cancelled if the answer arrives at the same time.
        async with asyncio.timeout(self._timeout):
            return await awaitable

    def _call(self, to: DBusAddress, member: str, signature: str, *body: Any) -> "asyncio.Future[tuple]":
        """Send a call now."""
        if self._failure is not None:
            raise again(self._failure)
        future: asyncio.Future[tuple] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._calls[self._send(new_method_call(to, member, signature, body))] = future
        return future

    def _send(self, message: Message) -> int:
        assert self._connection is not None
        serial = next(self._connection.outgoing_serial)
        self._connection.writer.write(message.serialise(serial))
        return serial

    async def _read(self) -> None:
        assert self._connection is not None
        try:
            while True:
                try:
                    message = await self._connection.receive()
                except (OSError, EOFError):
                    raise
                except Exception:  # Any program on the bus can send what jeepney does not understand.
                    self._connection.parser.next_msg_size = None
                    continue
                try:
                    self._receive(message)
                except Exception:  # Whoever has the name of the service sends what no service sends.
                    _log.warning("a message of the service was not understood", exc_info=True)
                # A task that waits for this answer goes on before the next message is handled.
                await asyncio.sleep(0)
        except Exception as error:
            self._fail(ConnectionResetError(f"the bus is gone: {error!r}"))

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        for future in self._calls.values():
            if not future.done():
                future.set_exception(again(self._failure))
        for registration in self._registrations:
            registration.inbox.end(self._failure)

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
        elif member == "Dropped":
            count, ids, reason = body
            self._excused += count
            self._deliver(Dropped(count, reason), ids or None)
            if reason == "not-allowed":
                for registration in [each for each in self._registrations if each.id in ids]:
                    self._forget(registration)

    def _take_number(self, event: Notification, ids: list[int]) -> None:
        if self._last_sequence is not None and event.sequence > self._last_sequence + 1 + self._excused:
            self._deliver(Gap("sequence"), None)
        self._last_sequence, self._excused = event.sequence, 0
        self._deliver(event, ids)

    def _deliver(self, event: Event, ids: list[int] | None) -> None:
        for registration in self._registrations:
            if ids is None or registration.id in ids:
                registration.inbox.put(event)

    def _forget(self, registration: Registration) -> None:
        """The service has removed the observer."""
        self._registrations.remove(registration)
        registration.inbox.end(EndOfEvents())

    async def _find_owner(self) -> None:
        with suppress(Error):
            (self._owner,) = await self._call(_bus, "GetNameOwner", "s", _SERVICE)
            return
        await self._call(_bus, "StartServiceByName", "su", _SERVICE, 0)
        (self._owner,) = await self._call(_bus, "GetNameOwner", "s", _SERVICE)

    async def _recover(self) -> None:
        """The service is gone, or another has its name: have a service, and all observers registered with it."""
        for attempt in itertools.count():
            try:
                await self._timed(self._find_owner())
                if not self._registrations or await self._timed(self._register_again()):
                    return
            except (Error, TimeoutError):
                pass
            except Exception:
                if self._failure is not None:
                    return
                _log.warning("an answer of the service was not understood", exc_info=True)
            await asyncio.sleep(min(0.05 * 2 ** min(attempt, 10), 30))

    async def _register_again(self) -> bool:
        """Return whether all observers are registered. One that is refused for a limit does not hold up the others."""
        self._set_options(_DETAILS)
        (found,) = await self._call(_center, "ListObservers", "s", self._connection.unique_name)
        known = {id: (name, object) for id, name, object, _ in found}
        if not known:
            self._last_sequence, self._excused = None, 0
        for registration in [each for each in self._registrations if known.get(each.id) != each.key]:
            if registration.id is not None:
                registration.inbox.put(Gap("service-changed"))
            registration.id = None
            try:
                await registration.call()
            except Error as error:
                if error.name == _NO_REPLY:
                    raise
                if error.name == _NOT_ALLOWED and registration in self._registrations:
                    registration.inbox.put(Dropped(0, "not-allowed"))
                    self._forget(registration)
        return all(each.id is not None for each in self._registrations)


async def _connect(bus: str) -> DBusConnection:
    """A connection to the first of the addresses that can be reached."""
    if bus == "SESSION":
        directory = os.environ.get("XDG_RUNTIME_DIR")
        bus = os.environ.get("DBUS_SESSION_BUS_ADDRESS") or (f"unix:path={directory}/bus" if directory else "")
    elif bus == "SYSTEM":
        bus = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or "unix:path=/var/run/dbus/system_bus_socket"
    reason: Exception = ConnectionError("no address is known")
    for address in filter(None, bus.split(";")):
        try:
            return await open_dbus_connection(address)
        except Exception as error:  # also jeepney's own, for an address or a bus that it does not understand
            reason = error
    raise ConnectionError(f"no bus: {reason!r}")


def _notification(
    name: str, object: str, info: dict, poster: str, serial: int, sequence: int, details: dict
) -> Notification:
    info = _values.plain("a{sv}", info)
    return Notification(name, object, info, sequence, poster, serial, _values.details(details))

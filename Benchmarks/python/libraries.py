#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The processor time and the memory that an observer in Python takes, by D-Bus library.

    dbus-run-session -- Benchmarks/python/libraries.py [--count N] LIBRARY …

Needs the service on the session bus, or one that the bus starts. A LIBRARY is one of the functions of this file, such as
jeepney, gdbus, dbus_python, dbus_fast, sdbus, carillon and carillon_aio; each runs in a process of its own, which receives
COUNT notifications of three values. What importing and connecting take is told apart.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import time

NAME = "org.carillon.NotificationCenter1"
PATH = "/org/carillon/NotificationCenter1"
TOPIC = "com.example.Measured"
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))


class Meter:
    """Processor time from `begin` to the last notification."""

    def __init__(self, count):
        self.count, self.got = count, 0

    def begin(self):
        self.ready = time.process_time()
        print("ready", flush=True)

    def take(self):
        """Whether this was the last one."""
        self.got += 1
        return self.got >= self.count

    def report(self):
        used = time.process_time() - self.ready
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{used / self.count * 1e6:.1f} {self.ready * 1e3:.0f} {memory:.0f}", flush=True)


def jeepney(meter):
    from jeepney import DBusAddress, HeaderFields, new_method_call
    from jeepney.io.blocking import open_dbus_connection

    connection = open_dbus_connection()
    center = DBusAddress(PATH, NAME, NAME)
    connection.send_and_get_reply(new_method_call(center, "AddObserver", "ssa{sv}", (TOPIC, "", {})))
    meter.begin()
    while True:
        message = connection.receive()
        if message.header.fields.get(HeaderFields.member) == "Notification":
            if meter.take():
                return
        elif message.header.fields.get(HeaderFields.member) == "Ping":
            from jeepney import new_method_return

            connection.send(new_method_return(message))


def gdbus(meter):
    from gi.repository import Gio, GLib

    bus, loop = Gio.bus_get_sync(Gio.BusType.SESSION, None), GLib.MainLoop()

    def handle(*arguments):
        arguments[5].unpack()
        if meter.take():
            loop.quit()

    bus.signal_subscribe(NAME, NAME, "Notification", PATH, None, Gio.DBusSignalFlags.NO_MATCH_RULE, handle)
    arguments = GLib.Variant("(ssa{sv})", (TOPIC, "", {}))
    bus.call_sync(NAME, PATH, NAME, "AddObserver", arguments, None, Gio.DBusCallFlags.NONE, -1, None)
    meter.begin()
    loop.run()


def dbus_python(meter):
    import dbus
    import dbus.mainloop.glib
    from gi.repository import GLib

    loop = GLib.MainLoop()
    bus = dbus.SessionBus(mainloop=dbus.mainloop.glib.DBusGMainLoop())
    bus.add_signal_receiver(lambda *_: meter.take() and loop.quit(), "Notification", NAME, NAME, PATH)
    center = dbus.Interface(bus.get_object(NAME, PATH), NAME)
    center.AddObserver(TOPIC, "", dbus.Dictionary({}, signature="sv"))
    meter.begin()
    loop.run()


def dbus_fast(meter):
    from dbus_fast import Message, MessageType
    from dbus_fast.aio import MessageBus

    async def main():
        bus = await MessageBus().connect()
        done = asyncio.Event()

        def handle(message):
            if message.message_type is MessageType.SIGNAL and message.member == "Notification" and meter.take():
                done.set()

        bus.add_message_handler(handle)
        call = {"destination": NAME, "path": PATH, "interface": NAME, "member": "AddObserver"}
        await bus.call(Message(**call, signature="ssa{sv}", body=[TOPIC, "", {}]))
        meter.begin()
        await done.wait()

    asyncio.run(main())


def sdbus(meter):
    import sdbus

    class Center(sdbus.DbusInterfaceCommonAsync, interface_name=NAME):
        @sdbus.dbus_method_async("ssa{sv}", "t")
        async def add_observer(self, name: str, object: str, options: dict) -> int:
            raise NotImplementedError

        @sdbus.dbus_signal_async("ssa{sv}atstt")
        def notification(self) -> tuple:
            raise NotImplementedError

    async def main():
        sdbus.set_default_bus(sdbus.sd_bus_open_user())
        center = Center.new_proxy(NAME, PATH)

        async def observe():
            async for _ in center.notification:
                if meter.take():
                    return

        task = asyncio.ensure_future(observe())
        await asyncio.sleep(0.2)
        await center.add_observer(TOPIC, "", {})
        meter.begin()
        await task

    asyncio.run(main())


def carillon(meter):
    import carillon

    with carillon.Center() as center:
        events = center.observe(TOPIC)
        meter.begin()
        while not meter.take():
            events.next()


def carillon_aio(meter):
    import carillon

    async def main():
        async with carillon.aio.Center() as center:
            events = await center.observe(TOPIC)
            meter.begin()
            async for _ in events:
                if meter.take():
                    return

    asyncio.run(main())


def measure(library, count):
    """Runs the observer, posts, and prints what it took."""
    command = [sys.executable, "-B", __file__, "--count", str(count), "--observe", library]
    observer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if observer.stdout.readline() != "ready\n":
        return print(f"{library:14} not measured: it ended with {observer.wait()}")
    import carillon

    with carillon.Center() as center:
        for number in range(count):
            center.post(TOPIC, "object", {"number": number, "text": "some text", "half": 0.5})
    used, start, memory = observer.stdout.readline().split()
    observer.wait()
    print(f"{library:14} {used:>8} µs for each, {start:>4} ms to import and connect, {memory:>3} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--observe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("library", nargs="+")
    arguments = parser.parse_args()
    for library in arguments.library:
        if arguments.observe:
            meter = Meter(arguments.count)
            globals()[library](meter)
            meter.report()
        else:
            measure(library, arguments.count)


if __name__ == "__main__":
    main()

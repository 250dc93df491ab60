# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The Python package of ``python/``: blocking, with GLib's loop and with asyncio, through restarts of the service."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone

import carillon_interop
from carillon_interop import BUS_NAME, CANNOT_RUN, INTERFACE, INVALID_NAME, INVALID_OPTION, OBJECT_PATH, PATIENCE, GLib

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
try:
    import carillon
    from jeepney import MessageType
    from jeepney.bus_messages import message_bus
    from jeepney.io.blocking import open_dbus_connection
except ImportError as error:
    print(f"cannot run: {error} (needs python3-jeepney)", file=sys.stderr)
    sys.exit(CANNOT_RUN)

ALL_TYPES = {
    "least": -(2**63),
    "most": 2**64 - 1,
    "double": 0.5,
    "text": "Grüße",
    "data": b"\0\xff",
    "true": True,
    "date": datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc),
    "list": [1, "a", [False], []],
    "nested": {"a": {"b": {}}},
}


class TestCase(unittest.TestCase):
    def setUp(self):
        self.name = f"com.example.{self.id()}"
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def center(self, **options):
        return self.stack.enter_context(carillon.Center(**options))

    def assert_refused(self, name, function, *arguments, **options):
        with self.assertRaises(carillon.Error) as refused:
            function(*arguments, **options)
        self.assertEqual(refused.exception.name, name)


class Blocking(TestCase):
    def test_all_types_arrive_as_they_were(self):
        center = self.center()
        observation = center.observe(self.name)
        self.assertEqual(center.post(self.name, "o", ALL_TYPES), 1)
        event = observation.next(PATIENCE)
        self.assertEqual((event.name, event.object, event.user_info), (self.name, "o", ALL_TYPES))
        self.assertEqual((event.sequence, event.details["pid"], event.details["kept"]), (1, os.getpid(), False))
        self.assertLess(abs(event.details["time"] - datetime.now(timezone.utc)), timedelta(hours=1))

    def test_a_date_that_python_does_not_have(self):
        center = self.center()
        observation = center.observe(self.name)
        client = carillon_interop.Client()
        far = GLib.Variant("(x)", (2**62,))
        client.call("Post", GLib.Variant("(ssa{sv}a{sv})", (self.name, "", {"date": far}, {})))
        self.assertEqual(observation.next(PATIENCE).user_info, {"date": 2**62})

    def test_mistakes_get_typed_errors_and_the_center_goes_on(self):
        center = self.center()
        deep = []
        for _ in range(30):
            deep = [deep]
        for error, user_info in (
            (TypeError, {"a": None}),
            (TypeError, {1: 2}),
            (OverflowError, {"a": 2**64}),
            (ValueError, {"a": "\0"}),
            (ValueError, {"a": deep}),
        ):
            with self.subTest(user_info), self.assertRaises(error):
                center.post(self.name, user_info=user_info)
        for error, name in ((TypeError, 3), (ValueError, "a\0")):
            for function in (center.post, center.observe, center.get, center.wait):
                with self.subTest(name, function=function), self.assertRaises(error):
                    function(name)
        self.assert_refused(INVALID_NAME, center.post, "")
        self.assert_refused(INVALID_OPTION, center.post, self.name, retane=True)
        self.assert_refused(INVALID_OPTION, center.observe, self.name, suspension_behavior="never")
        observation = center.observe(self.name)
        with self.assertRaises(TimeoutError):
            observation.next(0.01)
        with self.assertRaises(TimeoutError):
            center.wait(self.name, timeout=0.01)
        self.assertEqual(center.post(self.name), 1)

    def test_values(self):
        center = self.center()
        center.post(self.name, "a", {"n": 1}, retain=True, expires_after=3600)
        center.post(self.name, "b", {"n": 2}, retain=True)
        self.assertEqual([(each.object, each.user_info["n"]) for each in center.get(self.name)], [("a", 1), ("b", 2)])
        (value,) = center.get(self.name, "a")
        self.assertTrue(value.poster.startswith(":") and value.serial > 0, value)
        found = center.wait(self.name, "a", timeout=PATIENCE, retained=True)
        self.assertTrue(found.details["retained"] and found.details["expiry"] > found.details["time"], found)
        self.assertEqual(center.get("com.example.nothing"), [])

    def test_who_stops_observing_hears_no_more(self):
        center = self.center()
        with center.observe(self.name) as observation:
            self.assertEqual(center.post(self.name), 1)
            self.assertEqual(next(iter(observation)).name, self.name)
        self.assertEqual(center.post(self.name), 0)

    def test_any_thread_may_use_it(self):
        center = self.center()
        observation = center.observe(self.name)

        def post(first):
            for number in range(first, first + 100):
                center.post(self.name, user_info={"n": number})

        threads = [threading.Thread(target=post, args=(100 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        got = [observation.next(PATIENCE).user_info["n"] for _ in range(400)]
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(got), list(range(400)))
        for first in range(0, 400, 100):
            self.assertEqual([each for each in got if first <= each < first + 100], list(range(first, first + 100)))

    def test_what_a_program_does_not_take_waits_in_the_service(self):
        center, poster = self.center(), self.center()
        observation = center.observe(self.name)
        count = 4000
        for number in range(count):
            poster.post(self.name, user_info={"n": number})
        # It can post and ask all the same.
        self.assertEqual(center.post("com.example.nothing"), 0)
        self.assertLess(observation.qsize(), 2000)
        self.assertEqual([observation.next(PATIENCE).user_info["n"] for _ in range(count)], list(range(count)))

    def test_strangers_are_not_believed(self):
        center = self.center()
        observation = center.observe(self.name)
        center.post(self.name)
        receiver = observation.next(PATIENCE).poster
        stranger = carillon_interop.Client()
        body = GLib.Variant("(ssa{sv}atstt)", (self.name, "forged", {}, [1], ":1.1", 99, 2))
        stranger.connection.emit_signal(receiver, OBJECT_PATH, INTERFACE, "Notification", body)
        stranger.connection.flush_sync(None)
        body = GLib.Variant("(tats)", (5, [], "forged"))
        stranger.connection.emit_signal(receiver, OBJECT_PATH, INTERFACE, "Dropped", body)
        stranger.connection.flush_sync(None)
        center.post(self.name, "true")
        event = observation.next(PATIENCE)
        self.assertEqual((event.object, event.sequence), ("true", 2))

    def test_a_center_that_is_closed(self):
        center = self.center()
        observation = center.observe(self.name)
        center.close()
        for function in (lambda: center.post(self.name), lambda: observation.next(PATIENCE)):
            with self.assertRaises(ConnectionAbortedError):
                function()
        observation.close()
        center.close()


class GLibLoop(TestCase):
    def test_handlers_run_in_the_main_loop(self):
        center, loop, got = self.center(), GLib.MainLoop(), []

        def handle(event):
            got.append((event.user_info["n"], threading.current_thread() is threading.main_thread()))
            # A handler may call.
            if center.post("com.example.nothing") == 0 and len(got) == 3:
                loop.quit()

        center.observe(self.name, handler=handle)
        for number in range(3):
            center.post(self.name, user_info={"n": number})
        self.assertEqual(got, [])
        GLib.timeout_add_seconds(PATIENCE, loop.quit)
        loop.run()
        self.assertEqual(got, [(0, True), (1, True), (2, True)])


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.name = f"com.example.{self.id()}"
        self.center = await self.enterAsyncContext(carillon.aio.Center())

    async def test_it_observes_what_is_posted_next(self):
        observation = self.center.observe(self.name)
        self.assertEqual(await self.center.post(self.name, "o", ALL_TYPES), 1)
        async for event in observation:
            self.assertEqual((event.object, event.user_info), ("o", ALL_TYPES))
            break
        observation.close()
        self.assertEqual(await self.center.post(self.name), 0)

    async def test_many_things_at_once(self):
        waiting = [asyncio.ensure_future(self.center.wait(self.name, str(number), PATIENCE)) for number in range(20)]
        await asyncio.gather(*(self.center.observe(f"{self.name}.{number}") for number in range(20)))
        counts = await asyncio.gather(*(self.center.post(self.name, str(number)) for number in range(20)))
        self.assertEqual(counts, [1] * 20)
        self.assertEqual([each.object for each in await asyncio.gather(*waiting)], [str(each) for each in range(20)])

    async def test_closed_before_it_is_registered(self):
        self.center.observe(self.name).close()
        await self.center.get(self.name)
        self.assertEqual(await self.center.post(self.name), 0)
        self.assertEqual(self.center._observations, [])

    async def test_mistakes(self):
        with self.assertRaises(carillon.Error) as refused:
            await self.center.observe(self.name, run_loop_mode="never")
        self.assertEqual(refused.exception.name, INVALID_OPTION)
        with self.assertRaises(TimeoutError):
            await self.center.wait(self.name, timeout=0.01)
        self.assertEqual(await self.center.get(self.name), [])


class Restarts(TestCase):
    """On a bus of the test's own that starts the service."""

    def setUp(self):
        super().setUp()
        client = carillon_interop.Client()
        self.program = os.readlink(f"/proc/{client.service_pid()}/exe")
        client.close()
        self.directory = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="carillon-"))
        self.service_file = os.path.join(self.directory, "center.service")
        self.provide(True)
        configuration = os.path.join(self.directory, "bus.conf")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(
                '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"'
                ' "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd"><busconfig><type>session</type>'
                f"<listen>unix:dir={self.directory}</listen><servicedir>{self.directory}</servicedir>"
                '<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>'
                '<allow own="*"/></policy></busconfig>'
            )
        self.bus = subprocess.Popen(
            ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--nopidfile", "--print-address=1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "XDG_RUNTIME_DIR": self.directory},
            text=True,
        )
        self.stack.callback(self.end_bus)
        self.address = self.bus.stdout.readline().strip()
        self.control = self.stack.enter_context(open_dbus_connection(self.address))

    def end_bus(self):
        self.bus.kill()
        self.bus.wait()
        self.bus.stdout.close()

    def provide(self, does):
        if does:
            with open(self.service_file, "w", encoding="utf-8") as file:
                file.write(f"[D-BUS Service]\nName={BUS_NAME}\nExec={self.program}\n")
        else:
            os.remove(self.service_file)

    def service(self):
        """The process of the service; None while nobody has its name."""
        answer = self.control.send_and_get_reply(message_bus.GetConnectionUnixProcessID(BUS_NAME))
        return None if answer.header.message_type is MessageType.error else answer.body[0]

    def kill(self):
        """Ends the service without warning, and waits for the bus to know."""
        process = self.service()
        os.kill(process, signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while self.service() == process:
            self.assertLess(time.monotonic(), end, "the service is killed")

    def post(self, center, number):
        """Posts, again where nobody knows whether that arrived."""
        while True:
            try:
                return center.post(self.name, user_info={"n": number})
            except carillon.Error as error:
                self.assertEqual(error.name, "org.freedesktop.DBus.Error.NoReply")

    def test_deaths_of_the_service_pass_unnoticed(self):
        center, poster = self.center(bus=self.address), self.center(bus=self.address)
        observation = center.observe(self.name, suspension_behavior="hold")
        posted = 0
        for _ in range(20):
            for _ in range(10):
                self.post(poster, posted)
                posted += 1
            self.kill()
        self.post(poster, posted)
        numbers, others = [], []
        while not numbers or numbers[-1] < posted:
            event = observation.next(PATIENCE)
            if isinstance(event, carillon.Notification):
                numbers.append(event.user_info["n"])
            else:
                others.append(event)
        self.assertEqual(sorted(set(numbers)), list(range(posted + 1)))
        self.assertTrue(all(each.reason == "service-restarted" for each in others), others)

    def test_a_service_that_has_forgotten_all(self):
        center = self.center(bus=self.address)
        observation = center.observe(self.name)
        other = center.observe("com.example.other")
        self.post(center, 0)
        self.assertEqual(observation.next(PATIENCE).sequence, 1)
        os.kill(self.service(), signal.SIGSTOP)
        process = self.service()
        for name in os.listdir(os.path.join(self.directory, "carillon")):
            os.remove(os.path.join(self.directory, "carillon", name))
        os.kill(process, signal.SIGKILL)
        for each in (observation, other):
            self.assertEqual(each.next(PATIENCE), carillon.Gap("service-changed"))
        while self.post(center, 1) == 0:
            pass
        event = observation.next(PATIENCE)
        self.assertEqual((event.user_info, event.sequence), ({"n": 1}, 1))

    def test_a_service_that_is_gone_for_a_while(self):
        center = self.center(bus=self.address)
        observation = center.observe(self.name)
        self.provide(False)
        self.kill()
        self.assert_refused("org.freedesktop.DBus.Error.ServiceUnknown", center.post, self.name)
        self.provide(True)
        end = time.monotonic() + PATIENCE
        while self.post(center, 7) == 0:
            self.assertLess(time.monotonic(), end, "it is registered again")
        events = iter(observation)
        self.assertEqual(next(e for e in events if isinstance(e, carillon.Notification)).user_info, {"n": 7})

    def test_a_bus_that_is_gone(self):
        center = self.center(bus=self.address)
        observation = center.observe(self.name)
        self.bus.kill()
        with self.assertRaises(ConnectionError):
            observation.next(PATIENCE)
        for function in (center.post, center.observe, center.get):
            with self.assertRaises(ConnectionError):
                function(self.name)
        observation.close()
        center.close()
        with self.assertRaises(OSError):
            carillon.Center(bus=self.address)

    def test_no_service_at_all(self):
        self.provide(False)
        self.assert_refused("org.freedesktop.DBus.Error.ServiceUnknown", carillon.Center, bus=self.address)


if __name__ == "__main__":
    carillon_interop.main()

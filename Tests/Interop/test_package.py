# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The Python package of ``python/``: blocking, with GLib's loop and with asyncio, through restarts of the service."""

import asyncio
import contextlib
import copy
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from datetime import datetime, timedelta, timezone

import carillon_interop
from carillon_interop import BUS_NAME, CANNOT_RUN, INTERFACE, INVALID_NAME, INVALID_OPTION, OBJECT_PATH, PATIENCE, GLib

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
try:
    import carillon
    from jeepney import DBusAddress, HeaderFields, MessageType, new_signal
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


class Ends(TestCase):
    def test_a_program_that_ends_with_an_open_center_says_nothing(self):
        program = (
            f"import sys; sys.path[:] = {sys.path!r}\nimport carillon\n"
            f"center = carillon.Center()\nobservation = center.observe({self.name!r})\ncenter.post({self.name!r})\n"
            "print(observation.next(60).name)"
        )
        for _ in range(5):
            result = subprocess.run(
                [sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=120, check=True)
            self.assertEqual((result.stdout, result.stderr), (f"{self.name}\n", ""))

    def test_an_error_can_be_copied_and_raised_again(self):
        error = carillon.Error("org.example.Error", "why")
        for other in (copy.copy(error), pickle.loads(pickle.dumps(error)), carillon._events.again(error)):
            self.assertIsNot(other, error)
            self.assertEqual((type(other), other.name, str(other)), (carillon.Error, error.name, "org.example.Error: why"))

    def test_each_reader_gets_a_refusal_of_its_own(self):
        async def refusals():
            async with carillon.aio.Center() as center:
                observation = center.observe("", "", minimum_interval="nonsense")
                found = []
                for _ in range(3):
                    try:
                        await anext(observation)
                    except Exception as error:
                        found.append(error)
                return found

        found = asyncio.run(refusals())
        self.assertEqual([type(error) for error in found], [carillon.Error] * 3)
        # The first is that of the task.
        self.assertIsNot(found[1], found[2])


class Blocking(TestCase):
    def test_all_types_arrive_as_they_were(self):
        center = self.center()
        observation = center.observe(self.name)
        self.assertEqual(center.post(self.name, "o", ALL_TYPES), 1)
        event = observation.next(PATIENCE)
        self.assertEqual((event.name, event.object, event.user_info), (self.name, "o", ALL_TYPES))
        self.assertEqual((event.sequence, event.details["pid"], event.details["kept"]), (1, os.getpid(), False))
        self.assertLess(abs(event.details["time"] - datetime.now(timezone.utc)), timedelta(hours=1))

    def test_types_that_arrive_as_others(self):
        center = self.center()
        observation = center.observe(self.name)
        center.post(self.name, user_info={"data": bytearray(b"a"), "list": (1, 2)})
        self.assertEqual(observation.next(PATIENCE).user_info, {"data": b"a", "list": [1, 2]})

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
            (ValueError, {"a": datetime.min}),
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

    def test_what_a_program_does_not_take_is_bounded_and_holds_up_nobody(self):
        center, poster = self.center(), self.center()
        observation, other = center.observe(self.name), center.observe("com.example.other")
        count = 3000
        for number in range(count):
            # Its own, and another's.
            (center if number % 2 else poster).post(self.name, user_info={"n": number})
        center.post("com.example.other")
        self.assertEqual(other.next(PATIENCE).name, "com.example.other")
        events = [observation.next(PATIENCE)]
        while not (isinstance(events[-1], carillon.Notification) and events[-1].user_info["n"] == count - 1):
            events.append(observation.next(PATIENCE))
        lost = sum(event.count for event in events if isinstance(event, carillon.Dropped))
        numbers = [event.user_info["n"] for event in events if isinstance(event, carillon.Notification)]
        self.assertEqual({event.reason for event in events if isinstance(event, carillon.Dropped)}, {"not-taken"})
        self.assertEqual((lost + len(numbers), numbers), (count, sorted(numbers)))

    def test_one_that_the_program_lets_go_of_ends(self):
        center = self.center()
        center.post(self.name)
        observation = center.observe(self.name)
        center.post(self.name)
        for _ in observation:
            break
        self.assertEqual(center.post(self.name), 1)
        del observation
        end = time.monotonic() + PATIENCE
        while center.post(self.name) != 0:
            self.assertLess(time.monotonic(), end)

    def test_close_ends_an_iteration_that_waits(self):
        center = self.center()
        observation, got = center.observe(self.name), []
        thread = threading.Thread(target=lambda: got.extend(observation))
        thread.start()
        center.post(self.name)
        end = time.monotonic() + PATIENCE
        while not got:
            self.assertLess(time.monotonic(), end)
        observation.close()
        thread.join(PATIENCE)
        self.assertFalse(thread.is_alive())
        self.assertEqual((len(got), list(observation)), (1, []))

    def test_a_message_that_is_not_understood(self):
        center = self.center()
        observation = center.observe(self.name)
        center.post(self.name)
        receiver = observation.next(PATIENCE).poster
        with open_dbus_connection(bus="SESSION") as stranger:
            signal_ = new_signal(DBusAddress(OBJECT_PATH, interface=INTERFACE), "Notification", "u", (0,))
            signal_.header.fields[HeaderFields.destination] = receiver
            # A descriptor that does not come with it.
            stranger.sock.sendall(signal_.serialise(next(stranger.outgoing_serial)).replace(b"\1u\0", b"\1h\0"))
            stranger.send_and_get_reply(message_bus.ListNames())
        center.post(self.name, "behind")
        self.assertEqual(observation.next(PATIENCE).object, "behind")

    def test_closed_by_several_threads_while_others_call(self):
        for _ in range(20):
            center = carillon.Center()
            observation = center.observe(self.name)

            def call(center=center):
                with contextlib.suppress(ConnectionAbortedError):
                    while True:
                        center.post(self.name)

            def take(observation=observation):
                with contextlib.suppress(ConnectionAbortedError):
                    list(observation)

            functions = (center.close, center.close, center.close, call, call, take)
            threads = [threading.Thread(target=function, daemon=True) for function in functions]
            for thread in reversed(threads):
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            self.assertFalse(any(thread.is_alive() for thread in threads))

    def test_a_center_that_the_program_lets_go_of(self):
        before = threading.active_count()
        for _ in range(5):
            carillon.Center().observe(self.name)
        end = time.monotonic() + PATIENCE
        while threading.active_count() > before:
            self.assertLess(time.monotonic(), end)

    def test_fork(self):
        center = self.center()
        child = os.fork()
        if child == 0:
            try:
                center.post(self.name)
            except RuntimeError:
                os._exit(7)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(center.post(self.name), 0)

    def test_addresses(self):
        for address in ("nonsense", "tcp:host=localhost,port=1", "unix:path=/nowhere", ""):
            with self.subTest(address=address), self.assertRaises(ConnectionError):
                carillon.Center(bus=address)
        address = f"unix:path=/nowhere;{os.environ['DBUS_SESSION_BUS_ADDRESS']}"
        self.assertEqual(self.center(bus=address).post(self.name), 0)

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
        with self.assertRaises(ConnectionAbortedError):
            list(observation)
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

    def test_a_handler_is_not_called_behind_close_and_hears_of_the_end(self):
        center, loop, got = self.center(), GLib.MainLoop(), []

        def handle(event):
            got.append(event)
            if isinstance(event, carillon.Notification):
                observation.close()
            else:
                loop.quit()

        observation = center.observe(self.name, handler=handle)
        other = center.observe("com.example.other", handler=handle)
        with self.assertRaises(RuntimeError):
            observation.next(0)
        for _ in range(5):
            center.post(self.name)
        GLib.timeout_add_seconds(PATIENCE, loop.quit)
        GLib.timeout_add(200, center.close)
        loop.run()
        self.assertEqual([type(each) for each in got], [carillon.Notification, ConnectionAbortedError], got)
        other.close()

    def test_without_pygobject(self):
        with unittest.mock.patch.dict(sys.modules, {"gi": None, "gi.repository": None}), self.assertRaises(ImportError):
            self.center().observe(self.name, handler=print)


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
        del observation
        await asyncio.sleep(0)
        self.assertEqual(await self.center.post(self.name), 0)

    async def test_close_ends_an_iteration_that_waits(self):
        observation = self.center.observe(self.name)

        async def take():
            return [event async for event in observation]

        taking = asyncio.ensure_future(take())
        await self.center.post(self.name)
        await asyncio.sleep(0.1)
        observation.close()
        self.assertEqual(len(await asyncio.wait_for(taking, PATIENCE)), 1)

    async def test_a_center_that_is_not_open(self):
        center = carillon.aio.Center()
        with self.assertRaises(ConnectionError):
            await center.post(self.name)
        await center.close()

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
        self.assertEqual(self.center._registrations, [])

    async def test_mistakes(self):
        with self.assertRaises(carillon.Error) as refused:
            await self.center.observe(self.name, run_loop_mode="never")
        self.assertEqual(refused.exception.name, INVALID_OPTION)
        with self.assertRaises(TimeoutError):
            await self.center.wait(self.name, timeout=0.01)
        self.assertEqual(await self.center.get(self.name), [])

    async def test_cancelled_while_an_answer_arrives(self):
        loop = asyncio.get_running_loop()
        for steps in range(20):
            waiting = asyncio.ensure_future(self.center.wait(self.name))

            def cancel_after(steps, waiting=waiting):
                if steps == 0:
                    waiting.cancel()
                else:
                    loop.call_soon(cancel_after, steps - 1)

            await asyncio.sleep(0)
            answer = self.center._calls[max(self.center._calls)]
            answer.add_done_callback(lambda _, steps=steps: cancel_after(steps))
            await asyncio.wait([waiting], timeout=PATIENCE)
            with self.subTest(steps=steps):
                self.assertTrue(waiting.done() and waiting.cancelled(), waiting)
        self.assertEqual(await self.center.post(self.name), 0)


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
        self.assertLessEqual({each.reason for each in others}, {"service-restarted"}, others)

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

    def test_a_service_that_does_not_answer(self):
        center = self.center(bus=self.address, timeout=1)
        process = self.service()
        os.kill(process, signal.SIGSTOP)
        self.stack.callback(os.kill, process, signal.SIGCONT)
        for function in (center.post, center.observe, center.get):
            with self.assertRaises(TimeoutError):
                function(self.name)
        os.kill(process, signal.SIGCONT)
        end = time.monotonic() + PATIENCE
        while self.post(center, 1) != 0:
            self.assertLess(time.monotonic(), end, "the observer that was given up is removed")

    def test_no_service_at_all(self):
        self.provide(False)
        self.assert_refused("org.freedesktop.DBus.Error.ServiceUnknown", carillon.Center, bus=self.address)


if __name__ == "__main__":
    carillon_interop.main()

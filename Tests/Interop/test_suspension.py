# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Suspension, bounds and configuration, as programs see them that use GDBus or dbus-python.

Run as a program, `test_suspension.py record NAME` is a second process that observes NAME and prints every signal as a
line of JSON; `hold NAME` suspends itself first and then waits.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys

import carillon_interop
import test_dbus_python
from carillon_interop import (
    INTERFACE,
    PEER,
    PROPERTIES,
    Gio,
    GLib,
    context,
    dbus,
    fresh_name,
    go_on,
    read_by_another,
    stop,
    wait_until,
    write_file,
)

INVALID_CONFIGURATION = "org.carillon.Error.InvalidConfiguration"
BEHAVIORS = ("drop", "coalesce", "hold", "deliver-immediately")


def event_of(member, arguments):
    """A signal as a tuple of plain values that tests compare."""
    if member == "Notification":
        name, object_, _user_info, observers, _poster, _serial, sequence = arguments
        return ("notification", str(name), str(object_), [int(each) for each in observers], int(sequence))
    if member == "Dropped":
        count, observers, reason = arguments
        return ("dropped", int(count), [int(each) for each in observers], str(reason))
    if member == "SuspensionChanged":
        return ("suspended", bool(arguments[0]), str(arguments[1]))
    return (member, *arguments)


class GDBusClient(carillon_interop.Client):
    """A GDBus client with all signals of the interface in the order in which they came."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.connection.signal_subscribe(
            None,
            INTERFACE,
            None,
            None,
            None,
            Gio.DBusSignalFlags.NO_MATCH_RULE,
            lambda _connection, _sender, _path, _interface, member, parameters: self.events.append(
                event_of(member, parameters.unpack())
            ),
        )

    def observe(self, name="", object="", behavior=None):
        options = {"suspension-behavior": GLib.Variant("s", behavior)} if behavior else {}
        return self.add_observer(name, object, options)

    def post_now(self, name, object=""):
        return self.post(name, object, None, {"deliver-immediately": GLib.Variant("b", True)})

    def set_suspended(self, suspended):
        self.call("SetSuspended", GLib.Variant("(b)", (suspended,)))

    def follow_activity(self):
        self.call("FollowActivity")

    def settle_signals(self):
        """All signals so far. A reply comes behind the signals that the service sent before."""
        self.ping()
        while context.iteration(False):
            pass
        return self.events


class PythonClient(test_dbus_python.Client):
    """The same through dbus-python."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.connection.add_message_filter(self._record)

    def _record(self, _connection, message):
        if message.get_type() == dbus.lowlevel.MESSAGE_TYPE_SIGNAL and message.get_interface() == INTERFACE:
            self.events.append(event_of(str(message.get_member()), message.get_args_list()))
        return dbus.lowlevel.HANDLER_RESULT_NOT_YET_HANDLED

    def _received(self, _connection, message):
        super()._received(_connection, message)
        return dbus.lowlevel.HANDLER_RESULT_NOT_YET_HANDLED

    def observe(self, name="", object="", behavior=None):
        return int(self.add_observer(name, object, {"suspension-behavior": behavior} if behavior else {}))

    def post_now(self, name, object=""):
        return self.post(name, object, None, {"deliver-immediately": True})

    def set_suspended(self, suspended):
        self.call("SetSuspended", "b", suspended)

    def follow_activity(self):
        self.call("FollowActivity", "")

    def settle_signals(self):
        self.call("Ping", "", interface=PEER)
        while context.iteration(False):
            pass
        return self.events


class TestCase(carillon_interop.TestCase):
    #: The binding under test.
    client_type = GDBusClient

    def new_client(self):
        client = self.client_type()
        self.addCleanup(client.close)
        return client

    def status(self, client):
        entry = self.control.list_clients()[client.unique_name]
        return {key: value.unpack() for key, value in entry.items()}

    def assert_status(self, client, **expected):
        status = self.status(client)
        self.assertEqual({key: status[key] for key in expected}, expected)

    def assert_events(self, client, *expected):
        self.assertEqual(client.settle_signals(), list(expected))
        client.events.clear()


class SuspensionTests:
    """For both bindings."""

    def test_suspending_and_resuming(self):
        """S1, A2: the client is told of every change with its cause, and nobody else is."""
        client, other = self.new_client(), self.new_client()
        for each in (client, other):
            each.observe(self.name)
        self.assert_status(client, suspended=False, cause="none")
        client.set_suspended(True)
        self.assert_status(client, suspended=True, cause="explicit")
        client.set_suspended(True)
        client.set_suspended(False)
        self.assert_status(client, suspended=False, cause="explicit")
        client.follow_activity()
        self.assert_status(client, suspended=False, cause="none")
        client.follow_activity()
        self.assert_events(
            client, ("suspended", True, "explicit"), ("suspended", False, "explicit"), ("suspended", False, "none")
        )
        self.assert_events(other)

    def test_follow_activity_resumes(self):
        """A2: with no activity known, the client is active."""
        client = self.new_client()
        observer = client.observe(self.name, "", "hold")
        client.set_suspended(True)
        self.control.post(self.name)
        client.follow_activity()
        self.assert_events(
            client,
            ("suspended", True, "explicit"),
            ("suspended", False, "none"),
            ("notification", self.name, "", [observer], 1),
        )

    def test_the_four_behaviors(self):
        """S1: each observer's behavior decides; a suspended client counts among the receivers."""
        expected = {
            "drop": ([], []),
            "coalesce": ([], ["2"]),
            "hold": ([], ["1", "2"]),
            "deliver-immediately": (["1", "2"], []),
            None: ([], ["2"]),
        }
        for behavior, (at_once, on_resume) in expected.items():
            with self.subTest(behavior=behavior):
                client = self.new_client()
                client.observe(self.name, "", behavior)
                client.set_suspended(True)
                for number in ("1", "2"):
                    user_info = {"number": GLib.Variant("s", number)}
                    self.assertEqual(self.control.post(self.name, "", user_info), 1)
                self.assertEqual(self.numbers(client), at_once)
                self.assert_status(client, queued=len(on_resume), delivered=len(at_once), dropped=0)
                client.set_suspended(False)
                self.assertEqual(self.numbers(client), at_once + on_resume)
                self.assert_status(client, queued=0, delivered=len(at_once) + len(on_resume), dropped=0)
                client.close()
                self.wait_until_forgotten(client)

    def numbers(self, client):
        client.settle_signals()
        infos = [each.user_info for each in client.notifications]
        return [str((info.unpack() if isinstance(info, GLib.Variant) else info)["number"]) for info in infos]

    def wait_until_forgotten(self, client):
        wait_until(lambda: client.unique_name not in self.control.list_clients(), "the client is forgotten")

    def test_resume_delivers_everything_before_anything_newer(self):
        """S2, D6: one queue in global order over all observers, without holes; the signal of resuming comes first."""
        client = self.new_client()
        other = fresh_name()
        holding = client.observe(self.name, "", "hold")
        coalescing = client.observe("", "bell", "coalesce")
        dropping = client.observe(other, "", "drop")
        client.set_suspended(True)
        for name, object_ in (
            (self.name, "bell"),
            (other, "bell"),
            (self.name, ""),
            (other, ""),
            (self.name, "bell"),
            (other, "bell"),
        ):
            self.control.post(name, object_)
        self.assert_events(client, ("suspended", True, "explicit"))
        client.set_suspended(False)
        self.control.post(other, "bell")
        self.assert_events(
            client,
            ("suspended", False, "explicit"),
            ("notification", self.name, "bell", [holding], 1),
            ("notification", self.name, "", [holding], 2),
            ("notification", self.name, "bell", [holding, coalescing], 3),
            ("notification", other, "bell", [coalescing], 4),
            ("notification", other, "bell", [coalescing, dropping], 5),
        )
        serials = [int(each.serial) for each in client.notifications]
        self.assertEqual(serials, sorted(set(serials)))

    def test_coalescing(self):
        """S1: by name and object, byte for byte, to the tail; other names stay."""
        client = self.new_client()
        observer = client.observe("", self.name, "coalesce")
        client.set_suspended(True)
        before = self.control.statistics()["coalesced"]
        names = [fresh_name() + each for each in ("\u00e9", "e\u0301")]
        for name in (names[0], names[1], names[0]):
            self.control.post(name, self.name)
        self.assert_status(client, queued=2)
        self.assertEqual(self.control.statistics()["coalesced"] - before, 1)
        client.set_suspended(False)
        self.assert_events(
            client,
            ("suspended", True, "explicit"),
            ("suspended", False, "explicit"),
            ("notification", names[1], self.name, [observer], 1),
            ("notification", names[0], self.name, [observer], 2),
        )

    def test_deliver_immediately_registered(self):
        """S3: flushes first, and the client stays suspended; all observers that do not drop get it now, and once."""
        client = self.new_client()
        urgent = fresh_name()
        holding = client.observe(self.name, "", "hold")
        client.observe(urgent, "", "drop")
        immediate = client.observe(urgent, "", "deliver-immediately")
        waiting = client.observe(urgent, "", "hold")
        client.set_suspended(True)
        self.control.post(self.name)
        self.control.post(urgent)
        self.control.post(self.name)
        expected = [
            ("suspended", True, "explicit"),
            ("notification", self.name, "", [holding], 1),
            ("notification", urgent, "", [immediate, waiting], 2),
        ]
        self.assert_events(client, *expected)
        self.assert_status(client, suspended=True, queued=1)
        client.set_suspended(False)
        self.assert_events(
            client, ("suspended", False, "explicit"), ("notification", self.name, "", [holding], 3)
        )

    def test_deliver_immediately_asked(self):
        """S3: for every matching observer, whatever its behavior."""
        client = self.new_client()
        observers = [client.observe(self.name, "", behavior) for behavior in BEHAVIORS]
        other = client.observe(fresh_name(), "", "hold")
        client.set_suspended(True)
        self.assertEqual(client.post_now(self.name, "bell"), 1)
        self.assert_events(
            client, ("suspended", True, "explicit"), ("notification", self.name, "bell", observers, 1)
        )
        self.assert_status(client, suspended=True, queued=0)
        self.assertNotIn(other, observers)

    def test_removal_while_suspended(self):
        """S1, D8: out of what is queued, and only one's own; without observers left nothing is delivered."""
        client, stranger = self.new_client(), self.new_client()
        first, second = (client.observe(self.name, "", "hold") for _ in range(2))
        gone = client.observe("", "gone", "hold")
        theirs = stranger.observe("", "gone", "hold")
        for each in (client, stranger):
            each.set_suspended(True)
        self.control.post(self.name)
        self.control.post(fresh_name(), "gone")
        client.remove_observer(first)
        self.assertEqual(client.remove_observers("", "gone"), 1)
        self.assert_status(client, queued=1)
        self.assert_status(stranger, queued=1)
        for each in (client, stranger):
            each.set_suspended(False)
        received = [event[3:] for event in client.settle_signals() if event[0] == "notification"]
        self.assertEqual(received, [([second], 1)])
        received = [event[3:] for event in stranger.settle_signals() if event[0] == "notification"]
        self.assertEqual(received, [([theirs], 1)])
        self.assertNotEqual(gone, theirs)

    def test_suspended_before_the_first_observer(self):
        client = self.new_client()
        client.set_suspended(True)
        client.observe(self.name, "", "hold")
        self.control.post(self.name)
        self.assert_events(client, ("suspended", True, "explicit"))
        self.assert_status(client, queued=1)


class SuspensionWithGDBus(SuspensionTests, TestCase):
    client_type = GDBusClient


class SuspensionWithDBusPython(SuspensionTests, TestCase):
    client_type = PythonClient


class DyingClients(TestCase):
    def test_a_client_that_dies_while_suspended_loses_everything(self):
        """D8"""
        before = self.control.statistics()
        process = start("hold", self.name)
        self.addCleanup(end, process)
        client = process.stdout.readline().strip()
        for index in range(5):
            self.assertEqual(self.control.post(self.name, str(index)), 1)
        status = {key: value.unpack() for key, value in self.control.list_clients()[client].items()}
        self.assertEqual((status["suspended"], status["queued"]), (True, 5))
        grown = self.control.statistics()
        self.assertEqual(grown["queued"] - before["queued"], 5)
        self.assertGreater(grown["queued-bytes"], before["queued-bytes"])

        process.kill()
        wait_until(lambda: client not in self.control.list_clients(), "the client is forgotten")
        after = self.control.statistics()
        for key in ("queued", "queued-bytes", "observers", "clients", "dropped"):
            self.assertEqual(after[key], before[key], key)
        self.assertEqual(self.control.post(self.name), 0)


class ConfigurationTestCase(TestCase):
    """Tests that write the configuration file of the service."""

    def setUp(self):
        super().setUp()
        directory = os.environ.get("XDG_CONFIG_HOME")
        with open(f"/proc/{self.control.service_pid()}/environ", "rb") as file:
            environment = file.read().split(b"\0")
        if not directory or f"XDG_CONFIG_HOME={directory}".encode() not in environment:
            self.skipTest("the service has another configuration directory")
        self.path = f"{directory}/carillon/carillon.conf"
        if os.path.exists(self.path):
            self.skipTest(f"there is a {self.path}")
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self.addCleanup(self.remove_configuration)
        self.standard = self.control.limits()

        #: What was announced as changed.
        self.changes = []
        self.control.connection.signal_subscribe(
            carillon_interop.BUS_NAME,
            PROPERTIES,
            "PropertiesChanged",
            None,
            None,
            Gio.DBusSignalFlags.NONE,
            lambda _connection, _sender, _path, _interface, _member, parameters: self.changes.append(
                parameters.unpack()
            ),
        )
        self.control.call_bus("GetId")  # the match rule is in force

    def remove_configuration(self):
        if os.path.exists(self.path):
            os.remove(self.path)
        client = carillon_interop.Client()
        client.call("ReloadConfiguration")
        client.close()

    def write(self, *lines):
        write_file(self.path, "\n".join(lines) + "\n")

    def configure(self, **limits):
        self.write("[Limits]", *(f"{key.replace('_', '-')}={value}" for key, value in limits.items()))
        self.control.call("ReloadConfiguration")

    def hang_up(self):
        """Sends SIGHUP to the service, and returns when that was handled.

        Between a signal of the kernel and messages there is no order. But the service reads the file because of it,
        and what it makes of that it does before it answers anything."""
        with read_by_another(self.path):
            os.kill(self.control.service_pid(), signal.SIGHUP)
        self.control.ping()

    def settled_changes(self):
        self.control.ping()
        while context.iteration(False):
            pass
        return self.changes


class Configuration(ConfigurationTestCase):
    def test_reloading(self):
        """E1: the file sets the bounds; they are in force, readable and announced."""
        self.configure(name_length=1500, queued_per_client=7)
        expected = {**self.standard, "name-length": 1500, "queued-per-client": 7}
        self.assertEqual(self.control.limits(), expected)
        self.assertEqual(self.settled_changes(), [(INTERFACE, {"Limits": expected}, [])])
        self.assertEqual(self.control.post("n" * 1500), 0)
        self.assert_refused(
            carillon_interop.LIMIT_EXCEEDED, self.control.post, "n" * 1501, mentions=["name-length", 1500]
        )
        os.remove(self.path)
        self.control.call("ReloadConfiguration")
        self.assertEqual(self.control.limits(), self.standard)
        self.assertEqual(len(self.settled_changes()), 2)

    def test_a_lowered_limit_leaves_room(self):
        """E4: what one process has beyond a limit that was lowered does not keep others out."""
        for _ in range(200):
            self.control.add_observer("Lowered.Own")
        self.configure(observers=100)
        self.assert_refused(carillon_interop.LIMIT_EXCEEDED, self.control.add_observer, "Lowered.More")
        other = carillon_interop.second_process("observe", "Lowered.Other", "", 0)
        self.assertEqual(other.communicate(timeout=carillon_interop.PATIENCE)[0], "ready\n")

    def test_refused_posts_of_lost_calls_count(self):
        """D3: of calls of many posts that are lost for want of room, each post counts: as lost or as refused."""
        self.configure(waiting_call_bytes=1 << 20)
        name = "Lowered.Lost"
        posts = [(name, str(index), {}, {}) for index in range(1000)]
        posts += [("x" * 2000, "", {}, {}), ("", "", {}, {}), (name, "", {}, {"no-such-option": GLib.Variant("b", True)})]
        many = GLib.Variant("(a(ssa{sv}a{sv}))", (posts,))
        self.control.add_observer(name)
        before, calls = self.control.statistics(), 200
        for _ in range(calls):
            self.control.send("PostMany", many)
        self.control.ping()
        after = self.control.statistics()
        self.assertGreater(after["dropped"], before["dropped"], "there was room for all of it")
        self.assertEqual(after["posted"] - before["posted"], calls * 1000)
        self.assertEqual(after["refused"] - before["refused"], calls * 3)

    def test_reloading_what_is_the_same(self):
        """What did not change is not announced."""
        self.configure(name_length=self.standard["name-length"])
        self.assertEqual(self.control.limits(), self.standard)
        self.assertEqual(self.settled_changes(), [])

    def test_hang_up(self):
        """SIGHUP reads the file, too; with a mistake in it the service goes on with what it had."""
        self.write("[Limits]", "object-length=3000")
        self.hang_up()
        self.assertEqual(self.control.limits(), {**self.standard, "object-length": 3000})
        self.write("[Limits]", "object-length=none")
        self.hang_up()
        self.assertEqual(self.control.limits(), {**self.standard, "object-length": 3000})
        self.assert_refused(INVALID_CONFIGURATION, self.control.call, "ReloadConfiguration")
        self.assertEqual(self.control.limits(), {**self.standard, "object-length": 3000})
        self.write("[Limits]", "object-length=3001")
        self.hang_up()
        self.assertEqual([each[1]["Limits"]["object-length"] for each in self.settled_changes()], [3000, 3001])

    def test_what_is_told_of_files(self):
        """E9: the property names the files and their mistakes."""

        def told():
            return self.control.property("Configuration")

        ours = [each for each in told()["files"] if each.startswith(os.path.dirname(self.path))]
        self.assertEqual(ours, [])
        self.configure(name_length=1500)
        self.assertEqual((told()["files"][-1], told()["valid"], told()["errors"]), (self.path, True, []))
        self.write("[Limits]", "name-length=1600", "clients=many", "rubbish")
        self.assert_refused(INVALID_CONFIGURATION, self.control.call, "ReloadConfiguration")
        first, second = told()["errors"]
        self.assertTrue(first.startswith(f"{self.path}:3: ") and "many" in first, first)
        self.assertTrue(second.startswith(f"{self.path}:4: ") and "rubbish" in second, second)
        self.assertEqual((told()["valid"], self.control.limits()["name-length"]), (False, 1500))
        self.configure(name_length=1600)
        self.assertEqual((told()["valid"], told()["errors"]), (True, []))

    def test_mistakes(self):
        """E1, E2: a bad file is refused with file, line and reason; nothing of it is taken, and the old values stay."""
        self.configure(name_length=1500)
        before = self.control.limits()
        self.settled_changes().clear()
        for lines, line, mention in (
            (["[Limits]", "name-length=2000", "name-lenght=1"], 3, "name-lenght"),
            (["[Limits]", "name-length=2000", "", "clients=many"], 4, "many"),
            (["[Limits]", "name-length=2000", "clients=0"], 3, "'0'"),
            (["[Limits]", "clients=-1"], 2, "'-1'"),
            (["[Limits]", "clients=65537"], 2, "65536"),
            (["[Limits]", "clients=99999999999999999999999999"], 2, "65536"),
            (["[Limits]", "clients="], 2, "''"),
            (["[Limits]", "clients=\\q"], 2, "clients"),
            (["[Limits]", "clients[de]=5"], 2, "clients[de]"),
            (["# a comment", "[Limit]", "clients=2"], 3, "[Limit]"),
            (["[Limits]", "name-length=2000", "rubbish"], 3, "rubbish"),
            (["name-length=2000", "[Limits]"], 1, ""),
            (["[Limits]", "name-length=2000", "[Activity]", "source=windows"], 4, "windows"),
            (["[Activity]", "sorce=none"], 2, "sorce"),
            (["[Activity]", "automatic-suspension=maybe"], 2, "maybe"),
            (["[Activity]", "automatic-suspension="], 2, "''"),
        ):
            with self.subTest(lines=lines):
                self.write(*lines)
                refused = self.assert_refused(
                    INVALID_CONFIGURATION, self.control.call, "ReloadConfiguration", mentions=[mention]
                )
                self.assertTrue(refused.message.startswith(f"{self.path}:{line}: "), refused.message)
                self.assertEqual(self.control.limits(), before)
        self.assertEqual(self.settled_changes(), [])

    def test_files_that_are_no_text(self):
        for contents in (b"\xff\xfe\0[Limits]\n", b"\0" * 1000, b"[Limits]\nclients=\xff\n"):
            with self.subTest(contents=contents[:20]):
                write_file(self.path, contents)
                refused = self.assert_refused(INVALID_CONFIGURATION, self.control.call, "ReloadConfiguration")
                self.assertIn(self.path, refused.message)
                self.assertEqual(self.control.limits(), self.standard)

    def test_an_empty_file(self):
        write_file(self.path, "")
        self.control.call("ReloadConfiguration")
        self.assertEqual(self.control.limits(), self.standard)

    def test_a_directory_in_its_place(self):
        os.mkdir(self.path)
        self.addCleanup(os.rmdir, self.path)  # before what setUp added
        self.assert_refused(INVALID_CONFIGURATION, self.control.call, "ReloadConfiguration", mentions=[self.path])
        self.assertEqual(self.control.limits(), self.standard)


class Overflow(ConfigurationTestCase):
    def test_a_full_held_queue_is_flushed_to_a_client_that_reads(self):
        """S4: and the client stays suspended."""
        self.configure(queued_per_client=3)
        client = self.new_client()
        observer = client.observe(self.name, "", "hold")
        client.set_suspended(True)
        for index in range(3):
            self.control.post(self.name, str(index))
        self.assert_events(client, ("suspended", True, "explicit"))
        self.control.post(self.name, "3")
        self.assert_events(
            client, *(("notification", self.name, str(index), [observer], index + 1) for index in range(4))
        )
        self.assert_status(client, suspended=True, queued=0, delivered=4, dropped=0)
        self.control.post(self.name, "4")
        self.assert_events(client)
        self.assert_status(client, suspended=True, queued=1)

    def test_a_stopped_client_loses_the_oldest_and_is_told(self):
        """S4, A4, D6: before anything newer, with the count; received and lost are what was posted."""
        self.configure(queued_per_client=60)
        before = self.control.statistics()
        process = start("record", self.name)
        self.addCleanup(end, process)
        client = process.stdout.readline().strip()
        healthy = self.new_client()
        healthy.observe(self.name)
        # It has answered the first probe when it got something that was sent behind the answer.
        self.control.post(self.name, "first")
        self.assertEqual(json.loads(process.stdout.readline())[2], "first")
        stop(process.pid)
        # Nobody else waits for it. As the bound is for all, the healthy one is given the time to read.
        posted = 1000
        for index in range(posted):
            self.control.post_without_reply(self.name, str(index))
            if index % 50 == 49:
                self.assertEqual(healthy.wait_for(index + 2)[-1].object, str(index))
        status = {key: value.unpack() for key, value in self.control.list_clients()[client].items()}
        self.assertEqual((status["suspended"], status["queued"]), (False, 60))
        self.assertLessEqual(status["delivered"], 128 + 1)
        self.assertEqual(status["dropped"], posted + 1 - 60 - status["delivered"])
        self.assertEqual(self.control.statistics()["dropped"] - before["dropped"], status["dropped"])

        go_on(process.pid)
        sequence, objects, losses = 1, ["first"], []
        while objects[-1] != str(posted - 1):
            event = json.loads(process.stdout.readline())
            if event[0] == "dropped":
                losses.append(event[1])
                sequence += event[1]
                self.assertEqual(event[3], "queue-full")
                self.assertEqual(len(event[2]), 1)
            else:
                sequence += 1
                objects.append(event[2])
                self.assertEqual(event[4], sequence)
        self.assertEqual(losses, [status["dropped"]])
        self.assertEqual(objects[-60:], [str(index) for index in range(posted - 60, posted)])
        self.assertEqual(len(objects) + sum(losses), posted + 1)
        self.assertEqual(sequence, posted + 1)


def start(*arguments):
    """Starts this module as a program. It prints its unique name first."""
    return subprocess.Popen(
        [sys.executable, "-B", os.path.abspath(__file__), *arguments], stdout=subprocess.PIPE, text=True
    )


def end(process):
    process.kill()
    process.wait()
    process.stdout.close()


def second_process_main(mode, name):
    # Whoever started it ends it. One whose test module was ended by its time limit is left behind.
    faulthandler.dump_traceback_later(carillon_interop.MODULE_PATIENCE, exit=True)
    client = GDBusClient()
    client.observe(name, "", "hold")
    if mode == "hold":
        client.set_suspended(True)
    client.settle_signals()
    client.events.clear()
    print(client.unique_name, flush=True)
    while True:
        context.iteration(True)
        for event in client.events:
            print(json.dumps(event), flush=True)
        client.events.clear()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("record", "hold"):
        second_process_main(*sys.argv[1:])
    carillon_interop.main()

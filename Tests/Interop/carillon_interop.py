# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""What the interoperability tests share: constants of the contract, a GDBus client, a bus monitor, and waiting.

Every test module runs against the bus in DBUS_SESSION_BUS_ADDRESS, where the service already owns its name, and ends
by itself: each wait has a time limit and names what it waited for, and the whole process has one too.

Run as a program, this module is the second process of the two-process tests:

    carillon_interop.py observe NAME OBJECT COUNT   print "ready", then COUNT notifications as lines of JSON
    carillon_interop.py post NAME OBJECT COUNT      post COUNT notifications with {'index': <int32 0, 1, 2 ...>}
"""

import collections
import contextlib
import ctypes
import faulthandler
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

#: The exit code that says that something is not installed; what, is the last line of standard error.
CANNOT_RUN = 77

try:
    import dbus
    import dbus.bus
    import dbus.lowlevel
    import dbus.mainloop.glib
    import gi

    gi.require_version("Gio", "2.0")
    from gi.repository import Gio, GLib
except (ImportError, ValueError) as error:
    print(f"cannot run: {error} (needs python3-dbus and python3-gi)", file=sys.stderr)
    sys.exit(CANNOT_RUN)

BUS_NAME = "org.carillon.NotificationCenter1"
OBJECT_PATH = "/org/carillon/NotificationCenter1"
INTERFACE = "org.carillon.NotificationCenter1"

PEER = "org.freedesktop.DBus.Peer"
PROPERTIES = "org.freedesktop.DBus.Properties"
INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"

INVALID_NAME = "org.carillon.Error.InvalidName"
INVALID_USER_INFO = "org.carillon.Error.InvalidUserInfo"
INVALID_OPTION = "org.carillon.Error.InvalidOption"
UNKNOWN_OBSERVER = "org.carillon.Error.UnknownObserver"
LIMIT_EXCEEDED = "org.carillon.Error.LimitExceeded"
INVALID_ARGS = "org.freedesktop.DBus.Error.InvalidArgs"
UNKNOWN_METHOD = "org.freedesktop.DBus.Error.UnknownMethod"
UNKNOWN_INTERFACE = "org.freedesktop.DBus.Error.UnknownInterface"
UNKNOWN_OBJECT = "org.freedesktop.DBus.Error.UnknownObject"
UNKNOWN_PROPERTY = "org.freedesktop.DBus.Error.UnknownProperty"
PROPERTY_READ_ONLY = "org.freedesktop.DBus.Error.PropertyReadOnly"

#: Seconds that one wait, or one method call, may take. Only a test that fails waits for so long, and a machine that has
#: much else to do must not make one fail. What takes longer has a bound of its own where it stands.
PATIENCE = 60

#: Seconds that a whole test module may take. A module that is still running then prints where, and ends with an error.
MODULE_PATIENCE = 900

#: Messages without much userInfo that a socket certainly holds, so that they lie before a stopped service at once.
BURST = 100

#: Every integer type, with its smallest and its largest value.
INTEGER_RANGES = {
    "y": (0, 2**8 - 1),
    "n": (-(2**15), 2**15 - 1),
    "q": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "u": (0, 2**32 - 1),
    "x": (-(2**63), 2**63 - 1),
    "t": (0, 2**64 - 1),
}

#: Doubles that a detour through text, float or JSON would change.
DOUBLES = [0.0, -0.0, 0.1, 1.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan")]

#: Texts that a detour through C strings, ASCII or UTF-16 would change.
TEXTS = ["", " ", "plain", "Glöckner 🔔 𝔊 \u202e", "é", "e\u0301", "\x01\x7f\t\n", "\ufffe", "x" * 10_000]

#: Waits for events with everything that is registered with GLib's default main context.
context = GLib.MainContext.default()
dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)

_counter = itertools.count(1)


def bus_address():
    """The address of the bus under test."""
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS")
    if not address:
        sys.exit("DBUS_SESSION_BUS_ADDRESS must name a bus on which carillond runs")
    return address


def fresh_name(prefix="org.example.Test"):
    """A notification name that nothing else in this process uses."""
    return f"{prefix}.N{os.getpid()}_{next(_counter)}"


def wait_until(condition, what, seconds=PATIENCE):
    """Runs the main loop until the condition holds. `what` is text, or a function that gives it."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        # A blocking iteration that the timer ends if nothing else does: what another process knows wakes nobody here.
        timer = GLib.timeout_add(20, lambda: GLib.SOURCE_REMOVE)
        context.iteration(True)
        if context.find_source_by_id(timer) is not None:
            GLib.source_remove(timer)


def is_stopped(pid):
    """Whether no thread of the process runs any more, because of SIGSTOP."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
            # The state stands behind the name, which is in parentheses.
            if not file.read().rpartition(")")[2].startswith(" T"):
                return False
    return True


def stop(pid):
    """Stops a process, and returns when it has stopped: kill returns before."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid), f"process {pid} has stopped")


def go_on(pid):
    """Has a stopped process go on."""
    os.kill(pid, signal.SIGCONT)


def write_file(path, contents):
    """Puts a file with these bytes, or this text, there: whoever reads finds the old one or the new one, and no part."""
    temporary = f"{path}.new"
    with open(temporary, "wb") as file:
        file.write(contents.encode() if isinstance(contents, str) else contents)
    os.rename(temporary, path)


@contextlib.contextmanager
def read_by_another(path):
    """After the body, waits until another process has read the file, which it began to do within the body or later."""
    close_nowrite = 0x10  # <sys/inotify.h>
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC)
    try:
        if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(path), close_nowrite) < 0:
            raise OSError(ctypes.get_errno(), "inotify", path)
        yield
        if not select.select([descriptor], [], [], PATIENCE)[0]:
            raise AssertionError(f"not within {PATIENCE} s: {path} is read")
    finally:
        os.close(descriptor)


class Refused(Exception):
    """An error reply."""

    def __init__(self, name, message):
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


Notification = collections.namedtuple(
    "Notification", "name object user_info observers poster serial sequence sender path"
)


class Client:
    """A connection of its own to the bus through GDBus, and the notifications that it received.

    `user_info` of a notification is a GLib.Variant of type a{sv}; everything else is plain Python.
    """

    def __init__(self):
        self.connection = Gio.DBusConnection.new_for_address_sync(
            bus_address(),
            Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION,
            None,
            None,
        )
        self.connection.set_exit_on_close(False)
        self.unique_name = self.connection.get_unique_name()
        self.notifications = []
        # Without a match rule: the signals are addressed to this client.
        self.connection.signal_subscribe(
            None, INTERFACE, "Notification", None, None, Gio.DBusSignalFlags.NO_MATCH_RULE, self._received
        )

    def _received(self, _connection, sender, path, _interface, _signal, parameters):
        name, object_, user_info, observers, poster, serial, sequence = (
            parameters.get_child_value(index) for index in range(7)
        )
        self.notifications.append(
            Notification(
                name.unpack(),
                object_.unpack(),
                user_info,
                observers.unpack(),
                poster.unpack(),
                serial.unpack(),
                sequence.unpack(),
                sender,
                path,
            )
        )

    # Calls

    def call(self, method, arguments=None, interface=INTERFACE, path=OBJECT_PATH, destination=BUS_NAME, fds=None):
        """Calls a method with a GLib.Variant tuple, and returns the reply as a GLib.Variant tuple.

        The interface may be None. Raises Refused for an error reply."""
        message = Gio.DBusMessage.new_method_call(destination, path, interface, method)
        if arguments is not None:
            message.set_body(arguments)
        if fds is not None:
            message.set_unix_fd_list(fds)
        try:
            reply, _ = self.connection.send_message_with_reply_sync(
                message, Gio.DBusSendMessageFlags.NONE, PATIENCE * 1000, None
            )
        except GLib.Error as error:
            raise AssertionError(f"{method} got no reply: {error.message}") from error
        body = reply.get_body()
        if reply.get_message_type() == Gio.DBusMessageType.ERROR:
            raise Refused(reply.get_error_name(), body.unpack()[0] if body and body.n_children() else "")
        return body or GLib.Variant("()", ())

    def send(self, method, arguments, interface=INTERFACE, path=OBJECT_PATH, fds=None):
        """Calls a method with the flag NO_REPLY_EXPECTED. Returns the serial of the message."""
        message = Gio.DBusMessage.new_method_call(BUS_NAME, path, interface, method)
        message.set_flags(Gio.DBusMessageFlags.NO_REPLY_EXPECTED)
        if arguments is not None:
            message.set_body(arguments)
        if fds is not None:
            message.set_unix_fd_list(fds)
        sent = self.connection.send_message(message, Gio.DBusSendMessageFlags.NONE)
        # PyGObject gives the serial with the result, as it is an out parameter.
        return sent[1] if isinstance(sent, tuple) else message.get_serial()

    def ping(self):
        """A round trip to the service: what this client sent before was handled when this returns."""
        self.call("Ping", None, interface=PEER)

    def add_observer(self, name="", object="", options=None):
        return self.call("AddObserver", GLib.Variant("(ssa{sv})", (name, object, options or {}))).unpack()[0]

    def remove_observer(self, observer):
        self.call("RemoveObserver", GLib.Variant("(t)", (observer,)))

    def remove_observers(self, name="", object=""):
        return self.call("RemoveObservers", GLib.Variant("(ss)", (name, object))).unpack()[0]

    def post(self, name, object="", user_info=None, options=None):
        return self.call("Post", post_arguments(name, object, user_info, options)).unpack()[0]

    def post_without_reply(self, name, object="", user_info=None, options=None):
        return self.send("Post", post_arguments(name, object, user_info, options))

    def list_clients(self):
        """The clients by unique name, each a dictionary of key to GLib.Variant."""
        clients = {}
        reply = self.call("ListClients").get_child_value(0)
        for index in range(reply.n_children()):
            entry = dictionary_of_variants(reply.get_child_value(index))
            clients[entry["name"].unpack()] = entry
        return clients

    def list_observers(self, client):
        return self.call("ListObservers", GLib.Variant("(s)", (client,))).unpack()[0]

    def property(self, name):
        """The value of a property of the service, as a GLib.Variant."""
        reply = self.call("Get", GLib.Variant("(ss)", (INTERFACE, name)), interface=PROPERTIES)
        return reply.get_child_value(0).get_variant()

    def limits(self):
        return self.property("Limits").unpack()

    def statistics(self):
        return self.property("Statistics").unpack()

    def introspect(self, path=OBJECT_PATH):
        return self.call("Introspect", None, interface=INTROSPECTABLE, path=path).unpack()[0]

    def call_bus(self, method, *names):
        """Calls a method of the bus itself that takes strings."""
        return self.call(
            method,
            GLib.Variant("(" + "s" * len(names) + ")", names),
            interface="org.freedesktop.DBus",
            path="/org/freedesktop/DBus",
            destination="org.freedesktop.DBus",
        ).unpack()[0]

    def service_pid(self):
        return self.call_bus("GetConnectionUnixProcessID", BUS_NAME)

    # Waiting

    def wait_for(self, count):
        """Waits for that many notifications in all, and returns them."""
        wait_until(
            lambda: len(self.notifications) >= count,
            lambda: f"{count} notifications for {self.unique_name}; it got {self.notifications}",
        )
        return self.notifications

    def settle(self, poster):
        """Returns all notifications that this client got for what `poster` posted so far.

        A barrier: another notification is posted, and nothing overtakes it, so that all that was to come has come
        when it is there. It is not among what is returned."""
        barrier = fresh_name("org.example.Barrier")
        observer = self.add_observer(barrier)
        poster.post_without_reply(barrier)
        wait_until(
            lambda: self.notifications and self.notifications[-1].name == barrier,
            lambda: f"the barrier for {self.unique_name}; it got {self.notifications}",
        )
        self.remove_observer(observer)
        return [each for each in self.notifications if not each.name.startswith("org.example.Barrier.")]

    def close(self):
        if not self.connection.is_closed():
            self.connection.close_sync(None)


def post_arguments(name, object="", user_info=None, options=None):
    """The arguments of Post. `user_info` is a dictionary of key to GLib.Variant, or a GLib.Variant of any type."""
    if not isinstance(user_info, GLib.Variant):
        user_info = GLib.Variant("a{sv}", user_info or {})
    return GLib.Variant.new_tuple(
        GLib.Variant("s", name), GLib.Variant("s", object), user_info, GLib.Variant("a{sv}", options or {})
    )


def dictionary_of_variants(value):
    """An a{sv} as a dictionary whose values are still GLib.Variants, so that their types can be looked at."""
    entries = (value.get_child_value(index) for index in range(value.n_children()))
    return {entry.get_child_value(0).unpack(): entry.get_child_value(1).get_variant() for entry in entries}


def data(size):
    """`size` zero bytes as an ay."""
    return GLib.Variant.new_from_bytes(GLib.VariantType("ay"), GLib.Bytes.new(bytes(size)), True)


class Monitor:
    """Sees every call of the interface and every reply on the bus, also those that the bus does not deliver."""

    #: Not all messages: libdbus answers each Ping that it sees, and a monitor that sends is thrown out.
    rules = [f"interface='{INTERFACE}'", "type='method_return'", "type='error'"]

    def __init__(self):
        self.messages = []
        self._connection = dbus.bus.BusConnection(bus_address())
        self._connection.call_blocking(
            "org.freedesktop.DBus",
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus.Monitoring",
            "BecomeMonitor",
            "asu",
            (dbus.Array(self.rules, signature="s"), dbus.UInt32(0)),
        )
        self._connection.add_message_filter(self._saw)

    def _saw(self, _connection, message):
        self.messages.append(message)
        return dbus.lowlevel.HANDLER_RESULT_HANDLED

    def wait_for_call(self, sender, serial):
        """Waits until the method call with this serial of this sender was seen; all before it was then seen too."""
        wait_until(
            lambda: any(
                message.get_type() == dbus.lowlevel.MESSAGE_TYPE_METHOD_CALL
                and message.get_sender() == sender
                and message.get_serial() == serial
                for message in self.messages
            ),
            f"the monitor sees message {serial} of {sender}",
        )

    def replies_to(self, client, serial):
        """The replies that were sent to the message of `client` with this serial."""
        kinds = (dbus.lowlevel.MESSAGE_TYPE_METHOD_RETURN, dbus.lowlevel.MESSAGE_TYPE_ERROR)
        return [
            message
            for message in self.messages
            if message.get_type() in kinds
            and message.get_destination() == client
            and message.get_reply_serial() == serial
        ]

    def close(self):
        self._connection.close()


class RawClient:
    """A connection that sends bytes as they are, right or wrong."""

    def __init__(self):
        path = re.search("unix:path=([^,]*)", bus_address()).group(1)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(path)
        self._socket.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        if not self._receive_until(b"\r\n").startswith(b"OK "):
            raise AssertionError("the bus refused the authentication")
        hello = Gio.DBusMessage.new_method_call(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello"
        )
        self._socket.sendall(b"BEGIN\r\n" + marshalled(hello))
        self._receive_until(b"NameAcquired")

    def _receive_until(self, end):
        """Takes what comes until these bytes are in it."""
        received = b""
        while end not in received:
            more = self._socket.recv(10_000)
            if not more:
                raise AssertionError(f"the bus closed the connection after {received}")
            received += more
        return received

    def send(self, message):
        """Sends bytes and waits for the answer. Returns False if the bus closed the connection instead."""
        try:
            self._socket.sendall(message)
            return len(self._socket.recv(10_000)) > 0
        except (BrokenPipeError, ConnectionResetError):
            return False

    def close(self):
        self._socket.close()


def marshalled(message):
    message.set_serial(1)
    return bytes(message.to_blob(Gio.DBusCapabilityFlags.NONE))


class TestCase(unittest.TestCase):
    """A test with clients that leave the bus at its end. The service must survive every test."""

    maxDiff = None

    def setUp(self):
        self.name = fresh_name()
        self.control = self.client()
        self._service_pid = self.control.service_pid()

    def client(self):
        client = Client()
        self.addCleanup(client.close)
        return client

    def tearDown(self):
        self.control.ping()
        self.assertEqual(self.control.service_pid(), self._service_pid, "the service ended and was started again")

    def assert_refused(self, error_names, call, *arguments, mentions=(), **keywords):
        """The call gets an error reply with (one of) the given names, whose message contains all of `mentions`."""
        if isinstance(error_names, str):
            error_names = (error_names,)
        try:
            reply = call(*arguments, **keywords)
        except Refused as refused:
            self.assertIn(refused.name, error_names, refused.message)
            self.assertNotEqual(refused.message, "", "an error without a message")
            for text in mentions:
                self.assertIn(str(text), refused.message)
            return refused
        return self.fail(f"accepted, with reply {reply}; expected {' or '.join(error_names)}")

    def assert_introspectable_children(self, introspect):
        """Every path from the root to the object lists its child, so that tools find it."""
        parts = OBJECT_PATH.strip("/").split("/")
        for depth, child in enumerate(parts):
            path = "/" + "/".join(parts[:depth])
            nodes = xml.etree.ElementTree.fromstring(introspect(path)).findall("node")
            self.assertEqual([node.get("name") for node in nodes], [child], f"the children of {path}")


def second_process(*arguments):
    """Starts this module as a program, on the same bus. It ends by itself when it takes too long."""
    return subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def pairs(notifications, *fields):
    """The named fields of each notification, for comparing."""
    return [tuple(getattr(each, field) for field in fields) for each in notifications]


def observe_main(name, object_, count):
    client = Client()
    client.add_observer(name, object_)
    print("ready", flush=True)
    for notification in client.wait_for(int(count))[: int(count)]:
        line = notification._asdict() | {"user_info": notification.user_info.print_(True)}
        print(json.dumps(line), flush=True)


def post_main(name, object_, count):
    client = Client()
    for index in range(int(count)):
        client.post_without_reply(name, object_, {"index": GLib.Variant("i", index)})
    # The connection must not end before the service has read all of it.
    client.ping()
    print(client.unique_name, flush=True)


def main():
    """Runs the tests of the calling module. Exits with 0 only if all passed."""
    bus_address()
    faulthandler.dump_traceback_later(MODULE_PATIENCE, exit=True)
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(PATIENCE * 2, exit=True)
    {"observe": observe_main, "post": post_main}[sys.argv[1]](*sys.argv[2:])

# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""The service from the command-line tools of the distribution: busctl, gdbus, dbus-send and dbus-monitor (part B)."""

import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import carillon_interop
from carillon_interop import (
    BUS_NAME,
    INTERFACE,
    INVALID_ARGS,
    INVALID_NAME,
    INVALID_USER_INFO,
    LIMIT_EXCEEDED,
    OBJECT_PATH,
    PATIENCE,
    PEER,
    PROPERTIES,
    UNKNOWN_OBSERVER,
    GLib,
    bus_address,
    wait_until,
    write_file,
)
from test_introspection import DEFAULT_PATH

QT_EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "Examples", "qt")


def needs(tool):
    """Skips a test where a tool is not installed, which in CI is an error."""
    if shutil.which(tool):
        return lambda test: test
    if os.environ.get("CI") == "true":
        raise SystemExit(f"{tool} is not installed")
    return unittest.skip(f"{tool} is not installed")


def run(*command, check=True):
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    if check and result.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited with {result.returncode}: {result.stderr}")
    return result


class Lines:
    """The output of a program in the background, line by line."""

    def __init__(self, *command):
        self.command = command
        self.seen = []
        self._queue = queue.Queue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def next(self, deadline):
        try:
            line = self._queue.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            line = None
        if line is None:
            raise AssertionError(f"no such line from {' '.join(self.command)}, but: {self.seen}")
        self.seen.append(line)
        return line

    def wait_for(self, condition, following=0):
        """The first line that fulfils the condition, with so many that follow it."""
        deadline = time.monotonic() + PATIENCE
        while not condition(line := self.next(deadline)):
            pass
        return [line] + [self.next(deadline) for _ in range(following)]

    def close(self):
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._thread.join(PATIENCE)
        self._process.stdout.close()


class TestCase(carillon_interop.TestCase):
    def lines(self, *command):
        lines = Lines(*command)
        self.addCleanup(lines.close)
        return lines

    def wait_until_only(self, *names):
        """Waits until the service knows these clients and no others: of a program that ended, the bus learns later."""
        wait_until(
            lambda: set(self.control.list_clients()) == set(names),
            lambda: f"the clients are {names}; they are {set(self.control.list_clients())}",
        )


@needs("gdbus")
class GDBus(TestCase):
    def call(self, method, *arguments, check=True):
        return run(
            "gdbus", "call", "--address", bus_address(), "--dest", BUS_NAME, "--object-path", OBJECT_PATH,
            "--method", f"{INTERFACE}.{method}", *arguments, check=check,
        )  # fmt: skip

    def test_post(self):
        self.control.add_observer(self.name)
        result = self.call("Post", self.name, "bell", "{'weight': <int64 4711>, 'tones': <['c', 'e']>}", "{}")
        self.assertEqual(result.stdout, "(uint32 1,)\n")
        (notification,) = self.control.wait_for(1)
        self.assertEqual((notification.name, notification.object), (self.name, "bell"))
        self.assertEqual(notification.user_info.print_(True), "{'weight': <int64 4711>, 'tones': <['c', 'e']>}")

    def test_observers(self):
        # gdbus introspects the service to learn the types of its arguments.
        added = self.call("AddObserver", self.name, "", "{'suspension-behavior': <'hold'>}")
        self.assertRegex(added.stdout, r"^\(uint64 \d+,\)$")
        # The tool leaves the bus, and its observer goes with it.
        self.wait_until_only()
        self.assertEqual(self.control.post(self.name), 0)
        self.assertEqual(self.call("RemoveObservers", "", "").stdout, "(uint32 0,)\n")
        observer = self.control.add_observer(self.name, "bell")
        self.assertIn(f"'name': <'{self.control.unique_name}'>", self.call("ListClients").stdout)
        listed = self.call("ListObservers", self.control.unique_name).stdout
        self.assertEqual(listed, f"([(uint64 {observer}, '{self.name}', 'bell', 'coalesce')],)\n")

    def test_values(self):
        """R3: a script asks once, in one line, and ends. Its value stays, but for what goes with its connection."""
        self.call("Post", self.name, "BAT0", "{'percent': <80>}", "{'retain': <true>}")
        self.call("Post", self.name, "BAT1", "{}", "{'retain': <true>, 'while-connected': <true>}")
        wait_until(lambda: "BAT1" not in self.call("Get", self.name, "").stdout, "the value goes with its poster")
        printed = self.call("Get", self.name, "").stdout
        self.assertRegex(printed, rf"^\(\[\('{self.name}', 'BAT0', {{'percent': <80>}}, {{'serial': <uint64 \d+>, ")
        self.assertEqual(self.call("RemoveRetained", self.name, "").stdout, "(uint32 1,)\n")
        self.assertEqual(self.call("Get", self.name, "").stdout, "(@a(ssa{sv}a{sv}) [],)\n")

    def test_errors(self):
        for method, arguments, error in (
            ("Post", ("", "", "{}", "{}"), INVALID_NAME),
            ("RemoveObserver", ("4711471147114711",), UNKNOWN_OBSERVER),
        ):
            result = self.call(method, *arguments, check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(error, result.stderr)

    def test_introspect(self):
        introspect = ("gdbus", "introspect", "--address", bus_address(), "--dest", BUS_NAME)
        text = run(*introspect, "--object-path", OBJECT_PATH).stdout
        self.assertIn(f"interface {INTERFACE}", text)
        self.assertIn("AddObserver(", text)
        self.assertIn("readonly s Version", text)
        tree = run(*introspect, "--object-path", "/", "--recurse").stdout
        self.assertIn(f"node {OBJECT_PATH}", tree)

    def test_wait(self):
        run("gdbus", "wait", "--address", bus_address(), "--timeout", str(PATIENCE), BUS_NAME)


@needs("busctl")
class Busctl(TestCase):
    busctl = ("busctl", f"--address={os.environ.get('DBUS_SESSION_BUS_ADDRESS', '').split(',')[0]}")

    def call(self, method, *arguments, check=True):
        return run(*self.busctl, "call", BUS_NAME, OBJECT_PATH, INTERFACE, method, *arguments, check=check)

    def test_post(self):
        self.control.add_observer(self.name)
        user_info = ("3", "weight", "x", "4711", "loud", "b", "true", "tones", "as", "2", "c", "e")
        options = ("1", "deliver-immediately", "b", "true")
        result = self.call("Post", "ssa{sv}a{sv}", self.name, "bell", *user_info, *options)
        self.assertEqual(result.stdout, "u 1\n")
        (notification,) = self.control.wait_for(1)
        self.assertEqual(
            notification.user_info.print_(True), "{'weight': <int64 4711>, 'loud': <true>, 'tones': <['c', 'e']>}"
        )

    def test_post_without_reply(self):
        self.control.add_observer(self.name)
        run(
            *self.busctl, "--expect-reply=no", "call", BUS_NAME, OBJECT_PATH, INTERFACE, "Post", "ssa{sv}a{sv}",
            self.name, "", "0", "0",
        )  # fmt: skip
        self.assertEqual(self.control.wait_for(1)[0].name, self.name)

    def test_observers(self):
        self.assertRegex(self.call("AddObserver", "ssa{sv}", self.name, "", "0").stdout, r"^t \d+$")
        self.wait_until_only()
        observer = self.control.add_observer(self.name, "bell")
        listed = self.call("ListObservers", "s", self.control.unique_name).stdout
        self.assertEqual(listed, f'a(tsss) 1 {observer} "{self.name}" "bell" "coalesce"\n')
        self.assertEqual(self.call("RemoveObservers", "ss", "", "").stdout, "u 0\n")
        listed = run(*self.busctl, "--json=short", "call", BUS_NAME, OBJECT_PATH, INTERFACE, "ListClients").stdout
        clients = json.loads(listed)
        self.assertEqual(clients["type"], "aa{sv}")
        names = [client["name"]["data"] for client in clients["data"][0]]
        self.assertEqual(names, [self.control.unique_name])

    def test_values(self):
        """R3"""
        self.call("Post", "ssa{sv}a{sv}", self.name, "BAT0", "1", "percent", "i", "80", "1", "retain", "b", "true")
        printed = self.call("Get", "ss", self.name, "").stdout
        self.assertTrue(printed.startswith(f'a(ssa{{sv}}a{{sv}}) 1 "{self.name}" "BAT0" 1 "percent" i 80 '), printed)
        self.assertEqual(self.call("RemoveRetained", "ss", self.name, "").stdout, "u 1\n")

    def test_errors(self):
        result = self.call("Post", "ssa{sv}a{sv}", "", "", "0", "0", check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("empty", result.stderr)

    def test_properties(self):
        version = run(*self.busctl, "get-property", BUS_NAME, OBJECT_PATH, INTERFACE, "Version").stdout
        self.assertRegex(version, r'^s "\d')
        statistics = run(*self.busctl, "get-property", BUS_NAME, OBJECT_PATH, INTERFACE, "Statistics").stdout
        self.assertRegex(statistics, r'^a\{st\} \d+ .*"posted" \d')
        refused = run(*self.busctl, "set-property", BUS_NAME, OBJECT_PATH, INTERFACE, "Version", "s", "9", check=False)
        self.assertNotEqual(refused.returncode, 0)

    def test_introspect_and_tree(self):
        text = run(*self.busctl, "introspect", BUS_NAME, OBJECT_PATH).stdout
        lines = [line.split() for line in text.splitlines()]
        self.assertIn([".Post", "method", "ssa{sv}a{sv}", "u", "-"], lines)
        self.assertIn([".Notification", "signal", "ssa{sv}atstt", "-", "-"], lines)
        self.assertIn(".Version property s", " ".join(text.split()))
        self.assertIn("const", next(line for line in lines if line[0] == ".Version"))
        tree = run(*self.busctl, "tree", "--list", BUS_NAME).stdout.split()
        self.assertIn(OBJECT_PATH, tree)

    def test_monitor(self):
        lines = self.lines(*self.busctl, "--json=short", "monitor", BUS_NAME)
        lines.wait_for(lambda line: "Monitoring" in line)
        self.control.add_observer(self.name)
        self.control.post(self.name, "bell", {"weight": GLib.Variant("x", 4711)})
        for member in ("Post", "Notification"):
            (line,) = lines.wait_for(lambda line: f'"member":"{member}"' in line)
            payload = json.loads(line)["payload"]
            self.assertEqual(payload["data"][:2], [self.name, "bell"])
            self.assertEqual(payload["data"][2], {"weight": {"type": "x", "data": 4711}})


@needs("qdbus")
class QDBus(TestCase):
    """qdbus has no syntax for a{sv} either. It knows the session bus only by its address in the environment."""

    def test_post(self):
        self.control.add_observer(self.name)
        environment = {**os.environ, "QT_SELECT": "5", "DBUS_SESSION_BUS_ADDRESS": bus_address()}
        posted = subprocess.run(
            ["qdbus", BUS_NAME, OBJECT_PATH, f"{INTERFACE}.PostJSON", self.name, "bell", '{"weight": 4711}'],
            env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True,
        )  # fmt: skip
        self.assertEqual(posted.stdout, "1\n")
        (notification,) = self.control.wait_for(1)
        self.assertEqual(notification.user_info.print_(True), "{'weight': <int64 4711>}")


@needs("dbus-send")
class DBusSend(TestCase):
    """dbus-send has no syntax for a{sv}, so it posts with PostJSON."""

    def send(self, member, *arguments, interface=INTERFACE, path=OBJECT_PATH, check=True):
        return run(
            "dbus-send", f"--bus={bus_address()}", "--print-reply", f"--reply-timeout={PATIENCE * 1000}",
            f"--dest={BUS_NAME}", path, f"{interface}.{member}", *arguments, check=check,
        )  # fmt: skip

    def test_post(self):
        self.control.add_observer(self.name)
        user_info = 'string:{"weight": 4711, "tones": ["c", 1.0]}'
        posted = self.send("PostJSON", f"string:{self.name}", "string:bell", user_info)
        self.assertIn("uint32 1", posted.stdout)
        self.assertIn("uint32 1", self.send("PostJSON", f"string:{self.name}", "string:", "string:").stdout)
        first, second = self.control.wait_for(2)
        self.assertEqual((first.name, first.object, second.object), (self.name, "bell", ""))
        tones = [GLib.Variant("s", "c"), GLib.Variant("d", 1.0)]
        wanted = {"weight": GLib.Variant("x", 4711), "tones": GLib.Variant("av", tones)}
        for key, value in wanted.items():
            self.assertTrue(first.user_info.lookup_value(key).equal(value), first.user_info.print_(True))
        self.assertEqual(first.user_info.n_children(), len(wanted))
        self.assertEqual(second.user_info.print_(True), "@a{sv} {}")

    def test_post_errors(self):
        for user_info, error in (
            ("[1]", INVALID_USER_INFO), ("{", INVALID_USER_INFO), ('{"a": null}', INVALID_USER_INFO),
            ('{"a": 1, "a": 2}', INVALID_USER_INFO), ('{"a": 1e999}', INVALID_USER_INFO),
            ("%s1%s" % ('{"a": ' * 40, "}" * 40), None), ('{"a\\u0000": 1}', INVALID_USER_INFO),
            ('{"\\u0000": null}', INVALID_USER_INFO), ('{"\\u0000": 1, "\\u0000": 2}', INVALID_USER_INFO),
            ('{"%s": null}' % ("k" * 60_000), INVALID_USER_INFO), ('{"a": %s}' % ("1" * 60_000), INVALID_USER_INFO),
        ):  # fmt: skip
            with self.subTest(user_info=user_info[:40]):
                result = self.send("PostJSON", f"string:{self.name}", "string:", f"string:{user_info}", check=False)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(error or "org.carillon.Error.", result.stderr)
        large = '{"a": "%s"}' % ("x" * 2_000_000)
        body = GLib.Variant("(sss)", (self.name, "", large))
        self.assert_refused(LIMIT_EXCEEDED, self.control.call, "PostJSON", body)
        result = self.send("PostJSON", "string:", "string:", "string:", check=False)
        self.assertIn(INVALID_NAME, result.stderr)

    def test_listing(self):
        observer = self.control.add_observer(self.name, "bell")
        clients = self.send("ListClients").stdout
        self.assertIn(f'string "{self.control.unique_name}"', clients)
        observers = self.send("ListObservers", f"string:{self.control.unique_name}").stdout
        self.assertIn(f"uint64 {observer}", observers)
        self.assertIn(f'string "{self.name}"', observers)
        self.assertIn("uint32 0", self.send("RemoveObservers", "string:", "string:").stdout)

    def test_errors(self):
        for arguments, error in (
            (("RemoveObserver", "uint64:4711471147114711"), UNKNOWN_OBSERVER),
            (("Post", "string:name", "string:", "dict:string:string:", "dict:string:string:"), INVALID_ARGS),
            (("Post", "string:name"), INVALID_ARGS),
        ):
            with self.subTest(arguments=arguments):
                result = self.send(*arguments, check=False)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(error, result.stderr)

    def test_properties_ping_and_introspection(self):
        version = self.send("Get", f"string:{INTERFACE}", "string:Version", interface=PROPERTIES).stdout
        self.assertRegex(version, r'variant\s+string "\d')
        self.send("Ping", interface=PEER)
        text = self.send("Introspect", interface=carillon_interop.INTROSPECTABLE).stdout
        self.assertIn(f'<interface name="{INTERFACE}">', text)


@needs("dbus-monitor")
class DBusMonitor(TestCase):
    def test_name_and_object_come_first(self):
        """B2"""
        lines = self.lines("dbus-monitor", "--address", bus_address(), f"interface='{INTERFACE}'")
        # The monitor itself loses its name when it becomes a monitor.
        lines.wait_for(lambda line: "member=NameLost" in line)
        self.control.add_observer(self.name)
        self.control.post(self.name, "bell", {"weight": GLib.Variant("x", 4711)})
        for kind, member in (("method call", "Post"), ("signal", "Notification")):
            _, name, object_, *rest = lines.wait_for(
                lambda line: line.startswith(kind) and f"member={member}" in line, following=9
            )
            self.assertEqual((name.strip(), object_.strip()), (f'string "{self.name}"', 'string "bell"'))
            self.assertIn('string "weight"', " ".join(rest))
            self.assertRegex(" ".join(rest), r"variant\s+int64 4711")

    def test_only_the_addressee_gets_the_signal(self):
        lines = self.lines("dbus-monitor", "--address", bus_address(), f"type='signal',interface='{INTERFACE}'")
        lines.wait_for(lambda line: "member=NameLost" in line)
        self.control.add_observer(self.name)
        self.control.post(self.name)
        (line,) = lines.wait_for(lambda line: "member=Notification" in line)
        self.assertIn(f"destination={self.control.unique_name} ", line)


@needs("gdbus-codegen")
class CodeGeneration(TestCase):
    def test_gdbus_codegen(self):
        xml = os.environ.get("CARILLON_INTERFACE_XML", DEFAULT_PATH)
        with tempfile.TemporaryDirectory() as directory:
            for arguments in (
                ("--header", "--output", f"{directory}/proxy.h"),
                ("--body", "--output", f"{directory}/proxy.c"),
                ("--generate-docbook", f"{directory}/doc"),
            ):
                result = run("gdbus-codegen", "--interface-prefix", "org.carillon.", *arguments, xml)
                self.assertEqual(result.stderr, "")
            with open(f"{directory}/proxy.h", encoding="utf-8") as header:
                text = header.read()
            self.assertIn("notification_center1_call_post_sync", text)
            self.assertRegex(text, r"notification_center1_call_open_channel_sync \([^)]*GUnixFDList +\*\*out_fd_list")


def qt_tools():
    """Where moc and qdbusxml2cpp of Qt 5 are; nothing where they are not installed."""
    found = run("pkg-config", "--variable=host_bins", "Qt5Core", check=False).stdout.strip()
    return found if run("pkg-config", "--exists", "Qt5DBus", check=False).returncode == 0 else ""


class QtCodeGeneration(TestCase):
    def setUp(self):
        super().setUp()
        self.tools = qt_tools()
        if not self.tools:
            self.assertNotEqual(os.environ.get("CI"), "true", "Qt 5 is not installed")
            self.skipTest("Qt 5 is not installed")
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def generate(self, kind, name, xml):
        """Makes a class and what moc makes of that."""
        path = f"{self.directory.name}/{name}"
        made = run(f"{self.tools}/qdbusxml2cpp", "-m", "-i", "carillon.h", kind, path, xml)
        self.assertEqual(made.stderr, "")
        run(f"{self.tools}/moc", f"-I{QT_EXAMPLES}", f"{path}.h", "-o", f"{path}.moc")
        return f"{path}.cpp"

    def compile(self, *arguments):
        flags = run("pkg-config", "--cflags", "--libs", "Qt5DBus").stdout.split()
        include = (f"-I{self.directory.name}", f"-I{QT_EXAMPLES}")
        run("c++", "-std=c++17", "-fPIC", "-Wall", "-Wextra", "-Werror", *include, *arguments, *flags)

    def test_the_example(self):
        xml = os.environ.get("CARILLON_INTERFACE_XML", DEFAULT_PATH)
        program = f"{self.directory.name}/values"
        self.compile("-o", program, f"{QT_EXAMPLES}/values.cpp", self.generate("-p", "center", xml))
        lines = run(program, self.name).stdout.splitlines()
        self.addCleanup(self.control.call, "RemoveRetained", GLib.Variant("(ss)", (self.name, "")))
        self.assertEqual(lines[:2], ["posted to 0 "] * 2)
        self.assertRegex(lines[2], r"^BAT0 80 posted by :\d")
        self.assertRegex(lines[3], r"^BAT1 5 posted by :\d")
        self.assertEqual(lines[4:], ["2 values are kept"])

    def test_all_interfaces(self):
        folder = os.path.dirname(DEFAULT_PATH)
        for name in sorted(os.listdir(folder)):
            for kind in ("-p", "-a"):
                with self.subTest(name=name, kind=kind):
                    self.generate(kind, f"made{kind[1]}", f"{folder}/{name}")

    def test_what_the_service_says_of_itself(self):
        """The other side of the interface, too."""
        xml = f"{self.directory.name}/introspected.xml"
        write_file(xml, self.control.introspect())
        # Of a method with several results qdbusxml2cpp leaves the body to whoever writes the service, and says so in it.
        self.compile("-Wno-return-type", "-Wno-unused-parameter", "-fsyntax-only", self.generate("-a", "adaptor", xml))


if __name__ == "__main__":
    carillon_interop.main()

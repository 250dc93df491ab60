# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Policy, seen from inside a sandbox and from outside (P2, P3).

The sandbox is a process whose root directory has what Flatpak puts there, and nothing else. It connects to the bus
first, as nothing of the bus's is in there. Where a process may not change its root directory, there are no sandboxes to
test with, and that is said.

Run as a program, this module is that process: it takes calls as lines of JSON, and answers with lines of JSON.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import carillon_interop
from carillon_interop import INTERFACE, PATIENCE, PROPERTIES, Client, GLib, Refused, context, wait_until
from test_channel import OUTCOME, POST, Channel
from test_suspension import INVALID_CONFIGURATION, ConfigurationTestCase

NOT_ALLOWED = "org.carillon.Error.NotAllowed"


def sandbox_command():
    """What a program is started with so that it may change its root directory; None where nothing helps."""
    if os.geteuid() == 0:
        prefixes = ([],)
    else:
        prefixes = (["unshare", "--map-current-user", "--keep-caps"],)
    for prefix in prefixes:
        attempt = [*prefix, sys.executable, "-c", "import os; os.chroot('/')"]
        try:
            if subprocess.run(attempt, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                return prefix
        except FileNotFoundError:
            pass
    return None


class Sandbox:
    """A process in the sandbox of an application, on the bus."""

    def __init__(self, test, application):
        prefix = sandbox_command()
        if prefix is None:
            test.skipTest("a process may not change its root directory here: neither as root nor in a user namespace")
        self.root = tempfile.mkdtemp(prefix="carillon-sandbox-")
        test.addCleanup(shutil.rmtree, self.root, True)
        with open(f"{self.root}/.flatpak-info", "w") as file:
            file.write(f"[Application]\nname={application}\n\n[Instance]\ninstance-id=1\n")
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-B", os.path.abspath(__file__), "sandbox", self.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        test.addCleanup(self.end)
        self.unique_name = self.ask(["name"])

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        return answer["result"]

    def call(self, method, types="()", *arguments, interface=INTERFACE):
        return self.ask(["call", interface, method, types, arguments])

    def post(self, name):
        return self.call("Post", "(ssa{sv}a{sv})", name, "", {}, {})[0]

    def observe(self, name, object_=""):
        return self.call("AddObserver", "(ssa{sv})", name, object_, {})[0]

    def open_channel(self):
        """Opens a channel, which it has until it ends."""
        self.ask(["open"])

    def post_on_channel(self, name):
        return self.ask(["channel", name])

    def clients(self):
        """The clients that it sees."""
        return {each["name"] for each in self.call("ListClients")[0]}

    def posters(self):
        """Those who post that it sees."""
        return {each["name"]: (each["posted"], each["refused"]) for each in self.call("ListPosters", "(u)", 1000)[0]}

    def heard(self):
        """The names of the notifications so far, after a round trip."""
        self.call("Ping", interface=carillon_interop.PEER)
        return self.ask(["heard"])

    def dropped(self):
        """What the signal Dropped said, in the order of arrival."""
        self.call("Ping", interface=carillon_interop.PEER)
        return self.ask(["dropped"])


def sandbox_main(root):
    client = Client()
    dropped = []
    client.connection.signal_subscribe(
        None,
        INTERFACE,
        "Dropped",
        None,
        None,
        carillon_interop.Gio.DBusSignalFlags.NO_MATCH_RULE,
        lambda *arguments: dropped.append(arguments[-1].unpack()),
    )
    os.chroot(root)
    os.chdir("/")
    channel = None
    for line in sys.stdin:
        request = json.loads(line)
        while context.iteration(False):
            pass
        try:
            if request[0] == "call":
                interface, method, types, arguments = request[1:]
                # Options that are none but booleans and lists of words.
                arguments = [
                    {key: GLib.Variant("b" if value in (True, False) else "as", value) for key, value in each.items()}
                    if isinstance(each, dict)
                    else each
                    for each in arguments
                ]
                result = client.call(method, GLib.Variant(types, tuple(arguments)), interface=interface).unpack()
            elif request[0] == "name":
                result = client.unique_name
            elif request[0] == "open":
                channel = Channel(client)
                result = None
            elif request[0] == "channel":
                channel.send(POST, 1, post_body(request[1]))
                result = outcome(channel)
            elif request[0] == "heard":
                result = [each.name for each in client.notifications]
            else:
                result = dropped
            answer = {"result": result}
        except Refused as refused:
            answer = {"error": refused.name, "message": refused.message}
        print(json.dumps(answer), flush=True)


def post_body(name):
    """The body of a post without object, userInfo and options."""
    text = name.encode()
    body = struct.pack("=I", len(text)) + text + b"\0"
    body += bytes(-len(body) % 4) + struct.pack("=I", 0) + b"\0"
    for _ in range(2):
        body += bytes(-len(body) % 4) + struct.pack("=I", 0)
        body += bytes(-len(body) % 8)
    return body


def outcome(channel):
    """The receivers of the next outcome; the notifications before it are passed over."""
    kind, _, body = channel.receive()
    while kind != OUTCOME:
        kind, _, body = channel.receive()
    receivers, size = struct.unpack_from("=II", body)
    error = body[8 : 8 + size].decode()
    if error:
        start = 8 + size + 1
        start += -start % 4
        raise Refused(error, body[start + 4 : -1].decode())
    return receivers


class PolicyTestCase(ConfigurationTestCase):
    def configure_policy(self, *lines):
        self.write(*lines)
        self.control.call("ReloadConfiguration")


class Sandboxes(PolicyTestCase):
    def test_own_names(self):
        """P2: an application posts and observes its own names, and by default no others."""
        application = carillon_interop.fresh_name("org.example.Boxed")
        sandbox = Sandbox(self, application)
        outside = self.client()
        outside.add_observer()
        for name in (application, f"{application}.Ding"):
            sandbox.observe(name, "door")
            sandbox.observe(name)
            self.assertGreater(sandbox.post(name), 0)
            self.assertEqual(self.control.post(name), 2)
        for name in (self.name, f"{application}Evil", f"{application}Evil.Ding", "org.example", application.upper()):
            self.assert_refused(NOT_ALLOWED, sandbox.post, name, mentions=[application, name, "by default"])
            self.assert_refused(NOT_ALLOWED, sandbox.observe, name, mentions=[application, name])
            self.assertEqual(self.control.post(name), 1)
        self.assertEqual(len(sandbox.heard()), 4)
        # What was refused reached nobody.
        posters = [each.poster for each in outside.settle(self.control)]
        self.assertEqual((posters.count(sandbox.unique_name), len(posters)), (2, 9))

    def test_any_name(self):
        """P2: no name *any*, also about one object."""
        sandbox = Sandbox(self, "org.example.Boxed")
        for object_ in ("", "door"):
            self.assert_refused(NOT_ALLOWED, sandbox.observe, "", object_, mentions=["any name"])
        self.assert_refused("org.carillon.Error.InvalidName", sandbox.post, "")

    def test_lists(self):
        """P2: it sees the clients of its own sandbox, and their observers, and no other."""
        other = self.client()
        other.add_observer(self.name)
        stranger = Sandbox(self, "org.example.Other")
        stranger.observe("org.example.Other")
        first, second = Sandbox(self, "org.example.Boxed"), Sandbox(self, "org.example.Boxed")
        observers = {each.unique_name: each.observe("org.example.Boxed.Ding") for each in (first, second)}
        self.assertEqual(first.clients(), set(observers))
        for name, observer in observers.items():
            (listed,) = first.call("ListObservers", "(s)", name)
            self.assertEqual([each[0] for each in listed], [observer])
            (listed,) = first.call("ListObserversFrom", "(stu)", name, 0, 10)
            self.assertEqual([each[0] for each in listed], [observer])
        for name in (other.unique_name, stranger.unique_name, ":1.99999"):
            self.assertEqual(first.call("ListObservers", "(s)", name), [[]])
            self.assertEqual(first.call("ListObserversFrom", "(stu)", name, 0, 10), [[]])
        for poster, name in ((other, self.name), (stranger, "org.example.Other"), (first, "org.example.Boxed.Ding")):
            poster.post(name)
        self.assert_refused(NOT_ALLOWED, first.post, self.name)
        self.assertEqual(first.posters(), {first.unique_name: (1, 1)})
        self.assertEqual(second.posters(), {first.unique_name: (1, 1)})
        # From outside everybody is seen.
        listed = self.control.call("ListPosters", GLib.Variant("(u)", (1000,))).unpack()[0]
        self.assertLessEqual({each.unique_name for each in (other, stranger, first)}, {each["name"] for each in listed})
        self.assertLessEqual({other.unique_name, stranger.unique_name, *observers}, set(self.control.list_clients()))

    def test_all_sessions(self):
        """G1, P2: it can't post to all sessions, whatever its policy and what is exported; others can."""
        application = carillon_interop.fresh_name("org.example.Boxed")
        sandbox = Sandbox(self, application)
        self.configure_policy("[Sessions]", "export=org.example.*", f"[Policy {application}]", "post=*")
        outside = self.client()
        outside.add_observer(application)
        self.assertEqual(sandbox.post(application), 1)
        arguments = [application, "", {}, {"all-sessions": True}]
        self.assert_refused(
            NOT_ALLOWED, sandbox.call, "Post", "(ssa{sv}a{sv})", *arguments, mentions=[application, "all sessions"]
        )
        self.assertEqual(self.control.post(application, options={"all-sessions": GLib.Variant("b", True)}), 1)
        posters = [each.poster for each in outside.settle(self.control)]
        self.assertEqual(posters, [sandbox.unique_name, self.control.unique_name])

    def test_channel(self):
        """P2, F2: on a channel it posts what it may post on the bus, and nothing else, also when policy changes."""
        application = carillon_interop.fresh_name("org.example.Boxed")
        sandbox = Sandbox(self, application)
        outside = self.client()
        outside.add_observer()
        sandbox.open_channel()
        for name in (application, f"{application}.Ding"):
            self.assertEqual(sandbox.post_on_channel(name), 1)
            self.assertEqual(sandbox.post(name), 1)
        for name in (self.name, f"{application}Evil", "org.example", application.upper()):
            self.assert_refused(NOT_ALLOWED, sandbox.post_on_channel, name, mentions=[application, name, "by default"])
            self.assert_refused(NOT_ALLOWED, sandbox.post, name, mentions=[application, name, "by default"])
        self.assert_refused("org.carillon.Error.InvalidName", sandbox.post_on_channel, "")
        self.configure_policy(f"[Policy {application}]", f"post={self.name}")
        self.assertEqual(sandbox.post_on_channel(self.name), 1)
        self.configure_policy()
        self.assert_refused(NOT_ALLOWED, sandbox.post_on_channel, self.name)
        self.assertEqual(sandbox.post_on_channel(application), 1)
        self.assertEqual([each.poster for each in outside.settle(self.control)], [sandbox.unique_name] * 6)

    def test_monitor(self):
        """P2, B3: it monitors what it may observe, and nothing else."""
        application = carillon_interop.fresh_name("org.example.Boxed")
        sandbox = Sandbox(self, application)
        monitor = ("AddObserver", "(ssa{sv})")
        for name in ("", self.name, f"{application}Evil"):
            arguments = (name, "", {"monitor": True})
            self.assert_refused(NOT_ALLOWED, sandbox.call, *monitor, *arguments, mentions=[application])
        sandbox.call(*monitor, f"{application}.Ding", "", {"monitor": True})
        self.assertEqual(self.control.post(f"{application}.Ding"), 0)
        self.assertEqual(self.control.post(self.name), 0)
        self.assertEqual(sandbox.heard(), [f"{application}.Ding"])

    def test_details(self):
        """P1, P2: it is not told who posted, and asks for nobody but those of its own sandbox."""
        sandbox, own = Sandbox(self, "org.example.Boxed"), Sandbox(self, "org.example.Boxed")
        stranger = Sandbox(self, "org.example.Other")
        for each in (own, stranger):
            each.post(each is own and "org.example.Boxed" or "org.example.Other")
        self.control.post(self.name)
        options = ("SetClientOptions", "(a{sv})")
        for detail in ("uid", "pid", "process", "app", "unit", "host", "user"):
            self.assert_refused(
                NOT_ALLOWED, sandbox.call, *options, {"details": ["time", detail]}, mentions=["the identity of posters"]
            )
        sandbox.call(*options, {"details": ["retained", "time", "kept", "expiry"], "batches": True})
        no_owner = "org.freedesktop.DBus.Error.NameHasNoOwner"
        for name in (self.control.unique_name, stranger.unique_name, ":1.99999"):
            self.assert_refused(no_owner, sandbox.call, "GetClient", "(s)", name)
        for each in (sandbox, own):
            (known,) = sandbox.call("GetClient", "(s)", each.unique_name)
            self.assertEqual((known["name"], known["sandbox"]), (each.unique_name, "org.example.Boxed"))
        # From outside everybody is seen.
        (known,) = self.control.call("GetClient", GLib.Variant("(s)", (own.unique_name,))).unpack()
        self.assertEqual((known["app"], known["sandbox"], known["pid"]), (*["org.example.Boxed"] * 2, own.process.pid))

    def test_why(self):
        """P2, B3: it decides for nobody who is suspended, and is told of nobody else why something does not arrive."""
        sandbox = Sandbox(self, "org.example.Boxed")
        for state in ("suspended", "active", "none"):
            self.assert_refused(
                NOT_ALLOWED, sandbox.call, "OverrideSuspension", "(ss)", sandbox.unique_name, state,
                mentions=["override the suspension of clients"],
            )
        observer = self.client()
        observer.add_observer(self.name)
        sandbox.call("AddObserver", "(ssa{sv})", "org.example.Boxed.Ding", "", {})
        (reasons,) = sandbox.call("Explain", "(sss)", observer.unique_name, self.name, "")
        self.assertEqual(len(reasons), 1)
        self.assertIn("is not a client", reasons[0])
        (reasons,) = sandbox.call("Explain", "(sss)", sandbox.unique_name, "org.example.Boxed.Ding", "")
        self.assertTrue(reasons[0].endswith("would get 'org.example.Boxed.Ding' without an object now."), reasons)
        # Nor what others have queued of names that are not its own.
        queued = GLib.Variant("(ssa{sv}a{sv})", (self.name, "", {}, {"posting-style": GLib.Variant("s", "at-exit")}))
        self.control.call("Post", queued)
        explain = GLib.Variant("(sss)", (sandbox.unique_name, self.name, ""))
        (reasons,) = sandbox.call("Explain", "(sss)", sandbox.unique_name, self.name, "")
        self.assertFalse(any("in the queues of their posters" in reason for reason in reasons), reasons)
        reasons = self.control.call("Explain", explain).unpack()[0]
        self.assertTrue(any(reason.startswith("Policy: ") for reason in reasons), reasons)
        self.assertTrue(any("1 post of this name and object still waits " in reason for reason in reasons), reasons)
        self.control.call("OverrideSuspension", GLib.Variant("(ss)", (sandbox.unique_name, "suspended")))
        (reasons,) = sandbox.call("Explain", "(sss)", sandbox.unique_name, "org.example.Boxed.Ding", "")
        self.assertTrue(any("somebody suspended it for a test" in reason for reason in reasons), reasons)

    def test_others(self):
        """P2: it overrides nobody."""
        sandbox = Sandbox(self, "org.example.Boxed")
        other = self.client()
        observer = other.add_observer(self.name)
        self.assert_refused("org.carillon.Error.UnknownObserver", sandbox.call, "RemoveObserver", "(t)", observer)
        self.assertEqual(sandbox.call("RemoveObservers", "(ss)", "", ""), [0])
        self.assert_refused(NOT_ALLOWED, sandbox.call, "ReloadConfiguration", mentions=["configuration"])
        sandbox.call("SetSuspended", "(b)", True)
        self.assertEqual(self.control.post(self.name), 1)
        other.wait_for(1)

    def test_open_names_and_lists(self):
        """P3: the file opens names to all, and to one application; it is read again without a restart."""
        boxed, other = Sandbox(self, "org.example.Boxed"), Sandbox(self, "org.example.Other")
        self.configure_policy(
            "[Policy]",
            "open-names=org.example.Open.*",
            "[Policy org.example.Boxed]",
            f"observe={self.name}",
            "post=org.example.Posted",
        )
        for sandbox in (boxed, other):
            sandbox.observe("org.example.Open.Ding")
            self.assertEqual(sandbox.post("org.example.Open.Dong"), 0)
            self.assert_refused(NOT_ALLOWED, sandbox.observe, "org.example.Open")
        boxed.observe(self.name)
        boxed.post("org.example.Posted")
        rule = "[Policy org.example.Boxed]"
        self.assert_refused(NOT_ALLOWED, boxed.post, self.name, mentions=["post", rule])
        self.assert_refused(NOT_ALLOWED, boxed.observe, "org.example.Posted", mentions=["observe", rule])
        self.assert_refused(NOT_ALLOWED, other.observe, self.name)
        # Each is shown what concerns it, and the others everything.
        shown = self.control.property("Policy").unpack()
        self.assertEqual(shown["open-names"], ["org.example.Open.*"])
        self.assertEqual(set(shown["applications"]), {"org.example.Boxed"})
        self.assertEqual(shown["applications"]["org.example.Boxed"]["observe"], [self.name])
        asked = ("Get", "(ss)", INTERFACE, "Policy")
        self.assertEqual(set(boxed.call(*asked, interface=PROPERTIES)[0]["applications"]), {"org.example.Boxed"})
        self.assertEqual(other.call(*asked, interface=PROPERTIES)[0]["applications"], {})
        # That it changed is announced, and not what it is.
        self.assertEqual(self.settled_changes(), [(INTERFACE, {}, ["Policy"])])

    def test_tightening(self):
        """P3: what is no longer allowed ends at once, and its client is told; the rest stays."""
        sandbox = Sandbox(self, "org.example.Boxed")
        self.configure_policy("[Policy org.example.Boxed]", "observe=*")
        everything, own = sandbox.observe(""), sandbox.observe("org.example.Boxed.Ding")
        self.assertEqual(self.control.post(self.name), 1)
        self.write("[Policy org.example.Boxed]", "observ=")
        self.assert_refused(INVALID_CONFIGURATION, self.control.call, "ReloadConfiguration", mentions=[":2:", "observ"])
        self.assertEqual(self.control.post(self.name), 1)
        self.configure_policy("[Policy]")
        self.assertEqual(self.control.post(self.name), 0)
        self.assertEqual(sandbox.dropped(), [[0, [everything], "not-allowed"]])
        self.assertEqual(self.control.post("org.example.Boxed.Ding"), 1)
        self.assertEqual([each[0] for each in self.control.list_observers(sandbox.unique_name)], [own])


class Applications(PolicyTestCase):
    def test_mistakes(self):
        """P3: a mistake is told with its line, and the old policy stays."""
        self.configure_policy("[Policy]", "open-names=Ding")
        for lines, line, word in (
            (["[Policy]", "open-name=x"], 2, "open-name"),
            (["[Policy]", "open-names=x;y*"], 2, "y*"),
            (["[Policy]", "", "unidentified=perhaps"], 3, "perhaps"),
            (["[Policy org.example.App]", "retained=x"], 2, "retained"),
            (["[Policy *]", "post=x"], 2, "*"),
        ):
            with self.subTest(lines=lines):
                self.write(*lines)
                self.assert_refused(
                    INVALID_CONFIGURATION, self.control.call, "ReloadConfiguration", mentions=[f":{line}:", word]
                )
                self.assertEqual(self.control.property("Policy").unpack()["open-names"], ["Ding"])


class AtOnce(PolicyTestCase):
    """Callers that left before anybody knew who they were. The name is so that this runs before there are sandboxes."""

    def post_and_leave(self, name):
        """A post of a connection that is gone when the service finds it."""
        pid = self.control.service_pid()
        carillon_interop.stop(pid)
        try:
            client = Client()
            client.post_without_reply(name)
            client.call_bus("GetId")  # the bus has the post
            client.close()
            gone = client.unique_name
            wait_until(lambda: gone not in self.control.call_bus("ListNames"), "it is gone")
        finally:
            carillon_interop.go_on(pid)
        self.control.ping()

    def test_leaving_at_once(self):
        """P2: it counts as of the session while no sandbox could have called; the file has the last word."""
        observer = self.client()
        observer.add_observer(self.name)
        expected = 0
        for word, is_heard in (("auto", True), ("refuse", False), ("allow", True)):
            self.configure_policy("[Policy]", f"unidentified={word}")
            self.assertEqual(self.control.property("Policy").unpack()["unidentified-confined"], not is_heard)
            self.post_and_leave(self.name)
            expected += is_heard
            self.assertEqual(len(observer.settle(self.control)), expected, word)
        sandbox = Sandbox(self, "org.example.Boxed")
        sandbox.post("org.example.Boxed.Ding")
        self.configure_policy("[Policy]", "open-names=Open")
        self.assertTrue(self.control.property("Policy").unpack()["unidentified-confined"])
        self.post_and_leave(self.name)
        self.assertEqual(len(observer.settle(self.control)), expected)
        observer.add_observer("Open")
        self.post_and_leave("Open")
        self.assertEqual(len(observer.settle(self.control)), expected + 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["sandbox"]:
        sandbox_main(sys.argv[2])
    else:
        carillon_interop.main()

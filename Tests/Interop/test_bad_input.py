# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input of every kind gets the error of the contract, changes nothing, and never ends the service (E1, E2)."""

import os
import struct

import carillon_interop
from carillon_interop import (
    BUS_NAME,
    INTERFACE,
    INTROSPECTABLE,
    INVALID_ARGS,
    INVALID_NAME,
    INVALID_OPTION,
    INVALID_USER_INFO,
    LIMIT_EXCEEDED,
    OBJECT_PATH,
    PEER,
    PROPERTIES,
    UNKNOWN_INTERFACE,
    UNKNOWN_METHOD,
    UNKNOWN_OBJECT,
    Gio,
    GLib,
    Monitor,
    RawClient,
    Refused,
    data,
    fresh_name,
    marshalled,
    post_arguments,
)


def parse(text):
    """A value in GVariant text format."""
    return GLib.Variant.parse(None, text, None, None)


class TestCase(carillon_interop.TestCase):
    """After each test the service must still answer, with the same pid, and hold nothing of what it refused."""

    def setUp(self):
        super().setUp()
        self.observer = self.client()
        self.observer.add_observer()
        self.before = self.control.statistics()

    def tearDown(self):
        after = self.control.statistics()
        for key in ("observers", "clients", "posted", "delivered", "queued", "dropped"):
            self.assertEqual(after[key], self.before[key], f"a refused call changed {key}")
        self.assertEqual(self.control.post(self.name), 1)
        received = [(each.name, each.object) for each in self.observer.settle(self.control)]
        self.assertEqual(received, [(self.name, "")])
        super().tearDown()

    def assert_post_refused(self, error, name, object="", user_info=None, options=None, mentions=(), fds=None):
        arguments = post_arguments(name, object, user_info, options)
        return self.assert_refused(error, self.control.call, "Post", arguments, mentions=mentions, fds=fds)


class Calls(TestCase):
    def test_wrong_signature(self):
        wrong = {
            "Post": [
                None,
                "('name',)",
                "('name', '')",
                "('name', '', @a{sv} {})",
                "('name', '', @a{sv} {}, @a{sv} {}, '')",
                "('name', '', @a{sv} {}, @a{ss} {})",
                "('name', '', @a{ss} {}, @a{sv} {})",
                "('name', '', @a{us} {}, @a{sv} {})",
                "('name', '', @av [], @a{sv} {})",
                "('name', <''>, @a{sv} {}, @a{sv} {})",
                "(b'name', '', @a{sv} {}, @a{sv} {})",
                "(objectpath '/name', '', @a{sv} {}, @a{sv} {})",
                "(('name', '', @a{sv} {}, @a{sv} {}),)",
                "(<('name', '', @a{sv} {}, @a{sv} {})>,)",
            ],
            "AddObserver": [
                None,
                "('name',)",
                "('name', '')",
                "('name', '', @a{ss} {})",
                "('name', '', @a{sv} {}, 1)",
                "(1, 2, 3)",
            ],
            "RemoveObserver": [
                None,
                "(1,)",
                "(uint32 1,)",
                "('1',)",
                "(int64 1,)",
                "(uint64 1, uint64 2)",
                "([uint64 1],)",
            ],
            "RemoveObservers": [None, "('name',)", "('name', '', '')", "(uint64 1, '')"],
            "ListClients": ["('name',)", "(@a{sv} {},)"],
            "ListPosters": [None, "('name',)", "(1,)", "(uint64 1,)", "(uint32 1, uint32 1)"],
            "ListObservers": [None, "(uint32 1,)", "(':1.1', ':1.2')"],
        }
        for method, arguments_of_method in wrong.items():
            for arguments in arguments_of_method:
                with self.subTest(method=method, arguments=arguments):
                    value = arguments and parse(arguments)
                    self.assert_refused(INVALID_ARGS, self.control.call, method, value)

    def test_wrong_signature_of_standard_methods(self):
        for interface, method, arguments in (
            (PEER, "Ping", "(1,)"),
            (INTROSPECTABLE, "Introspect", "('/',)"),
            (PROPERTIES, "Get", None),
            (PROPERTIES, "Get", "('one',)"),
            (PROPERTIES, "GetAll", None),
            (PROPERTIES, "Set", f"('{INTERFACE}', 'Version', 'not in a variant')"),
        ):
            with self.subTest(method=method, arguments=arguments):
                value = arguments and parse(arguments)
                try:
                    self.control.call(method, value, interface=interface)
                except Refused as refused:
                    self.assertEqual(refused.name, INVALID_ARGS)
                else:
                    # libdbus answers a Ping itself, whatever is in it.
                    self.assertEqual(method, "Ping")

    def test_unknown_method(self):
        for interface in (INTERFACE, PROPERTIES, INTROSPECTABLE, PEER, None):
            for method in ("Ring", "post", "Post2"):
                with self.subTest(interface=interface, method=method):
                    self.assert_refused(UNKNOWN_METHOD, self.control.call, method, None, interface=interface)

    def test_signals_are_not_methods(self):
        self.assert_refused(UNKNOWN_METHOD, self.control.call, "Notification", parse("('name',)"))

    def test_unknown_interface(self):
        for interface in ("org.example.Other", INTERFACE + "2", INTERFACE[:-1]):
            with self.subTest(interface=interface):
                arguments = post_arguments(self.name)
                errors = (UNKNOWN_INTERFACE, UNKNOWN_METHOD)
                self.assert_refused(errors, self.control.call, "Post", arguments, interface=interface)

    def test_unknown_path(self):
        for path in ("/", "/org", "/org/carillon", "/org/carillon/Other", OBJECT_PATH + "/sub"):
            with self.subTest(path=path):
                arguments = post_arguments(self.name)
                errors = (UNKNOWN_OBJECT, UNKNOWN_METHOD, UNKNOWN_INTERFACE)
                self.assert_refused(errors, self.control.call, "Post", arguments, path=path)

    def test_signals_and_replies_to_the_service(self):
        """Messages that nobody asked for are ignored, also those that look like the service's own, or the bus's."""
        stranger = self.client()
        for name in ("Notification", "Dropped", "Post"):
            stranger.connection.emit_signal(BUS_NAME, OBJECT_PATH, INTERFACE, name, post_arguments(self.name))
        stranger.connection.emit_signal(
            BUS_NAME,
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus",
            "NameOwnerChanged",
            GLib.Variant("(sss)", (self.observer.unique_name, self.observer.unique_name, "")),
        )
        stranger.ping()

    def test_broadcast_forgeries(self):
        """Only the bus may say that a client left."""
        stranger = self.client()
        stranger.connection.emit_signal(
            None,
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus",
            "NameOwnerChanged",
            GLib.Variant("(sss)", (self.observer.unique_name, self.observer.unique_name, "")),
        )
        stranger.ping()


class Names(TestCase):
    def test_empty_name(self):
        self.assert_post_refused(INVALID_NAME, "")
        self.assert_post_refused(INVALID_NAME, "", "object", {"key": parse("1")})

    def test_too_long(self):
        limits = self.control.limits()
        name_length, object_length = limits["name-length"], limits["object-length"]
        self.assert_post_refused(LIMIT_EXCEEDED, "n" * (name_length + 1), mentions=["name-length", name_length])
        self.assert_post_refused(LIMIT_EXCEEDED, "n" * 10_000_000, mentions=["name-length", name_length])
        # The length counts bytes of UTF-8.
        self.assert_post_refused(LIMIT_EXCEEDED, "é" * (name_length // 2 + 1), mentions=["name-length", name_length])
        self.assert_post_refused(
            LIMIT_EXCEEDED, self.name, "o" * (object_length + 1), mentions=["object-length", object_length]
        )
        client = self.client()
        for name, object_, limit in (
            ("n" * (name_length + 1), "", "name-length"),
            ("", "o" * (object_length + 1), "object-length"),
        ):
            self.assert_refused(LIMIT_EXCEEDED, client.add_observer, name, object_, mentions=[limit, limits[limit]])
        self.assertNotIn(client.unique_name, self.control.list_clients())


class LongestNames(carillon_interop.TestCase):
    def test_as_long_as_allowed(self):
        limits = self.control.limits()
        name, object_ = "n" * limits["name-length"], "o" * limits["object-length"]
        self.control.add_observer(name, object_)
        self.assertEqual(self.control.post(name, object_), 1)
        (notification,) = self.control.wait_for(1)
        self.assertEqual((notification.name, notification.object), (name, object_))


class Options(TestCase):
    def assert_options_refused(self, method, options, *mentions):
        if method == "Post":
            arguments = post_arguments(self.name, options=options)
        else:
            arguments = GLib.Variant("(ssa{sv})", (self.name, "", options))
        self.assert_refused(INVALID_OPTION, self.control.call, method, arguments, mentions=mentions)

    def test_unknown_key(self):
        for method, known in (
            ("Post", {"deliver-immediately": parse("true")}),
            ("AddObserver", {"suspension-behavior": parse("'hold'")}),
        ):
            for key in ("deliver-imediately", "suspension-behaviour", "Deliver-Immediately", "", " ", "🔔"):
                with self.subTest(method=method, key=key):
                    self.assert_options_refused(method, {key: parse("true")}, key)
                    self.assert_options_refused(method, {**known, key: parse("true")}, key)
        self.assert_options_refused("Post", {"suspension-behavior": parse("'hold'")}, "suspension-behavior")
        self.assert_options_refused("AddObserver", {"deliver-immediately": parse("true")}, "deliver-immediately")

    def test_wrong_type(self):
        for method, key, values in (
            ("Post", "deliver-immediately", ("1", "'true'", "uint32 1", "byte 1", "<true>", "[true]", "@ab []")),
            ("Post", "posting-style", ("1", "true", "<'now'>", "['now']", "b'now'", "objectpath '/now'")),
            ("Post", "coalesce-on", ("'name'", "[<'name'>]", "@av []", "[1]", "[b'name']", "true")),
            ("AddObserver", "suspension-behavior", ("1", "true", "<'hold'>", "['hold']", "signature 's'")),
            ("AddObserver", "automatic-suspension", ("1", "'false'", "<false>", "byte 0")),
            ("AddObserver", "run-loop-mode", ("0", "['default']", "<'default'>", "@as []")),
            ("AddObserver", "monitor", ("1", "'true'", "<true>", "byte 1")),
        ):
            for value in values:
                with self.subTest(key=key, value=value):
                    self.assert_options_refused(method, {key: parse(value)}, key)

    def test_value_that_is_not_allowed(self):
        for method, key, values in (
            ("Post", "posting-style", ("later", "", "Now", "when idle", "whenIdle")),
            ("AddObserver", "suspension-behavior", ("keep", "", "Hold", "deliverImmediately", "holdhold")),
            ("AddObserver", "run-loop-mode", ("common", "", "Default", "modalPanel", "org.example.mode")),
        ):
            for value in values:
                with self.subTest(key=key, value=value):
                    self.assert_options_refused(method, {key: GLib.Variant("s", value)}, key)
        for parts in (["sender"], [""], ["name", "object", "userInfo"], ["Name"]):
            with self.subTest(parts=parts):
                self.assert_options_refused("Post", {"coalesce-on": GLib.Variant("as", parts)}, "coalesce-on")

    def test_file_descriptor_in_an_option(self):
        with open("/dev/null", "rb") as null:
            fds = Gio.UnixFDList.new()
            options = {"deliver-immediately": GLib.Variant("h", fds.append(null.fileno()))}
            self.assert_post_refused(INVALID_OPTION, self.name, options=options, fds=fds)


class UserInfo(TestCase):
    """N3"""

    #: Types that are no property-list values.
    bad_values = [
        "objectpath '/org/example'",
        "signature 'a{sv}'",
        "('text',)",
        "(1,)",
        "(uint64 1,)",
        "(int64 1, int64 2)",
        "(int64 1, 'text')",
        "((int64 1,),)",
        "([int64 1],)",
        "@a{us} {}",
        "{uint32 1: 'text'}",
        "{int64 1: <'text'>}",
        "@a{yv} {}",
        "@a{dv} {}",
        "@a{bv} {}",
        "@a{ov} {}",
        "@a{gv} {}",
        # Nothing is in them, but their type is no type of a property list.
        "@ao []",
        "@ag []",
        "@ah []",
        "@a(s) []",
        "@a(xx) []",
        "@a(xs) []",
        "@a((x)) []",
        "@aa{us} []",
        "@aaao []",
        "@a{so} {}",
        "@a{sa{us}} {}",
        "@a{s(xx)} {}",
        "@a{saao} {}",
        # Deeper.
        "[objectpath '/one', '/two']",
        "[<['text']>, <[signature 's']>]",
        "{'key': objectpath '/'}",
        "{'key': <{uint32 1: 'text'}>}",
        "<<objectpath '/'>>",
        "<@a{us} {}>",
        "[<@a{us} {}>]",
        "{'key': [<{'key': <@ao []>}>]}",
    ]

    def test_what_is_no_property_list(self):
        for text in self.bad_values:
            with self.subTest(text):
                bad = parse(text)
                self.assert_post_refused(INVALID_USER_INFO, self.name, "", {"first": bad}, mentions=["first"])
                # Behind good values, and deep inside: the path of keys and indexes leads to it.
                inner = GLib.Variant("av", [parse("1"), bad])
                nested = {"good": parse("1"), "outer": GLib.Variant("a{sv}", {"inner": inner})}
                mentions = ["outer", "inner", "[1]"]
                self.assert_post_refused(INVALID_USER_INFO, self.name, "", nested, mentions=mentions)

    def test_file_descriptors(self):
        pid = self.control.service_pid()

        def open_files():
            self.control.ping()
            return len(os.listdir(f"/proc/{pid}/fd"))

        before = open_files()
        with open("/dev/null", "rb") as null:
            for text, what in (
                ("handle 0", "alone"),
                ("[handle 0]", "in an array"),
                ("<handle 0>", "in a variant"),
                ("{'key': <handle 0>}", "in a dictionary"),
                ("(handle 0,)", "in a structure"),
            ):
                with self.subTest(what):
                    for _ in range(10):
                        fds = Gio.UnixFDList.new()
                        fds.append(null.fileno())
                        user_info = {"good": parse("1"), "file": parse(text)}
                        self.assert_post_refused(
                            INVALID_USER_INFO, self.name, "", user_info, mentions=["file"], fds=fds
                        )
        self.assertEqual(open_files(), before, "the service keeps descriptors open")

    def test_keys_with_punctuation(self):
        """The path stays readable, and the message a message, whatever the keys are."""
        for key in ("", "a.b", "a[0]", "é", "\n", "%s%n", "x" * 1000):
            with self.subTest(key=key):
                self.assert_post_refused(INVALID_USER_INFO, self.name, "", {key: parse("objectpath '/'")})

    def test_a_bad_value_without_any_observer(self):
        """Refused when posting, not when delivering."""
        self.observer.remove_observers()
        try:
            self.assert_post_refused(INVALID_USER_INFO, self.name, "", {"first": parse("objectpath '/'")})
        finally:
            self.observer.add_observer()


def nested_arrays(levels):
    """`levels` arrays in each other, in variants where a signature would become too deep."""
    value = parse("'bottom'")
    for level in range(1, levels + 1):
        value = GLib.Variant.new_array(value.get_type(), [value])
        if level % 16 == 0:
            value = GLib.Variant("v", value)
    return value


def nested_dictionaries(levels):
    value = parse("'bottom'")
    for _ in range(levels):
        value = GLib.Variant("a{sv}", {"d": value})
    return value


class Depth(TestCase):
    """E1: the userInfo itself is the first level, and variants do not count."""

    def test_too_deep(self):
        depth = self.control.limits()["user-info-depth"]
        mentions = ["user-info-depth", depth]
        for levels in (depth, depth + 1, 30):
            if levels < depth:
                continue
            with self.subTest(levels=levels):
                self.assert_post_refused(
                    LIMIT_EXCEEDED, self.name, "", {"deep": nested_arrays(levels)}, mentions=mentions
                )
        # In a variant and a dictionary entry each, D-Bus itself allows 64.
        for levels in (depth, 20):
            with self.subTest(levels=levels):
                self.assert_post_refused(
                    LIMIT_EXCEEDED, self.name, "", {"deep": nested_dictionaries(levels)}, mentions=mentions
                )

    def test_too_deep_without_content(self):
        """The type of an empty array is as deep as if something were in it."""
        depth = self.control.limits()["user-info-depth"]
        empty = GLib.Variant.parse(GLib.VariantType("a" * depth + "s"), "[]", None, None)
        try:
            self.control.post(self.name + ".Empty", "", {"deep": empty})
        except Refused as refused:
            self.assertEqual(refused.name, LIMIT_EXCEEDED)
        else:
            # Whether the depth of a type counts where there is no value of it is left open: it is harmless.
            self.before = self.control.statistics()
            self.observer.notifications.clear()
            self.observer.settle(self.control)
            self.before = self.control.statistics()
            self.observer.notifications.clear()


class DeepestAndLargest(carillon_interop.TestCase):
    def test_as_deep_as_allowed(self):
        depth = self.control.limits()["user-info-depth"]
        self.control.add_observer(self.name)
        for count, value in enumerate((nested_arrays(depth - 1), nested_dictionaries(depth - 1)), start=1):
            self.assertEqual(self.control.post(self.name, "", {"deep": value}), 1)
            received = self.control.wait_for(count)[-1].user_info
            self.assertTrue(received.equal(GLib.Variant("a{sv}", {"deep": value})))

    def test_nearly_as_large_as_allowed(self):
        size = self.control.limits()["user-info-bytes"]
        self.control.add_observer(self.name)
        self.assertEqual(self.control.post(self.name, "", {"large": data(size - 64)}), 1)
        value = self.control.wait_for(1)[0].user_info.lookup_value("large", GLib.VariantType("ay"))
        self.assertEqual(value.get_size(), size - 64)


class Size(TestCase):
    def test_too_large(self):
        size = self.control.limits()["user-info-bytes"]
        mentions = ["user-info-bytes", size]
        self.assert_post_refused(LIMIT_EXCEEDED, self.name, "", {"large": data(size)}, mentions=mentions)
        text = GLib.Variant("s", "x" * size)
        self.assert_post_refused(LIMIT_EXCEEDED, self.name, "", {"large": text}, mentions=mentions)
        many = {f"key {index}": GLib.Variant("s", "x" * 1000) for index in range(size // 1000)}
        self.assert_post_refused(LIMIT_EXCEEDED, self.name, "", many, mentions=mentions)

    def test_64_mebibytes(self):
        """As much as one array may hold in D-Bus, so that it comes near what one message may be."""
        limits = self.control.limits()
        huge = data(64 * 2**20 - 1024)
        for _ in range(3):
            client = self.client()
            try:
                client.call("Post", post_arguments(self.name, "", {"huge": huge}))
            except Refused as refused:
                self.assertEqual(refused.name, LIMIT_EXCEEDED)
                self.assertIn("user-info-bytes", refused.message)
                self.assertIn(str(limits["user-info-bytes"]), refused.message)
            else:
                self.fail("accepted")
            client.close()

    def test_huge_arguments_elsewhere(self):
        text = "x" * (32 * 2**20)
        self.assert_post_refused(LIMIT_EXCEEDED, text, mentions=["name-length"])
        self.assert_post_refused(LIMIT_EXCEEDED, self.name, text, mentions=["object-length"])
        self.assert_post_refused(INVALID_OPTION, self.name, "", {}, {text: parse("1")})
        self.assert_post_refused(INVALID_OPTION, self.name, "", {}, {"posting-style": GLib.Variant("s", text)})
        self.assert_refused(LIMIT_EXCEEDED, self.control.add_observer, text, mentions=["name-length"])
        self.assertEqual(self.control.list_observers(text), [])
        self.assertEqual(self.control.remove_observers(text), 0)
        self.assert_refused(UNKNOWN_METHOD, self.control.call, "X" * 255)


class Malformed(carillon_interop.TestCase):
    """Messages that break the rules of D-Bus itself. Most are stopped by the bus; none may end the service."""

    def assert_survives(self, client, message):
        """Sends bytes, and returns a client for the next ones."""
        connected = client.send(message)
        self.control.ping()
        if connected:
            return client
        client.close()
        return RawClient()

    def test_every_byte_of_a_body(self):
        message = Gio.DBusMessage.new_method_call(BUS_NAME, OBJECT_PATH, INTERFACE, "Post")
        values = (
            "true", "'text'", "objectpath '/a'", "signature 'as'", "@ay [1]", "[true]", "[['x']]", "<[<(int64 1,)>]>",
            "{'k': <[1.5]>}",
        )  # fmt: skip
        user_info = {str(index): parse(value) for index, value in enumerate(values)}
        message.set_body(post_arguments(self.name, "", user_info))
        octets = marshalled(message)
        start = len(octets) - struct.unpack_from("=I", octets, 4)[0]
        client = RawClient()
        for position in range(start, len(octets)):
            for change in (0x01, 0x80, 0xFF):
                changed = bytearray(octets)
                changed[position] ^= change
                client = self.assert_survives(client, changed)
        client.close()
        self.assertEqual(self.control.service_pid(), self._service_pid)

    def test_deeply_nested_variants(self):
        message = Gio.DBusMessage.new_method_call(BUS_NAME, OBJECT_PATH, INTERFACE, "Post")
        message.set_body(parse("(<byte 5>,)"))
        octets = marshalled(message)
        header = octets[: len(octets) - struct.unpack_from("=I", octets, 4)[0]]
        client = RawClient()
        for levels in (2, 30, *range(60, 70), 128, 255, 10_000):
            body = b"\x01v\0" * (levels - 1) + b"\x01y\0\x05"
            message = header[:4] + struct.pack("=I", len(body)) + header[8:] + body
            client = self.assert_survives(client, message)
        client.close()


class WithoutReply(TestCase):
    """D3: fire and forget gets no reply and loses no error."""

    def test_refused_posts_are_counted(self):
        monitor = Monitor()
        self.addCleanup(monitor.close)
        poster = self.client()
        limits = self.control.limits()
        bad = [
            post_arguments(""),
            post_arguments("n" * (limits["name-length"] + 1)),
            post_arguments(self.name, user_info={"file": parse("objectpath '/'")}),
            post_arguments(self.name, user_info={"large": data(limits["user-info-bytes"])}),
            post_arguments(self.name, options={"unknown": parse("true")}),
            parse("('name', '')"),
            None,
        ]
        serials = [poster.send("Post", arguments) for arguments in bad]
        poster.ping()
        after = self.control.statistics()
        self.assertIn("refused", after, "Statistics has no count of refused posts")
        self.assertEqual(after["refused"] - self.before.get("refused", 0), len(bad))
        marker = poster.send("Post", None)
        poster.ping()
        monitor.wait_for_call(poster.unique_name, marker)
        for serial in serials:
            self.assertEqual(monitor.replies_to(poster.unique_name, serial), [], "a reply that nobody wants")

    def test_other_refused_calls_get_no_reply(self):
        monitor = Monitor()
        self.addCleanup(monitor.close)
        caller = self.client()
        serials = [
            caller.send("RemoveObserver", parse("(uint64 0,)")),
            caller.send("AddObserver", parse("('name', '', {'unknown': <1>})")),
            caller.send("AddObserver", None),
            caller.send("NoSuchMethod", None),
            caller.send("Post", None, interface="org.example.Other"),
            caller.send("Post", None, path="/nowhere"),
            caller.send("Set", parse(f"('{INTERFACE}', 'Version', <1>)"), interface=PROPERTIES),
        ]
        caller.ping()
        marker = caller.send("NoSuchMethod", None)
        caller.ping()
        monitor.wait_for_call(caller.unique_name, marker)
        for serial in serials:
            self.assertEqual(monitor.replies_to(caller.unique_name, serial), [], "a reply that nobody wants")

    def test_descriptors_that_nothing_means(self):
        # E4: they would count against the service's own limit, so they are refused, and closed at once.
        pid = self.control.service_pid()
        before = len(os.listdir(f"/proc/{pid}/fd"))
        poster = self.client()
        calls = [
            ("Post", post_arguments(self.name)),
            ("AddObserver", GLib.Variant("(ssa{sv})", (self.name, "", {}))),
            ("ListClients", None),
            ("ListPosters", GLib.Variant("(u)", (10,))),
            ("SetSuspended", GLib.Variant("(b)", (True,))),
        ]
        with open("/dev/null", "rb") as null:

            def descriptors():
                fds = Gio.UnixFDList.new()
                for _ in range(16):
                    fds.append(null.fileno())
                return fds

            for method, arguments in calls:
                self.assert_refused(
                    INVALID_ARGS, poster.call, method, arguments, mentions=["descriptors"], fds=descriptors()
                )
            # Also those of calls that nobody waits for, however many there are.
            for _ in range(100):
                for _ in range(3):
                    poster.send("Post", post_arguments(self.name), fds=descriptors())
                # A bus bounds how many are on their way.
                poster.ping()
        self.assertEqual(len(os.listdir(f"/proc/{pid}/fd")), before, "the service keeps descriptors open")

    def test_many_refused_posts(self):
        poster = self.client()
        for _ in range(2000):
            poster.send("Post", post_arguments(""))
        poster.ping()
        self.assertEqual(self.control.statistics()["refused"] - self.before.get("refused", 0), 2000)


class Bounds(TestCase):
    def test_too_many_observers_of_one_client(self):
        limit = self.control.limits()["observers-per-client"]
        client = self.client()
        name = fresh_name()
        # All but the last without waiting for each reply.
        for _ in range(limit):
            client.send("AddObserver", GLib.Variant("(ssa{sv})", (name, "", {})))
        client.ping()
        self.assertEqual(self.control.statistics()["observers"] - self.before["observers"], limit)
        self.assert_refused(LIMIT_EXCEEDED, client.add_observer, name, mentions=["observers-per-client", limit])
        # Others are not affected, and room that is made can be used.
        other = self.client()
        other.add_observer(name)
        observers = client.list_observers(client.unique_name)
        self.assertEqual(len(observers), limit)
        client.remove_observer(observers[0][0])
        client.add_observer(name)
        self.assertEqual(client.remove_observers(name), limit)
        other.remove_observers()
        # Clients without observers may still be known.
        self.before["clients"] = self.control.statistics()["clients"]


if __name__ == "__main__":
    carillon_interop.main()

# SPDX-FileCopyrightText: The Carillon authors
# SPDX-License-Identifier: Apache-2.0
"""Posting styles, coalescing and run-loop modes of the service, as programs see them.

Load is made by stopping the service, posting, waiting until the bus has passed all of it on, and letting the service go
on: then everything lies before it at once, as far as its socket holds it, which is BURST messages and more. Idle is what
the service is when nothing came for a moment, and a poster, or a bus, that has to wait for a processor makes such moments.
So tests of what comes before idleness and what after have all that they send lie before the service.
"""

import contextlib

import carillon_interop
import test_dbus_python
import test_suspension
from carillon_interop import BURST, INVALID_OPTION, LIMIT_EXCEEDED, GLib, Monitor, dbus, go_on, stop, wait_until

MODES = ("default", "modal-panel", "event-tracking")


def options(style=None, coalesce_on=None, immediately=None, mode=None):
    """Options of Post and AddObserver, as GLib.Variants."""
    values = {}
    if style:
        values["posting-style"] = GLib.Variant("s", style)
    if coalesce_on is not None:
        values["coalesce-on"] = GLib.Variant("as", coalesce_on)
    if immediately:
        values["deliver-immediately"] = GLib.Variant("b", True)
    if mode:
        values["run-loop-mode"] = GLib.Variant("s", mode)
    return values


def pass_on(client):
    """Waits until the bus has written what the client sent to those for whom it is, as far as their sockets hold it.

    A bus that answers has read what came before. dbus-daemon has then written it; dbus-broker writes 16 messages to each
    receiver in a turn of its loop, and there is at least one turn for each answer."""
    for _ in range(2 + BURST // 16):
        client.call_bus("GetNameOwner", carillon_interop.BUS_NAME)


class TestCase(carillon_interop.TestCase):
    @contextlib.contextmanager
    def load(self, *posters):
        """What the posters send in the body lies before the service at once when the body ends: BURST messages of it
        in its socket, and the rest in the bus."""
        stop(self._service_pid)
        try:
            yield
            for poster in posters:
                pass_on(poster)
        finally:
            go_on(self._service_pid)

    def assert_order_kept(self, client, notifications):
        """D4 within what is given, and D6 over all that the client got."""
        serials = [each.serial for each in notifications]
        self.assertEqual(serials, sorted(set(serials)))
        sequences = [each.sequence for each in client.notifications]
        self.assertEqual(sequences, list(range(1, len(sequences) + 1)))


class Modes(TestCase):
    """M6."""

    def test_the_urgent_overtakes_under_load(self):
        """M6, D4, D6: immediate, event tracking and modal panel before what is left of default, each in its order."""
        client, poster = self.client(), self.client()
        names = {mode: f"{self.name}.{mode.replace('-', '_')}" for mode in MODES}
        for mode in MODES:
            client.add_observer(names[mode], "", options(mode=mode))
        count = 90
        with self.load(poster):
            for index in range(count):
                poster.post_without_reply(names["default"], str(index))
            for index in range(5):
                poster.post_without_reply(names["modal-panel"], str(index))
                poster.post_without_reply(names["event-tracking"], str(index))
            poster.post_without_reply(names["default"], "immediately", None, options(immediately=True))
        got = client.wait_for(count + 11)
        place = {(each.name, each.object): index for index, each in enumerate(got)}
        first_default = place[names["default"], "0"]
        last_default = place[names["default"], str(count - 1)]
        for urgent in ((names["event-tracking"], "4"), (names["modal-panel"], "4"), (names["default"], "immediately")):
            self.assertLess(place[urgent], last_default - count // 3, f"{urgent}; default begins at {first_default}")
        for mode in MODES:
            mine = [each for each in got if each.name == names[mode] and each.object != "immediately"]
            self.assertEqual([each.object for each in mine], [str(index) for index in range(len(mine))])
            self.assert_order_kept(client, mine)

    def test_a_large_burst_keeps_the_order_of_each_mode(self):
        """M6, D4, D6: also beyond what may be staged, and with windows that close."""
        client, poster = self.client(), self.client()
        for mode in MODES:
            client.add_observer(f"{self.name}.{mode.replace('-', '_')}", "", options(mode=mode))
        names = [f"{self.name}.{mode.replace('-', '_')}" for mode in MODES]
        count = 5000
        with self.load(poster):
            for index in range(count):
                poster.post_without_reply(names[index % 7 % 3], str(index))
        got = client.wait_for(count)
        self.assertEqual(sorted(int(each.object) for each in got), list(range(count)))
        for name in names:
            self.assert_order_kept(client, [each for each in got if each.name == name])

    def test_one_clients_burst_does_not_delay_what_is_urgent_to_another(self):
        """M6, D4: on the bus, the urgent stands before what was posted earlier; the default ones keep one order."""
        ordinary, second, urgent, poster = (self.client() for _ in range(4))
        ordinary.add_observer(self.name)
        second.add_observer(self.name)
        urgent.add_observer(self.name + ".urgent", "", options(mode="event-tracking"))
        monitor = Monitor()
        self.addCleanup(monitor.close)
        with self.load(poster):
            for _ in range(100):
                poster.post_without_reply(self.name)
            poster.post_without_reply(self.name + ".urgent")

        def sent():
            return [each for each in monitor.messages if each.get_member() == "Notification"]

        wait_until(lambda: len(sent()) == 201, lambda: f"201 signals; there are {len(sent())}")
        receivers = [each.get_destination() for each in sent()]
        self.assertLess(receivers.index(urgent.unique_name), 100)
        serials = [
            int(each.get_args_list()[5]) for each in sent() if each.get_destination() != urgent.unique_name
        ]
        self.assertEqual(serials, [serials[0] + index // 2 for index in range(200)])

    def test_a_flood_that_nobody_observes_holds_up_nothing(self):
        """M6, D3: reading comes before the default mode, and does not starve it."""
        client, poster = self.client(), self.client()
        client.add_observer(self.name)
        monitor = Monitor()
        self.addCleanup(monitor.close)
        with self.load(poster):
            poster.post_without_reply(self.name)
            message = None
            for _ in range(400):
                message = carillon_interop.Gio.DBusMessage.new_method_call(
                    carillon_interop.BUS_NAME, carillon_interop.OBJECT_PATH, carillon_interop.INTERFACE, "Post"
                )
                message.set_body(carillon_interop.post_arguments(self.name + ".nobody"))
                poster.connection.send_message(message, carillon_interop.Gio.DBusSendMessageFlags.NONE)
        wait_until(lambda: monitor.replies_to(poster.unique_name, message.get_serial()), "the last answer")

        def kinds():
            return [
                each.get_member()
                for each in monitor.messages
                if each.get_destination() == poster.unique_name or each.get_member() == "Notification"
            ]

        wait_until(lambda: "Notification" in kinds(), "the monitor sees the notification")
        self.assertLess(kinds().index("Notification"), 200)

    def test_the_most_urgent_mode_carries_it_once(self):
        """D6, M6: observers in several modes are one delivery."""
        client, poster = self.client(), self.client()
        observers = [client.add_observer(self.name, "", options(mode=mode)) for mode in MODES]
        poster.post_without_reply(self.name)
        self.assertEqual([each.observers for each in client.settle(poster)], [observers])

    def test_suspension_overtakes(self):
        """M6, S2: control comes first, and what was posted before is not lost."""
        client, poster = test_suspension.GDBusClient(), self.client()
        self.addCleanup(client.close)
        client.observe(self.name, "", "hold")
        with self.load(client, poster):
            for index in range(100):
                poster.post_without_reply(self.name, str(index))
            pass_on(poster)
            client.send("SetSuspended", GLib.Variant("(b)", (True,)))
        client.wait_for(100)
        events = client.settle_signals()
        self.assertLess(events.index(("suspended", True, "explicit")), 100)
        self.assertEqual([each.object for each in client.notifications], [str(index) for index in range(100)])
        poster.post(self.name, "held")
        self.assertEqual(len(client.settle_signals()), 101)
        client.set_suspended(False)
        client.wait_for(101)

    def test_replies_come_behind_what_was_posted_before(self):
        """A caller that got an answer knows that what was accepted before is on its way to it."""
        client = self.client()
        client.add_observer(self.name)
        for index in range(200):
            client.post_without_reply(self.name, str(index))
        client.ping()
        client.wait_for(200)
        for index in range(20):
            client.post(self.name, str(index))
            client.ping()
            self.assertEqual(client.wait_for(201 + index)[-1].object, str(index))


class Styles(TestCase):
    """Q7."""

    def test_a_burst_of_coalesced_reports_is_one(self):
        """Q7: one connection, fire and forget. A thousand are one in the core's own tests."""
        client, poster = self.client(), self.client()
        client.add_observer(self.name)
        with self.load(poster):
            for index in range(BURST):
                poster.post_without_reply(
                    self.name, "", {"index": GLib.Variant("i", index)}, options("when-idle", ["name"])
                )
        self.assertEqual(client.wait_for(1)[0].user_info.unpack(), {"index": BURST - 1})
        # There is nothing left that could still come.
        poster.ping()
        self.assertEqual(self.control.statistics()["queued-posts"], 0)
        self.assertEqual(len(client.settle(poster)), 1)

    def test_a_thousand_coalesced_reports(self):
        """Q7, D4: however often the service is idle in between, none is lost, each is newer, and the last arrives."""
        client, poster = self.client(), self.client()
        client.add_observer(self.name)
        before = self.control.statistics()["coalesced"]
        for index in range(1000):
            poster.post_without_reply(
                self.name, "", {"index": GLib.Variant("i", index)}, options("when-idle", ["name"])
            )

        def indexes():
            return [each.user_info.unpack()["index"] for each in client.notifications]

        wait_until(lambda: indexes()[-1:] == [999], lambda: f"the last of a thousand; it got {indexes()}")
        self.assertEqual(indexes(), sorted(set(indexes())))
        self.assertEqual(len(indexes()) + self.control.statistics()["coalesced"] - before, 1000)
        self.assertEqual(self.control.statistics()["queued-posts"], 0)

    def test_the_same_from_dbus_python(self):
        """Q7: a burst in any language."""
        client = self.client()
        client.add_observer(self.name)
        poster = test_dbus_python.Client()
        self.addCleanup(poster.close)
        values = {
            "posting-style": dbus.String("when-idle", variant_level=1),
            "coalesce-on": dbus.Array(["name", "object"], signature="s", variant_level=1),
        }
        with self.load(poster):
            for index in range(BURST):
                message = dbus.lowlevel.MethodCallMessage(
                    carillon_interop.BUS_NAME, carillon_interop.OBJECT_PATH, carillon_interop.INTERFACE, "Post"
                )
                message.set_no_reply(True)
                user_info = dbus.Dictionary({"index": dbus.Int32(index)}, signature="sv")
                message.append(self.name, str(index % 2), user_info, values, signature="ssa{sv}a{sv}")
                poster.connection.send_message(message)
        got = client.wait_for(2)
        self.assertEqual([each.user_info.unpack()["index"] for each in got], [BURST - 2, BURST - 1])
        self.assertEqual(self.control.statistics()["queued-posts"], 0)

    def test_the_order_of_styles(self):
        """Q2, D4: now, then asap, then when idle; in each the order of the poster."""
        client, poster = self.client(), self.client()
        client.add_observer(self.name)
        orders = []
        # If a busy machine takes the processor away from the service while it executes the calls, its slice ends, and
        # asap posts go before the rest of the calls.
        for attempt in range(5):
            with self.load(poster):
                for index, style in enumerate(["when-idle", "asap", "now", "when-idle", "asap", "now"]):
                    poster.post_without_reply(self.name, str(index), None, options(style))
            got = client.wait_for(6 * (attempt + 1))[-6:]
            orders.append([each.object for each in got])
            for style in (["2", "5"], ["1", "4"], ["0", "3"]):
                self.assertEqual([number for number in orders[-1] if number in style], style)
            self.assertEqual(orders[-1][-2:], ["0", "3"], "what is left for idle comes last")
            self.assert_order_kept(client, client.notifications)
            if orders[-1] == ["2", "5", "1", "4", "0", "3"]:
                return
        self.fail(f"never in the order of the styles: {orders}")

    def test_when_idle_comes_after_everything_else(self):
        """Q2, M6."""
        client, poster = self.client(), self.client()
        client.add_observer(self.name)
        with self.load(poster):
            poster.post_without_reply(self.name, "idle", None, options("when-idle"))
            for index in range(BURST - 1):
                poster.post_without_reply(self.name, str(index))
        self.assertEqual(client.wait_for(BURST)[-1].object, "idle")

    def test_a_queued_post_has_no_receivers_yet(self):
        """Q7: the reply says 0; who matches counts when it is posted."""
        client, poster = self.client(), self.client()
        for style in ("asap", "when-idle"):
            self.assertEqual(poster.post(self.name, style, None, options(style)), 0)
        with self.load(client):
            poster.post_without_reply(self.name, "late", None, options("when-idle"))
            pass_on(poster)
            client.send("AddObserver", GLib.Variant("(ssa{sv})", (self.name, "late", {})))
        self.assertEqual(client.wait_for(1)[0].object, "late")
        self.assertEqual(client.notifications[0].poster, poster.unique_name)

    def test_what_coalesces_with_what(self):
        """Q3: all parts of the mask; none without one; among the posts of one poster."""
        client, poster, other = self.client(), self.client(), self.client()
        client.add_observer(self.name)
        expected = {
            (): ["a 0", "b 1", "a 2"],
            ("name",): ["a 2"],
            ("object",): ["b 1", "a 2"],
            ("name", "object"): ["b 1", "a 2"],
        }
        for mask, result in expected.items():
            before = len(client.notifications)
            with self.load(poster, other):
                other.post_without_reply(self.name, "b other", None, options("asap"))
                pass_on(other)
                for index, object_ in enumerate("aba"):
                    poster.post_without_reply(
                        self.name, object_, {"text": GLib.Variant("s", f"{object_} {index}")}, options("asap", mask)
                    )
            got = client.wait_for(before + 1 + len(result))[before:]
            mine = [each for each in got if each.poster == poster.unique_name]
            self.assertEqual([each.user_info.unpack()["text"] for each in mine], result, mask)
            self.assertEqual(len(client.settle(poster)), before + 1 + len(result))
            client.notifications[:] = [each for each in client.notifications if each.name == self.name]

    def test_now_takes_the_place_of_what_is_queued(self):
        """Q2: coalesced, and posted before the call returns."""
        client, poster = self.client(), self.client()
        client.add_observer(self.name)
        with self.load(poster):
            poster.post_without_reply(self.name, "queued", None, options("when-idle"))
            poster.post_without_reply(self.name, "now", None, options("now", ["name"]))
        client.wait_for(1)
        self.assertEqual(self.control.statistics()["queued-posts"], 0)
        self.assertEqual([each.object for each in client.settle(poster)], ["now"])

    def test_a_poster_that_leaves(self):
        """Q7: what was accepted is posted."""
        client, poster = self.client(), self.client()
        client.add_observer(self.name)
        with self.load():
            for style in ("when-idle", "asap"):
                poster.post_without_reply(self.name, style, None, options(style))
            pass_on(poster)
            poster.close()
            # The bus sees the end of a connection that closed before it sees this.
            pass_on(self.control)
        self.assertEqual([each.object for each in client.wait_for(2)], ["asap", "when-idle"])
        self.assertEqual({each.poster for each in client.notifications}, {poster.unique_name})

    def test_wrong_options(self):
        for wrong in (
            {"posting-style": GLib.Variant("s", "later")},
            {"posting-style": GLib.Variant("b", True)},
            {"coalesce-on": GLib.Variant("as", ["sender"])},
            {"coalesce-on": GLib.Variant("s", "name")},
        ):
            self.assert_refused(INVALID_OPTION, self.control.post, self.name, "", None, wrong, mentions=wrong)


class Limits(test_suspension.ConfigurationTestCase, TestCase):
    """E1."""

    def test_queued_posts(self):
        self.configure(queued_posts_per_client=3, queued_post_bytes_per_client=20_000, queued_post_bytes=30_000)
        client = self.client()
        client.add_observer(self.name)
        before = self.control.statistics()["refused"]
        with self.load(self.control):
            for index in range(4):
                self.control.post_without_reply(self.name, str(index), None, options("when-idle"))
            self.control.post_without_reply(self.name, "2", None, options("when-idle", ["object"]))
        self.assertEqual([each.object for each in client.wait_for(3)], ["0", "1", "2"])
        self.assertEqual(self.control.statistics()["refused"], before + 1, "the fourth, and none else")
        large = {"data": carillon_interop.data(25_000)}
        self.assert_refused(
            LIMIT_EXCEEDED, self.control.post, self.name, "", large, options("asap"),
            mentions=["queued-post-bytes-per-client", 20_000],
        )
        self.control.post(self.name, "large", large)
        self.assertEqual(client.wait_for(4)[-1].object, "large")


if __name__ == "__main__":
    carillon_interop.main()

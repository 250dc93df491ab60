// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport

/// Says what a bridge to other machines says, and is none.
final class StubBridge: Sendable {
    private let program: RunningCommand

    /// Returns when it has its name.
    init(on bus: PrivateBus) throws {
        let script = """
            import dbus, dbus.mainloop.glib, dbus.service, sys
            from gi.repository import GLib
            dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
            counts = [0, 0]
            u, t = dbus.UInt32, dbus.UInt64
            class Bridge(dbus.service.Object):
                @dbus.service.method("org.carillon.Bridge1", in_signature="", out_signature="a{sv}")
                def GetStatus(self):
                    texts = dbus.Array([], signature="s")
                    return {
                        "version": "1", "connected": True, "state": "connected", "reason": "", "broker": "tower:8883",
                        "tls": True, "realm": "home", "host": "h", "user": "u", "export": texts, "import": texts,
                        "subscriptions": u(0), "queued": u(0), "queued-bytes": t(0), "in-flight": u(0),
                        "exported": t(counts[0]), "imported": t(counts[1]), "lost-out": t(0), "lost-in": t(0),
                        "refused": t(0), "duplicates": t(0), "stripped": texts, "acknowledgement": t(0),
                        "hosts": dbus.Array([], signature="a{sv}"),
                    }
            def take(source, condition):
                line = sys.stdin.readline()
                if not line:
                    loop.quit()
                    return False
                counts[:] = [int(word) for word in line.split()]
                print("taken", flush=True)
                return True
            loop = GLib.MainLoop()
            name = dbus.service.BusName("org.carillon.Bridge1", dbus.SessionBus())
            bridge = Bridge(name, "/org/carillon/Bridge1")
            GLib.io_add_watch(0, GLib.IO_IN | GLib.IO_HUP, take)
            print("ready", flush=True)
            loop.run()
            """
        program = try RunningCommand("/usr/bin/python3", ["-B", "-c", script], environment: bus.environment)
        _ = try program.nextLine(within: .start) { $0 == "ready" }
    }

    /// Has it tell from now on that so many went out and came in.
    func count(out: Int, in: Int) throws {
        program.write("\(out) \(`in`)\n")
        _ = try program.nextLine { $0 == "taken" }
    }

    /// Stops it, and returns when it has stopped.
    func stop() throws { try ProcessState.stop(program.pid) }

    func signal(_ number: Int32) { program.signal(number) }

    func end() { program.terminate() }
}

// SPDX-License-Identifier: Apache-2.0
import TestSupport

/// A client that observes and posts on the same connection, which no run of the command does.
final class ChattyClient: Sendable {
    private let program: RunningCommand

    /// Returns when it observes the name.
    init(on bus: PrivateBus, observing name: String) throws {
        let script = """
            import dbus, sys
            center = dbus.SessionBus().get_object(sys.argv[1], sys.argv[2], introspect=False)
            empty = dbus.Dictionary(signature="sv")
            center.AddObserver(sys.argv[3], "", empty, dbus_interface=sys.argv[1], signature="ssa{sv}")
            print("ready", flush=True)
            for line in sys.stdin:
                center.Post(line.strip(), "", empty, empty, dbus_interface=sys.argv[1], signature="ssa{sv}a{sv}")
                print("posted", flush=True)
            """
        program = try RunningCommand(
            "/usr/bin/python3", ["-B", "-c", script, ServiceProcess.busName, ServiceProcess.objectPath, name],
            environment: bus.environment)
        _ = try program.nextLine { $0 == "ready" }
    }

    var pid: Int32 { program.pid }

    /// Posts so often, and returns when the service has taken it.
    func post(_ name: String, times count: Int) throws {
        program.write(String(repeating: name + "\n", count: count))
        for _ in 0..<count { _ = try program.nextLine { $0 == "posted" } }
    }
}

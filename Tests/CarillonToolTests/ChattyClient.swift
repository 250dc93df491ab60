// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport

/// A program that posts for as long as it is wanted, and observes on the same connection where it is to, which no run of
/// the command does.
final class ChattyClient: Sendable {
    private let program: RunningCommand

    /// Returns when it observes the name, or is there and observes nothing.
    init(on bus: PrivateBus, observing name: String?) throws {
        let script = """
            import dbus, sys
            center = dbus.SessionBus().get_object(sys.argv[1], sys.argv[2], introspect=False)
            empty = dbus.Dictionary(signature="sv")
            for name in sys.argv[3:]:
                center.AddObserver(name, "", empty, dbus_interface=sys.argv[1], signature="ssa{sv}")
            print("ready", flush=True)
            for line in sys.stdin:
                center.Post(line.strip(), "", empty, empty, dbus_interface=sys.argv[1], signature="ssa{sv}a{sv}")
                print("posted", flush=True)
            """
        let arguments = ["-B", "-c", script, ServiceProcess.busName, ServiceProcess.objectPath]
        program = try RunningCommand(
            "/usr/bin/python3", arguments + (name.map { [$0] } ?? []), environment: bus.environment)
        _ = try program.nextLine(within: .start) { $0 == "ready" }
    }

    var pid: Int32 { program.pid }

    func end() { program.terminate() }

    /// Posts so often, and returns when the service has taken it.
    func post(_ name: String, times count: Int) throws {
        program.write(String(repeating: name + "\n", count: count))
        for _ in 0..<count { _ = try program.nextLine { $0 == "posted" } }
    }
}

import DBus
import NotificationWire
import TestSupport

/// A program with a window (`Tests/Desktop/window.py`).
final class WindowProgram {
    let title: String
    /// Its unique name on the bus.
    let name: String
    private let command: RunningCommand
    private let control: Client

    /// Starts it, and returns when it is registered. Its window comes by itself.
    ///
    /// - Parameter control: sends it what a person would do.
    init(
        _ title: String, on desktop: any Desktop, control: Client, arguments: [String] = [],
        environment: [String: String] = [:]
    ) throws {
        self.title = title
        self.control = control
        command = try RunningCommand(
            DesktopSupport.python, ["-B", DesktopSupport.window, title] + arguments,
            environment: desktop.environment.merging(environment) { $1 })
        let line = try command.nextLine { $0.hasPrefix("name ") }
        name = String(line.dropFirst("name ".count))
    }

    /// Waits for a line that it prints. The lines before it are passed over.
    func expectLine(_ line: String) throws {
        _ = try command.nextLine { $0 == line }
    }

    func send(_ member: MemberName) {
        let signal = Message.signal(path: "/", interface: "org.example.Window", member: member)
        signal.destination = BusName(unchecked: name)
        control.connection.send(signal)
    }

    /// All that it printed since the last line that was waited for. What the service, and this process, sent to it
    /// before this call is among it.
    func lines() throws -> [String] {
        // The service has sent all of what it began to send when it answers.
        _ = try control.property("Version")
        send("Mark")
        var lines: [String] = []
        while true {
            // The connection sends while its loop runs.
            _ = try control.processID(of: "org.freedesktop.DBus")
            let line = try command.nextLine()
            if line == "mark" { return lines }
            lines.append(line)
        }
    }

    var pid: Int32 { command.pid }
    var transcript: String { command.transcript }

    func kill() throws {
        command.kill()
        _ = try command.waitForExit()
    }
}

extension Client {
    /// What ListClients says of a client: "suspended activity", "resumed none" and so on; nil when it is not there.
    func suspension(of name: String) throws -> String? {
        var reader = MessageReader(try call("ListClients"))
        var entries = try reader.readContainer(.array)
        while !entries.isAtEnd {
            var (found, isSuspended, cause) = (false, false, "")
            var fields = try entries.readContainer(.array)
            while !fields.isAtEnd {
                var field = try fields.readContainer(.dictEntry)
                let key = try field.readString()
                var value = try field.readContainer(.variant)
                if key == "name" { found = try value.readString() == name }
                if key == "suspended" { isSuspended = try value.read() }
                if key == "cause" { cause = try value.readString() }
            }
            if found { return "\(isSuspended ? "suspended" : "resumed") \(cause)" }
        }
        return nil
    }

    /// A property of the service that is a string.
    func property(_ name: String) throws -> String {
        let message = Message.methodCall(
            to: Wire.busName, path: Wire.path, interface: "org.freedesktop.DBus.Properties", member: "Get")
        var writer = MessageWriter(message)
        writer.append(Wire.interface.rawValue)
        writer.append(name)
        var reader = MessageReader(try send(message))
        var value = try reader.readContainer(.variant)
        return try value.readString()
    }

    /// Waits until the service follows a source.
    func waitForActivity(_ state: String = "following", within timeout: Duration = .patience) throws {
        try eventually("activity is \(state)", within: timeout) { try property("ActivityState") == state }
    }
}

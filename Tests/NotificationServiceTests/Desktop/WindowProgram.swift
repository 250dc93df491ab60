// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonTestSupport
import CarillonWire

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
        control.connection.send(
            Message.signal(to: UniqueName(rawValue: name), path: "/", interface: "org.example.Window", member: member))
    }

    /// All that it printed since the last line that was waited for. What the service, and this process, sent to it
    /// before this call is among it.
    func lines() throws -> [String] {
        // The service has sent all of what it began to send when it answers.
        _ = try control.property(.version)
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
        try call(ListClients()).first { $0.name.rawValue == name }.map { client in
            "\(client.isSuspended ? "suspended" : "resumed") \(client.cause)"
        }
    }

    /// A property of the service that is a string.
    func property(_ name: CenterProperties.Name) throws -> String {
        guard
            case .string(let text) = try CenterProperties(in: try send(CenterProperties.getAll())).entries[
                name.rawValue]
        else { throw NotInTime("a property \(name.rawValue) that is a string") }
        return text
    }

    /// Waits until the service follows a source.
    func waitForActivity(_ state: String = "following", within patience: Patience = .desktop) throws {
        try eventually("activity is \(state)", within: patience) { try property(.activityState) == state }
    }
}

// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// A message bus of one test's own, with its own runtime, configuration and data directories.
///
/// Nothing of it is put into this process's environment, so any number of tests can each have one at the same time:
/// give ``address`` to a connection, ``environment`` to a child. The bus ends with ``stop()`` or when nothing refers to
/// it any more; only the process that was started here is signalled, by its pid.
public final class PrivateBus: Sendable {
    /// A program that the bus starts when a message is sent to a name that nobody owns.
    public struct Activation: Sendable {
        /// The well-known name.
        public var name: String
        /// The path of the program.
        public var executable: String
        public var arguments: [String]

        public init(name: String, executable: String, arguments: [String] = []) {
            self.name = name
            self.executable = executable
            self.arguments = arguments
        }

        /// The notification center that this package builds.
        public static func service(arguments: [String] = []) throws -> Activation {
            Activation(
                name: ServiceProcess.busName, executable: try Executables.path(of: "carillond"), arguments: arguments)
        }
    }

    public let kind: BusKind
    /// The directory with the socket and all that the environment's XDG variables point to.
    public let directory: TemporaryDirectory
    /// The D-Bus address.
    public let address: String
    /// The whole environment for programs on this bus: this process's, without anything of the session that the tests
    /// run in, with this bus's address and directories.
    public let environment: [String: String]

    /// Whose session it is, where that is not this process's user.
    public let user: OtherUser?

    private let process: RunningCommand
    /// Kept because the broker ends with it.
    private let controller: BrokerController?

    /// Starts a bus and returns when it can be connected to.
    ///
    /// - Parameters:
    ///   - kind: which implementation.
    ///   - activations: what it starts by activation. Only with dbus-daemon: dbus-broker leaves this to systemd.
    ///   - limits: limits to set apart from those of a standard session bus, by their names in dbus-daemon(1). Only
    ///     with dbus-daemon.
    ///   - arguments: further arguments of the bus program, for example `--max-bytes` of dbus-broker(1).
    ///   - user: whose session it is, and who runs the bus. Only with dbus-daemon, and for root.
    /// - Throws: when it can't be started.
    public init(
        _ kind: BusKind = .dbusDaemon, activations: [Activation] = [], limits: [String: Int] = [:],
        arguments: [String] = [], user: OtherUser? = nil
    ) throws {
        self.kind = kind
        self.user = user
        directory = try TemporaryDirectory()
        let socket = directory.entry("bus")
        var environment = try Self.makeEnvironment(in: directory)
        environment["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=\(socket)"

        switch kind {
        case .dbusDaemon:
            try Self.writeConfiguration(in: directory, activations: activations, limits: limits, user: user)
            try user?.own(directory)
            (process, address) = try Self.startDaemon(directory, arguments, environment, user)
            controller = nil
        case .dbusBroker:
            guard activations.isEmpty, limits.isEmpty, user == nil else {
                throw BrokerFailure("dbus-broker has no activation of its own and other limits than dbus-daemon")
            }
            let broker = try Self.startBroker(socket, arguments, environment)
            (process, controller) = broker
            address = "unix:path=\(socket)"
        }
        environment["DBUS_SESSION_BUS_ADDRESS"] = address
        self.environment = environment
    }

    deinit {
        stop()
    }

    /// The process id of the bus, for example to measure its memory.
    public var pid: pid_t {
        process.pid
    }

    /// What the bus, and the programs that it started by activation, wrote to standard error.
    public var log: String {
        process.standardError
    }

    /// The resident memory of the bus in bytes.
    public func residentBytes() throws -> Int {
        try ProcessMemory.residentBytes(of: pid)
    }

    /// The process id of the owner of a bus name, as the bus knows it; nil if nobody owns it. Never activates.
    public func processID(ofOwner name: String) throws -> pid_t? {
        let reply = try call("GetConnectionUnixProcessID", name)
        if reply.exitCode != 0, reply.standardError.contains("org.freedesktop.DBus.Error.NameHasNoOwner") {
            return nil
        }
        // (uint32 4711,)
        guard reply.exitCode == 0,
            let digits = reply.standardOutput.split(separator: " ").last?.prefix(while: \.isNumber)
        else {
            throw NotInTime("no process id of \(name): \(reply)")
        }
        return pid_t(digits)
    }

    /// Writes the configuration file of services on this bus. Whoever reads it meanwhile finds the old or the new one.
    public func configure(_ text: String) throws {
        try directory.write(text, to: "config/carillon/carillon.conf")
    }

    /// Calls a method of the bus itself.
    private func call(_ method: String, _ argument: String) throws -> CommandResult {
        try Command.run(
            "gdbus",
            [
                "call", "--address", address, "--dest", "org.freedesktop.DBus", "--object-path",
                "/org/freedesktop/DBus", "--method", "org.freedesktop.DBus.\(method)", argument,
            ], environment: environment)
    }

    /// Ends the bus and waits until it is gone; every connection to it is closed then. Harmless when repeated.
    public func stop() {
        process.terminate()
        if process.exit(within: PrivateBus.ending) == nil {
            process.kill()
            _ = try? process.waitForExit()
        }
    }

    static let ending = Patience.work(.seconds(20), because: "it is killed then")

    // MARK: Setting up

    static func makeEnvironment(in directory: TemporaryDirectory) throws -> [String: String] {
        let ofTheSession = [
            "DBUS_", "XDG_", "LISTEN_", "DISPLAY", "WAYLAND_", "XAUTHORITY", "SWAYSOCK", "I3SOCK", "NOTIFY_SOCKET",
            "JOURNAL_STREAM", "LC_",
        ]
        var environment = ProcessInfo.processInfo.environment.filter { variable in
            !ofTheSession.contains(where: variable.key.hasPrefix)
        }
        environment["LANG"] = "C.UTF-8"
        // There is none, whatever the machine has.
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=\(directory.entry("no-system-bus"))"
        environment["HOME"] = try directory.createSubdirectory("home")
        environment["XDG_RUNTIME_DIR"] = try directory.createSubdirectory("run")
        environment["XDG_CONFIG_HOME"] = try directory.createSubdirectory("config")
        environment["XDG_CONFIG_DIRS"] = try directory.createSubdirectory("system-config")
        environment["XDG_DATA_HOME"] = try directory.createSubdirectory("data")
        environment["XDG_STATE_HOME"] = try directory.createSubdirectory("state")
        environment["XDG_CACHE_HOME"] = try directory.createSubdirectory("cache")
        return environment
    }

    private static func writeConfiguration(
        in directory: TemporaryDirectory, activations: [Activation], limits: [String: Int], user: OtherUser?
    ) throws {
        let services = try directory.createSubdirectory("services")
        for activation in activations {
            // Quoted for the shell-like parser of commands, then escaped as a string of a key file.
            let command = ([activation.executable] + activation.arguments)
                .map { "'" + $0.replacingOccurrences(of: "'", with: "'\\''") + "'" }
                .joined(separator: " ")
                .replacingOccurrences(of: "\\", with: "\\\\")
            try directory.write(
                "[D-BUS Service]\nName=\(activation.name)\nExec=\(command)\n",
                to: "services/\(activation.name).service")
        }
        let limitElements = sessionLimits.merging(limits) { $1 }.sorted { $0.key < $1.key }
            .map { "  <limit name=\"\($0.key)\">\($0.value)</limit>" }
        try directory.write(
            """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
              "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig>
              <type>session</type>
              <keep_umask/>
              <listen>unix:path=\(directory.entry("bus"))</listen>
              <auth>EXTERNAL</auth>
              <servicedir>\(services)</servicedir>
              <policy context="default">
                \(user == nil ? "" : "<allow user=\"*\"/>")
                <allow send_destination="*" eavesdrop="true"/>
                <allow eavesdrop="true"/>
                <allow own="*"/>
              </policy>
            \(limitElements.joined(separator: "\n"))
            </busconfig>

            """, to: "bus.conf")
    }

    /// The limits in the session.conf that comes with dbus-daemon.
    private static let sessionLimits = [
        "max_incoming_bytes": 1_000_000_000,
        "max_incoming_unix_fds": 250_000_000,
        "max_outgoing_bytes": 1_000_000_000,
        "max_outgoing_unix_fds": 250_000_000,
        "max_message_size": 1_000_000_000,
        "service_start_timeout": 120_000,
        "auth_timeout": 240_000,
        "pending_fd_timeout": 150_000,
        "max_completed_connections": 100_000,
        "max_incomplete_connections": 10_000,
        "max_connections_per_user": 100_000,
        "max_pending_service_starts": 10_000,
        "max_names_per_connection": 50_000,
        "max_match_rules_per_connection": 50_000,
        "max_replies_per_connection": 50_000,
    ]

    /// The daemon prints its address when it listens.
    static func startDaemon(
        _ directory: TemporaryDirectory, _ arguments: [String], _ environment: [String: String],
        _ user: OtherUser? = nil
    ) throws -> (RunningCommand, address: String) {
        let (program, arguments) = OtherUser.command(
            "dbus-daemon",
            [
                "--config-file=\(directory.entry("bus.conf"))", "--nofork", "--nopidfile", "--nosyslog",
                "--print-address=1",
            ] + arguments, of: user)
        let process = try RunningCommand(program, arguments, environment: environment, input: "")
        return (process, try process.nextLine(within: .start))
    }

    /// The socket listens before the broker starts, and the broker confirms that it serves it.
    static func startBroker(
        _ path: String, _ arguments: [String], _ environment: [String: String], isSystemBus: Bool = false
    ) throws -> (RunningCommand, BrokerController) {
        let listener = try listen(at: path)
        if isSystemBus { chmod(path, 0o666) }
        let (ours, theirs) = try FileDescriptor.socketPair()
        let process = try RunningCommand(
            "dbus-broker",
            ["--controller", "3", "--log", "2", "--machine-id", machineID()] + arguments,
            environment: environment, input: "", inherited: [theirs], errorSocket: true)
        do {
            let controller = try BrokerController(connection: ours)
            try controller.addListener(listener, isSystemBus: isSystemBus)
            return (process, controller)
        } catch {
            process.kill()
            throw BrokerFailure("\(error); \(try process.result())")
        }
    }

    private static func listen(at path: String) throws -> FileDescriptor {
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, type, 0)
        guard descriptor >= 0 else {
            throw SystemError("socket")
        }
        let listener = FileDescriptor(owning: descriptor)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard path.utf8.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw SystemError("bind \(path)", code: ENAMETOOLONG)
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let bound = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                bind(descriptor, pointer, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard bound == 0 else {
            throw SystemError("bind \(path)")
        }
        guard Glibc.listen(descriptor, SOMAXCONN) == 0 else {
            throw SystemError("listen")
        }
        return listener
    }

    /// What `org.freedesktop.DBus.Peer.GetMachineId` answers; any 32 digits will do where the machine has none.
    private static func machineID() -> String {
        let file = (try? String(contentsOfFile: "/etc/machine-id", encoding: .utf8)) ?? ""
        let digits = file.prefix(while: \.isHexDigit)
        return digits.count == 32 ? String(digits) : String(repeating: "0", count: 31) + "1"
    }
}

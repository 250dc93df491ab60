// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// The built notification center, `carillond`, running on a private bus.
///
/// When nothing refers to it any more, it is killed. It keeps the bus.
public final class ServiceProcess: Sendable {
    /// The well-known name of the service.
    public static let busName = "org.carillon.NotificationCenter1"
    /// The object path of the service.
    public static let objectPath = "/org/carillon/NotificationCenter1"

    public let bus: PrivateBus
    private let command: RunningCommand

    /// Starts the service.
    ///
    /// - Parameters:
    ///   - bus: on this bus, with its environment.
    ///   - arguments: the service's command line.
    ///   - environment: variables to set, or to replace, in the bus's environment.
    ///   - waitUntilReady: whether to return only when it owns its name. Without this, use ``waitUntilReady(within:)``,
    ///     or ``waitForExit(within:)`` for a service that is not expected to start.
    /// - Throws: when it can't be started, or ended before it owned its name; the error holds its log.
    public init(
        on bus: PrivateBus, arguments: [String] = [], environment: [String: String] = [:], waitUntilReady: Bool = true
    ) throws {
        self.bus = bus
        var program = try Executables.path(of: "carillond")
        if bus.user != nil { program = try OtherUser.copy(program, to: bus.directory) }
        let (executable, arguments) = OtherUser.command(program, arguments, of: bus.user)
        command = try RunningCommand(
            executable, arguments, environment: bus.environment.merging(environment) { $1 }, input: "")
        if waitUntilReady {
            try self.waitUntilReady()
        }
    }

    /// Blocks until this process owns the service's name.
    ///
    /// - Throws: ``NotInTime`` when it does not in time, when another process owns it, or when this one ended; it holds
    ///   the log.
    public func waitUntilReady(within patience: Patience = .start) throws {
        let wait = try RunningCommand(
            "gdbus", ["wait", "--address", bus.address, Self.busName], environment: bus.environment)
        // A service that ended will never own the name: whatever comes first ends the wait.
        let command = command
        Thread {
            while wait.isRunning {
                guard command.exit(within: Self.look) != nil else { continue }
                wait.terminate()
            }
        }.start()
        let waited = wait.exit(within: patience)
        guard try waited == .exited(0) && bus.processID(ofOwner: Self.busName) == pid else {
            wait.terminate()
            throw NotInTime("the service does not own its name: \(transcript)\n\(bus.log)")
        }
    }

    private static let look = Patience.work(.milliseconds(100), because: "somebody else waits as well")

    public var pid: pid_t {
        command.pid
    }

    /// Whether it has not ended yet.
    public var isRunning: Bool {
        command.isRunning
    }

    /// What it wrote to standard error so far.
    public var log: String {
        command.standardError
    }

    /// Its command line, state and output, for the comment of a failed expectation.
    public var transcript: String {
        command.transcript
    }

    /// Takes lines of its standard error until one fulfils the condition, and returns that.
    ///
    /// - Throws: ``NotInTime`` when there is none in time.
    public func nextLogLine(
        within patience: Patience = .event, where condition: (String) -> Bool = { _ in true }
    ) throws -> String {
        try command.nextErrorLine(within: patience, where: condition)
    }

    /// Waits until it has logged a text, and takes no line of the log.
    ///
    /// - Throws: ``NotInTime``.
    public func waitForLog(_ text: String, within patience: Patience = .event) throws {
        try command.waitForError(containing: text, within: patience)
    }

    /// The resident memory of the service in bytes.
    public func residentBytes() throws -> Int {
        try ProcessMemory.residentBytes(of: pid)
    }

    /// Stops it, and returns when it has stopped.
    public func stop() throws {
        try ProcessState.stop(pid)
    }

    /// Has it go on after ``stop()``.
    public func goOn() {
        signal(SIGCONT)
    }

    /// Stops it, and has it go on when that many posts, which `body` brings about, lie before it: in its socket, which
    /// holds a hundred small ones and more. Whoever posts may be slow, and so may the bus be; the service finds all at
    /// once.
    ///
    /// - Throws: ``NotInTime`` when there are not so many.
    public func whileStopped(untilPosts count: Int, _ body: () throws -> Void) throws {
        let monitor = try RunningCommand(
            "dbus-monitor",
            ["--address", bus.address]
                + ["Post", "PostMany"].map { "type='method_call',member='\($0)'" },
            environment: bus.environment)
        _ = try monitor.nextLine { $0.contains("member=NameLost") }  // it has become a monitor
        try stop()
        defer { goOn() }
        try body()
        // One alone, or one of several.
        for _ in 0..<count { _ = try monitor.nextLine { $0.hasSuffix("member=Post") || $0 == "      struct {" } }
        // The bus read them. dbus-broker writes 16 of them in a turn of its loop, and answers once in a turn.
        for _ in 0..<2 + count / 16 { _ = try bus.processID(ofOwner: Self.busName) }
    }

    /// Sends it a signal, for example SIGHUP, if it still runs.
    public func signal(_ number: Int32) {
        command.signal(number)
    }

    /// Ends it with SIGTERM and waits until it is gone.
    ///
    /// - Returns: how it ended.
    /// - Throws: ``NotInTime`` when it does not end.
    @discardableResult
    public func terminate(within patience: Patience = .event) throws -> ExitStatus {
        command.terminate()
        return try command.waitForExit(within: patience)
    }

    /// What the service has noted on disk for each client: the last number that it gave, and the last that the bus is
    /// known to have carried.
    public func notedNumbers() throws -> [(sequence: UInt64, confirmed: UInt64)] {
        let directory = (bus.environment["XDG_RUNTIME_DIR"] ?? "") + "/carillon"
        let names = try FileManager.default.contentsOfDirectory(atPath: directory).filter { $0.hasSuffix(".counts") }
        return try names.flatMap { name in
            let data = try Data(contentsOf: URL(fileURLWithPath: "\(directory)/\(name)"))
            return data.withUnsafeBytes { bytes in
                // Slots of eight numbers; the first is not a client's.
                stride(from: 64, to: bytes.count - 63, by: 64).map { slot in
                    func field(_ number: Int) -> UInt64 {
                        bytes.loadUnaligned(fromByteOffset: slot + 8 * number, as: UInt64.self)
                    }
                    return (field(1), field(3))
                }
            }
        }
    }

    /// Waits until the bus is known to have carried all that the service has sent, so that a kill leaves nothing to
    /// announce.
    public func settle() throws {
        try eventually("the bus has carried all that was sent") {
            try notedNumbers().allSatisfy { $0.sequence == $0.confirmed }
        }
    }

    /// Ends it with SIGKILL and waits until it is gone.
    public func kill() throws {
        command.kill()
        _ = try command.waitForExit()
    }

    /// Blocks until it ended.
    ///
    /// - Returns: how it ended.
    /// - Throws: ``NotInTime`` when it still runs then; it goes on running.
    public func waitForExit(within patience: Patience = .event) throws -> ExitStatus {
        try command.waitForExit(within: patience)
    }
}

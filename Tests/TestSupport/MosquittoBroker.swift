// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// A mosquitto of one test's own, on a free port of the loopback address. It ends with ``stop()`` or when nothing refers
/// to it any more; only the process that was started here is signalled, by its pid.
///
/// Safe to use from any thread.
public final class MosquittoBroker: Sendable {
    /// What it is reached at; a certificate may also be for this name.
    public static let host = "localhost"

    public let port: UInt16
    /// Where its configuration, its persistent state and what a test puts there are.
    public let directory: TemporaryDirectory
    private let process: Monitor<RunningCommand>

    /// Whether there is a mosquitto on this machine.
    public static let isAvailable = program != nil

    private static let program = ["mosquitto", "/usr/sbin/mosquitto"].lazy.compactMap { Command.find($0) }.first

    /// Starts a broker and returns when it can be connected to.
    ///
    /// - Parameters:
    ///   - lines: of its configuration, after that of the listener. Without `allow_anonymous` or a password file everybody
    ///     may connect. Paths in it are relative to ``directory`` where they begin with `@/`.
    ///   - keepsState: whether it has, after a restart, the sessions and values of before.
    ///   - directory: with files that `lines` speak of; nil for a new one.
    public init(_ lines: [String] = [], keepsState: Bool = false, directory: TemporaryDirectory? = nil) throws {
        let directory = try directory ?? TemporaryDirectory()
        self.directory = directory
        let lines = lines.map { $0.replacingOccurrences(of: "@/", with: directory.path + "/") }
        // The port is free when it is looked for; somebody else may be quicker.
        var attempts = 0
        while true {
            let port = try Self.freePort()
            try Self.configure(directory, port, lines, keepsState: keepsState)
            do {
                process = Monitor(try Self.start(directory))
                self.port = port
                return
            } catch let error as NotInTime {
                attempts += 1
                guard attempts < 5, error.description.contains("Address already in use") else { throw error }
            }
        }
    }

    deinit {
        stop()
    }

    public var pid: pid_t { process.update { $0.pid } }

    /// What it logged since it was last started.
    public var log: String { process.update { $0.standardError } }

    /// Waits until it has logged a line that contains `text`, and takes all lines up to that.
    public func waitForLog(_ text: String, within patience: Patience = .event) throws {
        _ = try process.update { $0 }.nextErrorLine(within: patience) { $0.contains(text) }
    }

    /// Sends it a signal, such as SIGSTOP.
    public func signal(_ number: Int32) { process.update { $0.signal(number) } }

    /// Ends it as one that is shut down, so that it writes its state first. Harmless when repeated.
    public func stop() {
        let process = process.update { $0 }
        // One that is stopped by a signal would not end.
        process.signal(SIGCONT)
        // It forgets a signal that comes just after it says that it runs.
        for _ in 0..<100 {
            process.terminate()
            if process.exit(within: Self.ending) != nil { return }
        }
        process.kill()
        _ = try? process.waitForExit()
    }

    private static let ending = Patience.work(.milliseconds(200), because: "it may want another signal")

    /// Ends it without a warning. What it had not written is lost.
    public func kill() {
        let process = process.update { $0 }
        process.kill()
        _ = try? process.waitForExit()
    }

    /// Starts it anew, on the same port, after ``stop()`` or ``kill()``.
    public func restart() throws {
        let started = try Self.start(directory)
        process.update { $0 = started }
    }

    /// A port that nobody listens to at this moment.
    public static func freePort() throws -> UInt16 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        let owner = FileDescriptor(owning: descriptor)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = in_addr_t(INADDR_LOOPBACK).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                bind(owner.rawValue, pointer, size) == 0 ? getsockname(owner.rawValue, pointer, &size) : -1
            }
        }
        guard status == 0 else { throw SystemError("bind") }
        return UInt16(bigEndian: address.sin_port)
    }

    private static func configure(
        _ directory: TemporaryDirectory, _ port: UInt16, _ lines: [String], keepsState: Bool
    ) throws {
        let isOpen = !lines.contains { $0.hasPrefix("allow_anonymous") || $0.hasPrefix("password_file") }
        let state = keepsState ? ["persistence true", "persistence_location \(directory.path)/"] : []
        let user = getuid() == 0 ? ["user root"] : []
        let all =
            ["per_listener_settings false", "listener \(port) 127.0.0.1"] + lines + state + user
            + (isOpen ? ["allow_anonymous true"] : []) + ["log_dest stderr", "log_type all"]
        try directory.write(all.joined(separator: "\n") + "\n", to: "mosquitto.conf")
    }

    private static func start(_ directory: TemporaryDirectory) throws -> RunningCommand {
        guard let program else { throw SystemError("start mosquitto", code: ENOENT) }
        let process = try RunningCommand(
            program, ["-c", directory.entry("mosquitto.conf")], environment: nil, input: "")
        _ = try process.nextErrorLine(within: .start) { $0.hasSuffix(" running") }
        return process
    }
}

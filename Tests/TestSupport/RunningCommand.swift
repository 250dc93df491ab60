// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// A command that runs in the background, and what it wrote so far. Its pipes are read by threads of their own, so that
/// it never blocks on output that nobody asked for. When nothing refers to it any more, it is killed.
///
/// Safe to use from any thread; lines go to whoever asks first.
public final class RunningCommand: Sendable {
    /// The process id. It stays this command's until ``waitForExit(within:)`` returned.
    public var pid: pid_t {
        process.pid
    }

    /// The command line, for messages.
    public let commandLine: String

    private let process: ChildProcess
    private let output = Monitor(OutputBuffer())
    private let errorOutput = Monitor(OutputBuffer())
    private let inputQueue = Monitor(InputQueue())

    /// Starts a command whose standard input is what ``write(_:)`` gives it.
    ///
    /// - Parameters:
    ///   - executable: a path, or a name that is looked up in PATH.
    ///   - arguments: its arguments, without argument 0.
    ///   - environment: its whole environment; nil = that of this process.
    /// - Throws: ``SystemError`` when it can't be started.
    public convenience init(
        _ executable: String, _ arguments: [String] = [], environment: [String: String]? = nil
    ) throws {
        try self.init(executable, arguments, environment: environment, input: nil)
    }

    /// - Parameters:
    ///   - input: all of its standard input; nil leaves it open for ``write(_:)``.
    ///   - inherited: what it finds at descriptor 3, 4 and so on.
    ///   - errorSocket: whether its standard error is a stream socket instead of a pipe.
    init(
        _ executable: String, _ arguments: [String], environment: [String: String]?, input: String?,
        inherited: [FileDescriptor] = [], errorSocket: Bool = false
    ) throws {
        let environment = environment ?? ProcessInfo.processInfo.environment
        guard let path = Command.find(executable, environment: environment) else {
            throw SystemError("start \(executable)", code: ENOENT)
        }
        commandLine = ([executable] + arguments).map(quoted).joined(separator: " ")

        let standardInput = input == "" ? (try FileDescriptor.null(), nil) : (try FileDescriptor.pipe() as (_, _?))
        let standardOutput = try FileDescriptor.pipe()
        let standardError = errorSocket ? try FileDescriptor.socketPair() : try FileDescriptor.pipe()
        process = try ChildProcess(
            executable: path, arguments: arguments, environment: environment,
            descriptors: [standardInput.0, standardOutput.write, standardError.1] + inherited)

        Self.collect(from: standardOutput.read, into: output)
        Self.collect(from: standardError.0, into: errorOutput)
        if let writeEnd = standardInput.1 {
            Self.feed(writeEnd, from: inputQueue)
        }
        if let input {
            write(input)
            closeInput()
        }
    }

    deinit {
        process.signal(SIGKILL)
        closeInput()
    }

    // MARK: Output

    /// All that it wrote to its standard output so far, also what ``nextLine(within:)`` gave out.
    public var standardOutput: String {
        output.update { $0.text }
    }

    /// All that it wrote to its standard error so far.
    public var standardError: String {
        errorOutput.update { $0.text }
    }

    /// The command, its state and its output, for the comment of a failed expectation.
    public var transcript: String {
        TestSupport.transcript(
            of: commandLine, status: process.status, standardOutput: standardOutput, standardError: standardError)
    }

    /// Takes the next line of its standard output, without the newline. Blocks until there is one; what is left
    /// without a newline at the end of the output counts as a line.
    ///
    /// - Throws: ``NotInTime`` when there is none in time, or no more because the output ended.
    public func nextLine(within timeout: Duration = .patience) throws -> String {
        try takeLine(from: output, within: timeout, what: "a line of output") { _ in true }
    }

    /// Takes lines of its standard output until one fulfils the condition, and returns that.
    ///
    /// - Throws: ``NotInTime`` when there is none in time, or none before the output ended.
    public func nextLine(
        within timeout: Duration = .patience, where condition: (String) -> Bool
    ) throws -> String {
        try takeLine(from: output, within: timeout, what: "such a line of output", where: condition)
    }

    /// As ``nextLine(within:where:)``, of its standard error.
    public func nextErrorLine(
        within timeout: Duration = .patience, where condition: (String) -> Bool = { _ in true }
    ) throws -> String {
        try takeLine(from: errorOutput, within: timeout, what: "such a line of standard error", where: condition)
    }

    private func takeLine(
        from buffer: Monitor<OutputBuffer>, within timeout: Duration, what: String, where condition: (String) -> Bool
    ) throws -> String {
        let found: String?? = buffer.wait(until: Deadline(after: timeout)) { buffer in
            while let line = buffer.takeLine() {
                if condition(line) {
                    return .some(line)
                }
            }
            return buffer.isAtEnd ? .some(nil) : nil
        }
        switch found {
        case .some(.some(let line)): return line
        case .some(nil): throw NotInTime("the output ended without \(what): \(transcript)")
        case nil: throw NotInTime("not within \(timeout): \(what): \(transcript)")
        }
    }

    // MARK: Input

    /// Gives text to its standard input. Returns at once; a command that reads no more loses it silently.
    public func write(_ text: String) {
        inputQueue.update { $0.pending += Array(text.utf8) }
    }

    /// Ends its standard input, after all that was written.
    public func closeInput() {
        inputQueue.update { $0.isClosed = true }
    }

    // MARK: The process

    /// Whether it has not ended yet.
    public var isRunning: Bool {
        process.status == nil
    }

    /// How it ended; nil while it runs.
    public var status: ExitStatus? {
        process.status
    }

    /// Sends it a signal, if it still runs.
    public func signal(_ number: Int32) {
        process.signal(number)
    }

    /// Sends it SIGTERM, if it still runs.
    public func terminate() {
        process.signal(SIGTERM)
    }

    /// Sends it SIGKILL, if it still runs.
    public func kill() {
        process.signal(SIGKILL)
    }

    /// Blocks until it ended.
    ///
    /// - Throws: ``NotInTime`` when it still runs after `timeout`. It goes on running.
    public func waitForExit(within timeout: Duration = .patience) throws -> ExitStatus {
        guard let status = process.waitForExit(until: Deadline(after: timeout)) else {
            throw NotInTime("still running after \(timeout): \(transcript)")
        }
        // What it wrote last may still be in the pipe. A child of it that holds the pipe is not waited for long.
        collectOutput(until: Deadline(after: .seconds(30)))
        return status
    }

    private func collectOutput(until deadline: Deadline) {
        for buffer in [output, errorOutput] {
            _ = buffer.wait(until: deadline) { $0.isAtEnd ? true : nil }
        }
    }

    /// Waits for the end of the process and of its output.
    ///
    /// The output ends later than the process if a child of it still holds the pipe; such a child is not waited for
    /// longer than `grace`.
    func result(grace: Duration = .seconds(30)) throws -> CommandResult {
        let deadline = Deadline(after: grace)
        let status = try waitForExit(within: grace)
        collectOutput(until: deadline)
        return CommandResult(
            commandLine: commandLine, status: status, standardOutput: standardOutput, standardError: standardError)
    }

    // MARK: Threads

    private static func collect(from descriptor: FileDescriptor, into buffer: Monitor<OutputBuffer>) {
        Thread {
            while true {
                let bytes = descriptor.readSome()
                buffer.update { $0.append(bytes) }
                if bytes.isEmpty {
                    return
                }
            }
        }.start()
    }

    private static func feed(_ descriptor: FileDescriptor, from queue: Monitor<InputQueue>) {
        Thread {
            // A reader that went away is an EPIPE here, not a SIGPIPE for the whole process.
            var signals = sigset_t()
            sigemptyset(&signals)
            sigaddset(&signals, SIGPIPE)
            pthread_sigmask(SIG_BLOCK, &signals, nil)

            let forever = Deadline(after: .seconds(365 * 86400))
            while let bytes = queue.wait(until: forever, for: { $0.take() }), !bytes.isEmpty {
                var rest = bytes[...]
                while !rest.isEmpty {
                    let written = rest.withUnsafeBytes { buffer in
                        retryingOnInterrupt { Glibc.write(descriptor.rawValue, buffer.baseAddress, buffer.count) }
                    }
                    if written < 0 {
                        return
                    }
                    rest = rest.dropFirst(written)
                }
            }
        }.start()
    }
}

/// What a command wrote, and how far it was given out line by line.
private struct OutputBuffer: Sendable {
    private var bytes: [UInt8] = []
    private var lineStart = 0
    private var searched = 0
    private(set) var isAtEnd = false

    var text: String {
        String(decoding: bytes, as: UTF8.self)
    }

    /// Adds what was read; nothing = the end.
    mutating func append(_ new: [UInt8]) {
        bytes += new
        isAtEnd = isAtEnd || new.isEmpty
    }

    mutating func takeLine() -> String? {
        if let newline = bytes[searched...].firstIndex(of: UInt8(ascii: "\n")) {
            defer {
                lineStart = newline + 1
                searched = lineStart
            }
            return String(decoding: bytes[lineStart..<newline], as: UTF8.self)
        }
        searched = bytes.count
        guard isAtEnd, lineStart < bytes.count else {
            return nil
        }
        defer { lineStart = bytes.count }
        return String(decoding: bytes[lineStart...], as: UTF8.self)
    }
}

/// What a command is still to read.
private struct InputQueue: Sendable {
    var pending: [UInt8] = []
    var isClosed = false

    /// Takes all that waits; empty = closed; nil = nothing yet.
    mutating func take() -> [UInt8]? {
        guard !pending.isEmpty || isClosed else {
            return nil
        }
        defer { pending = [] }
        return pending
    }
}

/// An argument as one would type it in a shell.
private func quoted(_ argument: String) -> String {
    let harmless = argument.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default:
            "-_./=:,+@%".utf8.contains(byte)
        }
    }
    if harmless && !argument.isEmpty {
        return argument
    }
    return "'" + argument.replacingOccurrences(of: "'", with: "'\\''") + "'"
}

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
        ProgramsUnderTest.add(self)
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
        CarillonTestSupport.transcript(
            of: commandLine, status: process.status, standardOutput: standardOutput, standardError: standardError)
    }

    /// Its command line, its state and the last lines of its output, for the report of a wait in vain.
    func lastLines(_ count: Int) -> String {
        CarillonTestSupport.transcript(
            of: commandLine, status: process.status, standardOutput: output.update { $0.lastLines(count) },
            standardError: errorOutput.update { $0.lastLines(count) })
    }

    /// Takes the next line of its standard output, without the newline. Blocks until there is one; what is left
    /// without a newline at the end of the output counts as a line.
    ///
    /// - Throws: ``NotInTime`` when there is none in time, or no more because the output ended.
    public func nextLine(within patience: Patience = .event) throws -> String {
        try takeLine(from: output, within: patience, what: "a line of output") { _ in true }
    }

    /// Takes lines of its standard output until one fulfils the condition, and returns that.
    ///
    /// - Throws: ``NotInTime`` when there is none in time, or none before the output ended.
    public func nextLine(
        within patience: Patience = .event, where condition: (String) -> Bool
    ) throws -> String {
        try takeLine(from: output, within: patience, what: "such a line of output", where: condition)
    }

    /// As ``nextLine(within:where:)``, of its standard error.
    public func nextErrorLine(
        within patience: Patience = .event, where condition: (String) -> Bool = { _ in true }
    ) throws -> String {
        try takeLine(from: errorOutput, within: patience, what: "such a line of standard error", where: condition)
    }

    /// Waits until its standard error holds a text, and takes nothing of it. Of a program that goes on, what it has written
    /// may come here later than what it did behind that is seen elsewhere.
    ///
    /// - Throws: ``NotInTime`` when it does not in time, or ended without it.
    public func waitForError(containing text: String, within patience: Patience = .event) throws {
        let found = errorOutput.wait(patience) { buffer -> Bool? in
            buffer.text.contains(text) ? true : buffer.isAtEnd ? false : nil
        }
        guard found == true else {
            throw NotInTime("not within \(patience): '\(text)' on standard error: \(transcript)")
        }
    }

    private func takeLine(
        from buffer: Monitor<OutputBuffer>, within patience: Patience, what: String, where condition: (String) -> Bool
    ) throws -> String {
        let found: String?? = buffer.wait(patience) { buffer in
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
        case nil: throw NotInTime("not within \(patience): \(what): \(transcript)")
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
    /// - Throws: ``NotInTime`` when it still runs then. It goes on running.
    public func waitForExit(within patience: Patience = .event) throws -> ExitStatus {
        guard let status = exit(within: patience) else {
            throw NotInTime("still running after \(patience): \(transcript)")
        }
        return status
    }

    /// Blocks until it ended, for what may go on as well.
    ///
    /// - Returns: how it ended; nil when it still runs.
    public func exit(within patience: Patience) -> ExitStatus? {
        guard let status = process.waitForExit(within: patience) else { return nil }
        collectOutput()
        return status
    }

    /// What it wrote last may still be in the pipe. A child of it that holds the pipe is not waited for long.
    private func collectOutput() {
        for buffer in [output, errorOutput] {
            _ = buffer.wait(Self.grace) { $0.isAtEnd ? true : nil }
        }
    }

    private static let grace = Patience.work(.seconds(30), because: "a child of it may hold its output open")

    /// Waits for the end of the process and of its output.
    func result() throws -> CommandResult {
        CommandResult(
            commandLine: commandLine, status: try waitForExit(within: Self.grace), standardOutput: standardOutput,
            standardError: standardError)
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

            while true {
                let bytes = queue.wait { $0.take() }
                if bytes.isEmpty { return }
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

    func lastLines(_ count: Int) -> String {
        // No line is as long as that on average.
        let end = String(decoding: bytes.suffix(count * 400), as: UTF8.self)
        let lines = end.split(separator: "\n", omittingEmptySubsequences: false)
        let shown = lines.suffix(end.hasSuffix("\n") ? count + 1 : count)
        return (shown.count < lines.count ? "…\n" : "") + shown.joined(separator: "\n")
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

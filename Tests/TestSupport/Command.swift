// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What a finished command left behind.
public struct CommandResult: Sendable, CustomStringConvertible {
    /// The command line, for messages.
    public let commandLine: String
    /// How the process ended.
    public let status: ExitStatus
    /// All that it wrote to its standard output. Bytes that are not UTF-8 are replaced.
    public let standardOutput: String
    /// All that it wrote to its standard error.
    public let standardError: String

    /// The exit code, or 128 plus the number of the signal that ended it.
    public var exitCode: Int32 {
        status.code
    }

    /// The command, its end and its output, for the comment of a failed expectation.
    public var description: String {
        transcript(of: commandLine, status: status, standardOutput: standardOutput, standardError: standardError)
    }
}

/// A command that did not end in time; it was killed.
public struct CommandTimedOut: Error, Sendable, CustomStringConvertible {
    public let patience: Patience
    /// What it wrote until then. The status is that of the kill.
    public let result: CommandResult

    public var description: String {
        "not finished within \(patience): \(result)"
    }
}

/// Commands that are waited for.
public enum Command {
    /// Runs a command to its end. Blocks the calling thread; any number of threads can do so at once. The output pipes
    /// are always read, so that no amount of output blocks the command.
    ///
    /// - Parameters:
    ///   - executable: a path, or a name that is looked up in PATH.
    ///   - arguments: its arguments, without argument 0.
    ///   - environment: its whole environment; nil = that of this process.
    ///   - input: what it reads from its standard input, which then ends.
    ///   - patience: after this time it is killed.
    /// - Throws: ``SystemError`` when it can't be started, ``CommandTimedOut`` when it was killed. An exit code other
    ///   than 0 is no error here.
    @discardableResult
    public static func run(
        _ executable: String, _ arguments: [String] = [], environment: [String: String]? = nil, input: String = "",
        within patience: Patience = .start
    ) throws -> CommandResult {
        let command = try RunningCommand(executable, arguments, environment: environment, input: input)
        do {
            _ = try command.waitForExit(within: patience)
        } catch is NotInTime {
            command.kill()
            throw CommandTimedOut(patience: patience, result: try command.result())
        }
        return try command.result()
    }

    /// The path of an executable.
    ///
    /// - Parameters:
    ///   - name: a name without slashes, or a path, which is returned as it is if it can be executed.
    ///   - environment: whose PATH is searched; nil = this process's.
    /// - Returns: nil if there is none.
    public static func find(_ name: String, environment: [String: String]? = nil) -> String? {
        let files = FileManager.default
        if name.contains("/") {
            return files.isExecutableFile(atPath: name) ? name : nil
        }
        let path = (environment ?? ProcessInfo.processInfo.environment)["PATH"] ?? "/usr/local/bin:/usr/bin:/bin"
        return path.split(separator: ":").lazy
            .map { "\($0)/\(name)" }
            .first { files.isExecutableFile(atPath: $0) }
    }
}

/// One text for a failed expectation: what ran, how it ended, and all that it wrote.
func transcript(of commandLine: String, status: ExitStatus?, standardOutput: String, standardError: String) -> String {
    var lines = ["$ \(commandLine)", status.map { "(\($0))" } ?? "(still running)"]
    if !standardOutput.isEmpty {
        lines += ["--- standard output", standardOutput]
    }
    if !standardError.isEmpty {
        lines += ["--- standard error", standardError]
    }
    return lines.joined(separator: "\n")
}

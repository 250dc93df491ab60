// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation

/// A terminal that a program runs in and that can be read: a session of a tmux of its own. It ends with this object.
final class TmuxScreen: Sendable {
    static let isInstalled = Command.find("tmux") != nil

    private let directory: TemporaryDirectory
    private let environment: [String: String]
    private let server: RunningCommand

    /// Starts a shell on the screen.
    init(columns: Int = 120, lines: Int = 30, environment: [String: String]) throws {
        directory = try TemporaryDirectory()
        var environment = environment.filter { !$0.key.hasPrefix("TMUX") && !["COLUMNS", "LINES"].contains($0.key) }
        environment["ENV"] = nil
        environment["TERM"] = "xterm"
        self.environment = environment
        server = try RunningCommand(
            "tmux", ["-S", directory.entry("socket"), "-f", "/dev/null", "-u", "-D"], environment: environment)
        var last: CommandResult?
        try eventually("tmux answers: \(server.transcript) \(last.map(String.init(describing:)) ?? "")") {
            guard server.isRunning else { throw NotInTime("tmux ended: \(server.transcript)") }
            last = try tmux("new-session", "-d", "-s", "s", "-x", "\(columns)", "-y", "\(lines)", "/bin/sh")
            return last?.exitCode == 0
        }
    }

    /// - Parameter arguments: a command; it starts no server, which would outlive the tests.
    private func tmux(_ arguments: String...) throws -> CommandResult {
        try Command.run(
            "tmux", ["-S", directory.entry("socket"), "-u", "-N"] + arguments, environment: environment,
            within: .event)
    }

    private func done(_ result: CommandResult) throws -> String {
        guard result.exitCode == 0 else { throw NotInTime("\(result)") }
        return result.standardOutput
    }

    /// Presses keys, each as tmux names it.
    func press(_ keys: String...) throws {
        for key in keys { _ = try done(tmux("send-keys", "-t", "s", key)) }
    }

    /// Types a text as it is.
    func type(_ text: String) throws {
        _ = try done(tmux("send-keys", "-t", "s", "-l", text))
    }

    /// Has the shell run something.
    func run(_ line: String) throws {
        try type(line)
        try press("Enter")
    }

    func resize(columns: Int, lines: Int) throws {
        _ = try done(tmux("resize-window", "-t", "s", "-x", "\(columns)", "-y", "\(lines)"))
    }

    /// What is on the screen, line by line.
    func lines() throws -> [String] {
        try done(tmux("capture-pane", "-p", "-t", "s")).split(separator: "\n", omittingEmptySubsequences: false)
            .map(String.init)
    }

    /// One of tmux's variables, such as `alternate_on`.
    func variable(_ name: String) throws -> String {
        try done(tmux("display-message", "-p", "-t", "s", "#{\(name)}")).trimmingCharacters(in: .newlines)
    }

    /// Waits until the screen is as wanted.
    @discardableResult
    func wait(
        _ what: String, within patience: Patience = .start, _ condition: ([String]) -> Bool
    ) throws -> [String] {
        var last: [String] = []
        do {
            try eventually(what, within: patience, every: .milliseconds(30)) {
                last = try lines()
                return condition(last)
            }
        } catch let error as NotInTime {
            throw NotInTime("\(error)\n\(last.joined(separator: "\n"))")
        }
        return last
    }

    /// Waits until a line holds a text.
    @discardableResult
    func wait(for text: String) throws -> [String] {
        try wait("'\(text)' is on the screen") { lines in lines.contains { $0.contains(text) } }
    }
}

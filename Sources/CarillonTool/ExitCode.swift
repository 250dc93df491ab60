// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The exit codes of all commands, which are documented for scripts.
enum ExitCode: Int32, CaseIterable {
    case done = 0
    /// The arguments were wrong, or the service refused them.
    case usage = 1
    /// There is no bus, or no service on it.
    case unavailable = 2
    case timedOut = 3
    /// Notifications were lost before this command could process them.
    case lost = 4
    /// Standard output could not be written.
    case outputFailed = 5
    /// There is no such value, or no such client.
    case nothing = 6
    /// A command of `--exec` failed.
    case commandFailed = 7
    /// Interrupted before the work was done (128 + SIGINT, as shells count).
    case interrupted = 130
}

/// The error for wrong arguments; the command ends with ``ExitCode/usage``.
typealias UsageError = CommandLineParser.UsageError

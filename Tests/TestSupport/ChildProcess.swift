// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// How a process ended.
public enum ExitStatus: Equatable, Sendable, CustomStringConvertible {
    /// It exited by itself, with this code.
    case exited(Int32)
    /// This signal ended it.
    case signalled(Int32)

    /// The code as a shell gives it: the exit code, or 128 plus the number of the signal.
    public var code: Int32 {
        switch self {
        case .exited(let code): code
        case .signalled(let signal): 128 + signal
        }
    }

    public var description: String {
        switch self {
        case .exited(let code): "exited with code \(code)"
        case .signalled(let signal): "ended by signal \(signal) (\(String(cString: strsignal(signal))))"
        }
    }

    fileprivate init(waitStatus: Int32) {
        let signal = waitStatus & 0x7f
        self = signal == 0 ? .exited((waitStatus >> 8) & 0xff) : .signalled(signal)
    }
}

/// A child of this process: started, signalled by its pid, and reaped.
///
/// It uses `posix_spawn` and a waiting thread for each child instead of `Foundation.Process`, so that any number of
/// threads can start children at once: a child gets exactly the descriptors that it is given, default signal handlers
/// and an empty signal mask, and no run loop is needed to learn of its end.
final class ChildProcess: Sendable {
    let pid: pid_t
    private let ending: Monitor<ExitStatus?>

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - executable: the path of the program.
    ///   - arguments: its arguments, without argument 0.
    ///   - environment: its whole environment.
    ///   - descriptors: what the child finds at descriptor 0, 1, 2 and so on. It inherits nothing else.
    init(
        executable: String, arguments: [String], environment: [String: String], descriptors: [FileDescriptor]
    ) throws {
        // Copies out of the range that is written to, so that no dup2 overwrites the source of a later one.
        let sources = try descriptors.map { try $0.duplicate(atLeast: Int32(descriptors.count)) }

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (target, source) in sources.enumerated() {
            posix_spawn_file_actions_adddup2(&actions, source.rawValue, Int32(target))
        }
        GNUExtensions.addCloseFrom(Int32(descriptors.count), to: &actions)

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))

        let argumentVector = CStringVector([executable] + arguments)
        let environmentVector = CStringVector(environment.map { "\($0)=\($1)" })
        var started: pid_t = 0
        // An optimised build would end them at their last use, which is before this.
        let failure = withExtendedLifetime((sources, argumentVector, environmentVector)) {
            posix_spawn(
                &started, executable, &actions, &attributes, argumentVector.pointers, environmentVector.pointers)
        }
        guard failure == 0 else {
            throw SystemError("start \(executable)", code: failure)
        }
        let pid = started
        self.pid = pid

        let ending = Monitor<ExitStatus?>(nil)
        self.ending = ending
        Thread { ChildProcess.reap(pid, into: ending) }.start()
    }

    /// Waits for the end of the child without reaping it, then reaps it under the lock, so that its pid can't be given
    /// to another process between the look at `ending` and the `kill` in ``signal(_:)``.
    private static func reap(_ pid: pid_t, into ending: Monitor<ExitStatus?>) {
        var information = siginfo_t()
        _ = retryingOnInterrupt { waitid(P_PID, id_t(pid), &information, WEXITED | WNOWAIT) }
        ending.update { status in
            var waitStatus: Int32 = 0
            _ = retryingOnInterrupt { waitpid(pid, &waitStatus, 0) }
            status = ExitStatus(waitStatus: waitStatus)
        }
    }

    /// How it ended; nil while it runs.
    var status: ExitStatus? {
        ending.update { $0 }
    }

    /// Sends a signal to the child if it still runs.
    func signal(_ number: Int32) {
        ending.update { status in
            if status == nil {
                kill(pid, number)
            }
        }
    }

    /// Blocks until the child ended.
    ///
    /// - Returns: how, or nil when it still runs in the end.
    func waitForExit(within patience: Patience) -> ExitStatus? {
        ending.wait(patience) { $0 }
    }
}

/// A null-terminated array of C strings, as the exec family takes them.
private final class CStringVector {
    let pointers: [UnsafeMutablePointer<CChar>?]

    init(_ strings: [String]) {
        pointers = strings.map { strdup($0) } + [nil]
    }

    deinit {
        for pointer in pointers {
            free(pointer)
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A child process, started by GLib's `g_spawn`, whose end is reported to a closure. `carillon` runs the
/// commands of `--exec`, `carillon wait` and `carillon check` with it.
///
/// The program writes to the same output and error streams as this process, and inherits no other descriptor. Its input
/// is a file in memory and not a pipe: then this process never blocks on a child that does not read. The release of
/// this object does not end the program, but its end is then not reported.
///
/// Threads: all members are used on the thread that runs the context.
package final class ChildProgram {
    /// The way in which the program ended.
    package enum Ending: Hashable, Sendable {
        case exited(Int32)
        case killed(signal: Int32)

        /// The status as a shell counts it: 128 and the signal's number if a signal ended the program.
        package var status: Int32 {
            switch self {
            case .exited(let status): status
            case .killed(let signal): 128 + signal
            }
        }
    }

    /// The error when a program can't be started.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
    }

    private let watch: UnsafeMutablePointer<GSource>

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - arguments: the program, which is searched in PATH, and its arguments.
    ///   - variables: the variables of its environment in addition to those of this process.
    ///   - input: its standard input; nil for the standard input of this process.
    ///   - context: the context whose loop notices the end of the program and calls `ended`.
    ///   - ended: called once, when the program has ended.
    /// - Throws: ``Failure`` with a text for a person, for example when there is no such program.
    package init(
        _ arguments: [String], variables: [(name: String, value: String)] = [], input: [UInt8]? = nil,
        on context: MainContext, ended: @escaping (Ending) -> Void
    ) throws(Failure) {
        let inputDescriptor = try input.map { bytes throws(Failure) in try Self.descriptor(reading: bytes) } ?? -1
        defer { if inputDescriptor >= 0 { close(inputDescriptor) } }
        var environment = g_get_environ()
        for (name, value) in variables { environment = g_environ_setenv(environment, name, value, 1) }
        defer { g_strfreev(environment) }
        var vector: [UnsafeMutablePointer<CChar>?] = arguments.map { g_strdup($0) } + [nil]
        defer { vector.forEach { g_free($0) } }

        var pid: GPid = 0
        var error: UnsafeMutablePointer<GError>?
        var flags = G_SPAWN_DO_NOT_REAP_CHILD.rawValue | G_SPAWN_SEARCH_PATH.rawValue
        if input == nil { flags |= G_SPAWN_CHILD_INHERITS_STDIN.rawValue }
        // The child inherits a stream for -1, except for standard input.
        guard
            g_spawn_async_with_fds(
                nil, &vector, environment, GSpawnFlags(flags), nil, nil, &pid, inputDescriptor, -1, -1, &error) != 0
        else {
            defer { g_error_free(error) }
            throw Failure(description: String(cString: error!.pointee.message))
        }
        watch = g_child_watch_source_new(pid)
        let action = Unmanaged.passRetained(EndAction(run: ended)).toOpaque()
        let callback: GChildWatchFunc = { pid, status, data in
            g_spawn_close_pid(pid)
            // The format of `waitpid`: the low seven bits hold the signal, and the next byte holds the exit status.
            let signal = status & 0x7F
            Unmanaged<EndAction>.fromOpaque(data!).takeUnretainedValue()
                .run(signal == 0 ? .exited(status >> 8 & 0xFF) : .killed(signal: signal))
        }
        g_source_set_callback(watch, unsafeBitCast(callback, to: GSourceFunc.self), action) { data in
            Unmanaged<EndAction>.fromOpaque(data!).release()
        }
        watch.attach(to: context.pointer)
    }

    deinit {
        g_source_destroy(watch)
        g_source_unref(watch)
    }

    /// Returns a descriptor of a file in memory from which a program reads `bytes`, followed by the end of the file.
    private static func descriptor(reading bytes: [UInt8]) throws(Failure) -> Int32 {
        let descriptor = carillon_memory_file()
        guard descriptor >= 0 else { throw failure("the program's input") }
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                defer { close(descriptor) }
                throw failure("the program's input")
            }
            rest = rest.dropFirst(count)
        }
        lseek(descriptor, 0, SEEK_SET)
        return descriptor
    }

    private static func failure(_ what: String) -> Failure {
        Failure(description: "\(what): \(String(cString: strerror(errno)))")
    }
}

/// The closure for the end of a program, as an object that C code can hold.
private final class EndAction {
    let run: (ChildProgram.Ending) -> Void

    init(run: @escaping (ChildProgram.Ending) -> Void) {
        self.run = run
    }
}

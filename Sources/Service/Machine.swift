// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonDBus
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The environment of a service: bus connections, files, processes, clocks and configuration, as replaceable functions.
///
/// All input of the service except the time of its loop comes through this type. ``own(address:)`` uses the real
/// machine, and a deterministic simulation replaces every part (E7).
package struct Machine {
    /// The address of the session bus, in the syntax of D-Bus. It is written into the recovery log, so that a later
    /// process can find out whether that bus still exists.
    var address: String
    /// Makes a new connection to the bus. Hello, the call that registers a connection, has not been sent on it yet.
    var connect: (MainContext, EventSource.Priority) throws(BusError) -> Connection
    /// The directory for state that outlives the process (`XDG_RUNTIME_DIR`); nil where there is none.
    var runtimeDirectory: String?
    /// The file system for the recovery log.
    var files: any StateFiles
    /// The kernel's information about processes.
    var processes: any ProcessTable
    /// The desktop environment to which the process itself belongs.
    var session: SessionEnvironment
    /// Whether a running sandbox has, or had shortly before, the permission to call the service.
    var maySandboxesCall: () -> Bool
    /// Reads the configuration files.
    var readConfiguration: () -> Configuration.Reading
    /// Returns the kernel's table of sockets; nil where it is not available.
    var sockets: () -> (any SocketTable)?
    /// Makes the socket pair of a channel: the service's own non-blocking end, and the other end for the client. Nil
    /// where no descriptors are left.
    var makeStream: () -> (own: any ChannelStream, other: FileDescriptor)? = ChannelSocket.makePair
    /// The present, in microseconds since 1970 in UTC.
    var time: () -> Int64 = realTime
    /// The time since the machine started, in microseconds, including the time in which it was asleep.
    var uptime: () -> Int64 = bootTime
    /// Releases mapped pages of program files that the process does not need (``UnusedPages``); nil in a simulation.
    var releasePages: (() -> Void)?
    /// Makes a new connection to the system bus, as `connect` does; nil where no system bus is available.
    var connectToSystemBus: ((MainContext, EventSource.Priority) throws(BusError) -> any BusConnection)?
    /// Called for each method call that is served, so that a simulation can let time pass.
    var noteServing: () -> Void = {}

    /// Returns the real machine on which the process runs.
    static func own(address: String) -> Machine {
        Machine(
            address: address,
            connect: { context, priority throws(BusError) in
                try Connection(address: address, context: context, priority: priority)
            },
            runtimeDirectory: ownRuntimeDirectory(), files: SystemFiles(),
            processes: RecentProcesses(of: ProcFileSystem()), session: .own,
            maySandboxesCall: { [instances = FlatpakInstances.ofSession()] in instances.mayTalk(to: Wire.busName) },
            readConfiguration: { .ofMachine() }, sockets: { UnixSockets() },
            releasePages: UnusedPages.releaseAll,
            connectToSystemBus: { context, priority throws(BusError) in
                try Connection(address: Connection.systemBusAddress, context: context, priority: priority)
            })
    }

    /// Returns a simulated machine, without a desktop and without the kernel's table of sockets. The parameters are the
    /// properties of the same names.
    package static func simulated(
        address: String, runtimeDirectory: String, files: any StateFiles, processes: any ProcessTable,
        maySandboxesCall: Bool = false,
        configuration: @escaping () -> Configuration.Reading,
        connect: @escaping (MainContext, EventSource.Priority) throws(BusError) -> Connection,
        makeStream: @escaping () -> (own: any ChannelStream, other: FileDescriptor)? = { nil },
        time: @escaping () -> Int64 = { 0 }, uptime: @escaping () -> Int64 = { 0 },
        connectToSystemBus: ((MainContext, EventSource.Priority) throws(BusError) -> any BusConnection)? = nil,
        noteServing: @escaping () -> Void = {}
    ) -> Machine {
        Machine(
            address: address, connect: connect, runtimeDirectory: runtimeDirectory, files: files,
            processes: processes, session: .none, maySandboxesCall: { maySandboxesCall },
            readConfiguration: configuration, sockets: { nil }, makeStream: makeStream, time: time,
            uptime: uptime, connectToSystemBus: connectToSystemBus, noteServing: noteServing)
    }
}

private func realTime() -> Int64 { microseconds(of: CLOCK_REALTIME) }

private func bootTime() -> Int64 { microseconds(of: CLOCK_BOOTTIME) }

private func microseconds(of clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000
}

private func ownRuntimeDirectory() -> String? {
    guard let directory = getenv("XDG_RUNTIME_DIR"), directory[0] == UInt8(ascii: "/") else { return nil }
    return String(cString: directory)
}

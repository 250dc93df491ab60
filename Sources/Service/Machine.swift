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

/// The environment that a service takes from its machine. All of the service's input except the time of its context
/// comes through here, so that a simulation can replace it (E7).
package struct Machine {
    /// The address of the bus, in the syntax of D-Bus. A later reader of the state tests whether a bus listens there.
    var address: String
    /// Makes a new connection to the bus, which has not sent Hello yet.
    var connect: (MainContext, EventSource.Priority) throws(BusError) -> Connection
    /// The directory for state that outlives the process; nil where there is none.
    var runtimeDirectory: String?
    var files: any StateFiles
    var processes: any ProcessTable
    /// The desktop environment to which the process itself belongs.
    var session: SessionEnvironment
    /// Whether an application in a sandbox could have called until now.
    var maySandboxesCall: () -> Bool
    var readConfiguration: () -> Configuration.Reading
    /// Returns the kernel's table of sockets; nil where it is not available.
    var sockets: () -> (any SocketTable)?
    /// Returns both ends of a non-blocking stream; nil where no descriptors are left.
    var makeStream: () -> (own: any ChannelStream, other: FileDescriptor)? = ChannelSocket.makePair
    /// Microseconds since 1970 in UTC.
    var time: () -> Int64 = realTime
    /// Microseconds since the machine started, including suspended time.
    var uptime: () -> Int64 = bootTime
    /// Releases mapped file pages that the process does not need; nil where there is no such function.
    var releasePages: (() -> Void)?
    /// Makes a new connection to the system bus, which has not sent Hello yet; nil where no system bus is available.
    var connectToSystemBus: ((MainContext, EventSource.Priority) throws(BusError) -> any BusConnection)?
    /// Called for each call when it is served, for a simulation in which serving takes time.
    var noteServing: () -> Void = {}

    /// Returns the machine on which the process runs.
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
            releasePages: UnusedPages.letGo,
            connectToSystemBus: { context, priority throws(BusError) in
                try Connection(address: Connection.systemBusAddress, context: context, priority: priority)
            })
    }

    /// Returns a simulated machine, without a desktop and without the kernel's table of sockets.
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

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

/// What a service takes from the machine that it runs on. All that it sees of the world, but time, which is its context's,
/// comes through here, so that a simulation can be one (E7).
package struct Machine {
    /// Of the bus, in the syntax of D-Bus: whoever reads the state later tries whether something listens there.
    var address: String
    /// A new connection to the bus, which has not said hello yet.
    var connect: (MainContext, EventSource.Priority) throws(BusError) -> Connection
    /// Where state goes that shall outlive the process; nil where there is no such place.
    var runtimeDirectory: String?
    var files: any StateFiles
    var processes: any ProcessTable
    /// The desktop that the process itself belongs to.
    var session: SessionEnvironment
    /// Whether an application in a sandbox could have called until now.
    var maySandboxesCall: () -> Bool
    var readConfiguration: () -> Configuration.Reading
    /// What the kernel tells of sockets; nil where it does not.
    var sockets: () -> (any SocketTable)?
    /// The two ends of a stream that does not block; nil where there are no descriptors left.
    var makeStream: () -> (own: any ChannelStream, other: FileDescriptor)? = ChannelSocket.makePair
    /// Microseconds since 1970 in UTC.
    var time: () -> Int64 = realTime
    /// Microseconds since the machine started, with those in which it slept.
    var uptime: () -> Int64 = bootTime
    /// Gives back what the process has mapped of files and does not need; nil where that is nothing.
    var letGoOfPages: (() -> Void)?
    /// A new connection to the system bus, which has not said hello yet; nil where there is none to be had.
    var connectToSystemBus: ((MainContext, EventSource.Priority) throws(BusError) -> any BusConnection)?
    /// Told of each call when it is served, for a simulation in which that takes time.
    var noteServing: () -> Void = {}

    /// This one.
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
            letGoOfPages: UnusedPages.letGo,
            connectToSystemBus: { context, priority throws(BusError) in
                try Connection(address: Connection.systemBusAddress, context: context, priority: priority)
            })
    }

    /// A simulated one: without a desktop, or a kernel that tells of sockets.
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

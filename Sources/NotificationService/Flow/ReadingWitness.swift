import BusNames
import DBus
import MainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Tells whether connections read that never answer a Ping, as several libraries never do (B6): the kernel knows how much
/// waits unread in the sockets between their processes and the bus.
///
/// Asked only for such a connection, and only when it has used up its window. It then looks again, ever more seldom, until
/// nothing waits unread. Where the kernel does not tell (another machine, another container), each look takes a second
/// and lets the oldest window pass: a modest rate for ever is better than silence.
///
/// A process with several connections to the bus counts as reading when it reads all of them.
final class ReadingWitness {
    /// Gets what was found: true when all has been read that the bus had handed on, false when nothing tells.
    var onFinding: ((UniqueName, _ hasRead: Bool) -> Void)!

    private unowned let bus: any MessageBus
    private let sockets = UnixSockets()
    /// What the bus's ends of connections are bound to; nil as long as that was not asked.
    private var busName: [UInt8]??
    private var looks: [UniqueName: Look] = [:]

    private final class Look {
        var processID: UInt32?
        /// The sockets between the process and the bus.
        var inodes: [UInt32] = []
        var wait: UInt32 = 0
        var timer: EventSource?
        /// Whether nothing waited unread when it was looked at last: the bus may just have been about to write more.
        var wasEmpty = false
    }

    private static let firstWait: UInt32 = 5
    private static let longestWait: UInt32 = 2000
    private static let blindWait: UInt32 = 1000

    /// - Parameter bus: the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    deinit {
        sockets?.close()
    }

    /// Begins to look.
    func find(_ client: UniqueName) {
        let look = looks[client] ?? Look()
        looks[client] = look
        look.wait = Self.firstWait
        look.wasEmpty = false
        guard look.processID == nil else { return wait(look, client) }
        bus.processID(of: client) { [weak self] result in
            guard let self, looks[client] === look else { return }
            look.processID = (try? result.get()) ?? 0
            wait(look, client)
        }
    }

    func forget(_ client: UniqueName) {
        looks[client] = nil
    }

    private func wait(_ look: Look, _ client: UniqueName) {
        // Ahead of the posts: a flood of them would hold it up for as long as it lasts.
        look.timer = .once(milliseconds: look.wait, on: bus.context, priority: .of(.control)) {
            [weak self, weak look] in
            guard let self, let look, looks[client] === look else { return }
            self.look(look, client)
        }
    }

    private func look(_ look: Look, _ client: UniqueName) {
        guard let unread = unreadBytes(look) else {
            guard look.wait >= Self.blindWait else {
                look.wait = Self.blindWait
                return wait(look, client)
            }
            return onFinding(client, false)
        }
        if unread == 0, look.wasEmpty { return onFinding(client, true) }
        look.wasEmpty = unread == 0
        look.wait = unread == 0 ? Self.firstWait : min(look.wait * 2, Self.longestWait)
        wait(look, client)
    }

    /// Nil when there is no way to know.
    private func unreadBytes(_ look: Look) -> UInt32? {
        guard let sockets, let processID = look.processID, processID > 0 else { return nil }
        if let unread = unreadBytes(in: look.inodes, sockets) { return unread }
        // Not looked for yet, or one of them was closed.
        guard let name = nameOfBus(), let inodes = UnixSockets.inodes(of: processID) else { return nil }
        look.inodes = inodes.filter { inode in
            sockets[inode]?.peer.flatMap { sockets[$0]?.name } == name
        }
        return unreadBytes(in: look.inodes, sockets)
    }

    private func unreadBytes(in inodes: [UInt32], _ sockets: UnixSockets) -> UInt32? {
        guard !inodes.isEmpty else { return nil }
        var sum: UInt32 = 0
        for inode in inodes {
            guard let socket = sockets[inode], socket.peer != nil else { return nil }
            sum += socket.unreadBytes
        }
        return sum
    }

    /// What the other end of the service's own connection is bound to.
    private func nameOfBus() -> [UInt8]? {
        if let busName { return busName }
        var name: [UInt8]?
        if let sockets, let descriptor = (bus as? Connection)?.socket {
            var status = stat()
            if fstat(descriptor, &status) == 0, let peer = sockets[UInt32(truncatingIfNeeded: status.st_ino)]?.peer {
                name = sockets[peer]?.name
            }
        }
        busName = .some(name)
        return name
    }
}

// SPDX-License-Identifier: Apache-2.0
import BusNames
import DBus
import MainLoop
import NotificationCore

/// Tells whether connections read that never answer a Ping, as several libraries never do (B6): the kernel knows how much
/// waits unread in the sockets between their processes and the bus.
///
/// Asked only for such a connection, and only when it has used up its window. It then looks again, ever more seldom, until
/// nothing waits unread. Where the kernel does not tell (another machine, another container), each look takes a second
/// and lets the oldest window pass: a modest rate for ever is better than silence.
///
/// Which of several sockets of a process is the connection's is not told. So a process with several connections to the
/// bus counts as reading when it reads all of them, apart from what was found to be another's: what stands unread there
/// does not change while a window is sent to the connection, and another socket is empty. A library leaves the news of
/// its name unread that way, until its program first waits for something.
final class ReadingWitness {
    /// Gets what was found: true when all has been read that the bus had handed on, false when nothing tells.
    var onFinding: ((UniqueName, _ hasRead: Bool) -> Void)!
    /// Whether the bus may not have handed on yet what was sent: then nothing that lies unread tells anything.
    var isOnTheWay: ((UniqueName) -> Bool)!

    private unowned let bus: any MessageBus
    private let sockets: (any SocketTable)?
    private let socketOfBus: () -> Int32?
    /// Counts what each look takes (E8).
    let meter = StepMeter()
    /// What the bus's ends of connections are bound to; nil as long as that was not asked.
    private var busName: [UInt8]??
    private var looks: [UniqueName: Look] = [:]

    private final class Look {
        var processID: UInt32?
        /// The sockets between the process and the bus.
        var inodes: [UInt32] = []
        var wait: UInt32 = 0
        var timer: EventSource?
        /// What waited unread in which socket when it was looked at last; nil before. The bus may just have been about
        /// to write more.
        var unread: [UInt32: UInt32]?
        /// What stood so when a window was let pass, to see whether it comes there.
        var standing: [UInt32: UInt32] = [:]
        /// What stands unread on other connections of the process.
        var others: [UInt32: UInt32] = [:]
    }

    private static let firstWait: UInt32 = 5
    private static let longestWait: UInt32 = 2000
    private static let blindWait: UInt32 = 1000
    private static let longestWaitForBus: UInt32 = 80
    /// More than that in one socket may be all that it holds: that it does not change tells nothing then.
    private static let mostStanding: UInt32 = 32 << 10

    /// - Parameters:
    ///   - bus: the caller keeps it.
    ///   - socket: tells the descriptor of the connection to it; nil where there is none.
    ///   - sockets: those of the machine; nil where the kernel does not tell.
    init(bus: any MessageBus, socket: @escaping () -> Int32?, sockets: (any SocketTable)?) {
        self.bus = bus
        socketOfBus = socket
        self.sockets = sockets
    }

    /// Begins to look.
    func find(_ client: UniqueName) {
        let look = looks[client] ?? Look()
        looks[client] = look
        look.wait = Self.firstWait
        look.unread = nil
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
            meter.endEvent("witness")
        }
    }

    private func look(_ look: Look, _ client: UniqueName) {
        guard !isOnTheWay(client) else {
            look.unread = nil
            look.wait = min(look.wait * 2, Self.longestWaitForBus)
            return wait(look, client)
        }
        guard let sockets = unreadBytes(look) else {
            guard look.wait >= Self.blindWait else {
                look.wait = Self.blindWait
                return wait(look, client)
            }
            return onFinding(client, false)
        }
        // Something came or went there: it may be ours.
        look.others = look.others.filter { sockets[$0.key] == $0.value }
        let unread = sockets.filter { $0.value > 0 && look.others[$0.key] == nil }
        if unread.isEmpty, look.unread?.isEmpty == true { return onFinding(client, true) }
        if look.wait >= Self.blindWait, unread == look.unread, unread.count + look.others.count < sockets.count,
            unread.values.allSatisfy({ $0 <= Self.mostStanding })
        {
            guard unread == look.standing else {
                look.standing = unread
                return onFinding(client, false)
            }
            look.others.merge(unread) { $1 }
        }
        look.wait = unread.isEmpty || look.unread == nil ? Self.firstWait : min(look.wait * 2, Self.longestWait)
        look.unread = unread
        wait(look, client)
    }

    /// What waits unread in each socket between the process and the bus. Nil when there is no way to know.
    private func unreadBytes(_ look: Look) -> [UInt32: UInt32]? {
        guard let sockets, let processID = look.processID, processID > 0 else { return nil }
        let before = sockets.systemCalls
        defer { meter.countSystemCalls(sockets.systemCalls - before) }
        if let unread = unreadBytes(in: look.inodes, sockets) { return unread }
        // Not looked for yet, or one of them was closed.
        guard let name = nameOfBus(), let inodes = sockets.inodes(of: processID) else { return nil }
        look.inodes = inodes.filter { inode in
            sockets[inode]?.peer.flatMap { sockets[$0]?.name } == name
        }
        return unreadBytes(in: look.inodes, sockets)
    }

    private func unreadBytes(in inodes: [UInt32], _ sockets: any SocketTable) -> [UInt32: UInt32]? {
        guard !inodes.isEmpty else { return nil }
        var unread: [UInt32: UInt32] = [:]
        for inode in inodes {
            guard let socket = sockets[inode], socket.peer != nil else { return nil }
            unread[inode] = socket.unreadBytes
        }
        return unread
    }

    /// What the other end of the service's own connection is bound to.
    private func nameOfBus() -> [UInt8]? {
        if let busName { return busName }
        var name: [UInt8]?
        if let sockets, let descriptor = socketOfBus(), let inode = sockets.inode(of: descriptor),
            let peer = sockets[inode]?.peer
        {
            name = sockets[peer]?.name
        }
        busName = .some(name)
        return name
    }
}

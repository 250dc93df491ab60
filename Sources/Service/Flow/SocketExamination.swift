// SPDX-License-Identifier: Apache-2.0
/// A look at some sockets, part by part.
///
/// Unchecked: the loop hands it to a thread for a part, and leaves it alone until that has ended.
final class SocketExamination: @unchecked Sendable {
    // Sendable: one thread at a time uses it.

    /// Sockets about which the kernel is asked one by one. Where more are to be looked at, all are listed.
    private static let socketsAtOnce = 8
    /// Those that two listings have not shown and that are asked about all the same. More are no unix sockets, or closed.
    private static let maxLeftOut = 64

    /// Nil once they are in ``left``.
    private var sockets: [UInt32]?
    /// The name that the bus's ends are bound to, where those are looked for that lead there; nil where it is asked what lies
    /// unread.
    private let busName: [UInt8]?
    /// Where nothing leads anywhere but to the bus: of those that are there, the bytes that lie unread.
    private(set) var unread: [UInt32: UInt32] = [:]
    /// Those whose other end is the bus's, each once.
    private(set) var leadingToBus: [UInt32] = []
    /// Those of which nothing is known yet.
    private var left: Set<UInt32> = []
    private var listings = 0
    /// Where all of the machine are listed.
    private var list: (any SocketList)?
    private(set) var systemCalls = 0

    init(of sockets: [UInt32], leadingTo busName: [UInt8]? = nil) {
        self.sockets = sockets
        self.busName = busName
    }

    /// Whether it has a descriptor of this process's for as long as there are more parts, or is about to.
    var takesDescriptor: Bool { sockets.map { $0.count > Self.socketsAtOnce } ?? (list != nil) }

    /// Does the next part. Returns whether there is more.
    func goOn(in table: any SocketTable) -> Bool {
        if let sockets = sockets.take() {
            left = Set(sockets)
            guard left.count > Self.socketsAtOnce else { return askAboutSome(in: table) }
            beginListing(in: table)
            return true
        }
        guard let list else { return askAboutSome(in: table) }
        let before = list.systemCalls
        defer { systemCalls += list.systemCalls - before }
        if let some = list.next() {
            for (inode, socket) in some { note(inode, socket) }
        } else {
            // It may have left out some, or have ended early.
            self.list = nil
            if left.count > Self.maxLeftOut {
                if listings < 2 { beginListing(in: table) } else { left = [] }
            }
        }
        return !left.isEmpty
    }

    private func beginListing(in table: any SocketTable) {
        listings += 1
        list = table.all()
    }

    private func askAboutSome(in table: any SocketTable) -> Bool {
        for _ in 0..<Self.socketsAtOnce {
            guard let inode = left.popFirst() else { break }
            guard let socket = table[inode], let peer = socket.peer else { continue }
            if busName == nil {
                unread[inode] = socket.unreadBytes
            } else if table[peer]?.name == busName {
                leadingToBus.append(inode)
            }
        }
        return !left.isEmpty
    }

    private func note(_ inode: UInt32, _ socket: UnixSocket) {
        if busName == nil {
            if left.remove(inode) != nil, socket.peer != nil { unread[inode] = socket.unreadBytes }
        } else if let peer = socket.peer {
            if left.remove(peer) != nil, socket.name == busName { leadingToBus.append(peer) }
        } else {
            left.remove(inode)
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
/// An examination of some sockets, part by part.
///
/// Unchecked: the loop hands it to a thread for one part, and does not use it until that part has ended.
final class SocketExamination: @unchecked Sendable {
    // Sendable: one thread at a time uses it.

    /// The sockets about which the kernel is asked one by one. For more sockets, all sockets of the machine are listed.
    private static let socketsAtOnce = 8
    /// The sockets that are asked about one by one although two listings have not shown them. If there are more, they
    /// are no unix sockets, or closed.
    private static let maxLeftOut = 64

    /// The sockets to examine; nil once they are in ``left``.
    private var sockets: [UInt32]?
    /// The name to which the bus's ends are bound, in a search for sockets that lead to the bus; nil in a search for
    /// unread bytes.
    private let busName: [UInt8]?
    /// The unread bytes of each connected socket, in a search for unread bytes.
    private(set) var unread: [UInt32: UInt32] = [:]
    /// The sockets whose other end is the bus's, each once.
    private(set) var leadingToBus: [UInt32] = []
    /// The sockets that have not been examined.
    private var left: Set<UInt32> = []
    private var listings = 0
    /// The listing of the machine's sockets, while there is one.
    private var list: (any SocketList)?
    private(set) var systemCalls = 0

    init(of sockets: [UInt32], leadingTo busName: [UInt8]? = nil) {
        self.sockets = sockets
        self.busName = busName
    }

    /// Whether the examination holds a descriptor of this process while more parts follow, or is about to.
    var takesDescriptor: Bool { sockets.map { $0.count > Self.socketsAtOnce } ?? (list != nil) }

    /// Runs the next part. Returns whether there are more.
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
            // The listing may have left out some sockets, or have ended early.
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

// SPDX-License-Identifier: Apache-2.0
/// A look at some sockets, part by part.
///
/// Unchecked: the loop hands it to a thread for a part, and leaves it alone until that has ended.
final class SocketExamination: @unchecked Sendable {
    // Sendable: one thread at a time uses it.

    /// Sockets about which the kernel is asked one by one. Where more are to be looked at, all are listed.
    private static let socketsAtOnce = 8

    private let sockets: Set<UInt32>
    /// Of those that are there, the bytes that lie unread.
    private(set) var unread: [UInt32: UInt32] = [:]
    /// Those whose other end is the bus's, if that was asked.
    private(set) var leadingToBus: [UInt32] = []
    /// Where they are asked about one by one, those that were not yet.
    private var left: ArraySlice<UInt32>
    /// Where all of the machine are listed.
    private var list: (any SocketList)?
    private var mayList: Bool

    init(of sockets: [UInt32]) {
        self.sockets = Set(sockets)
        left = sockets[...]
        mayList = sockets.count > Self.socketsAtOnce
    }

    var systemCalls: Int { list?.systemCalls ?? 0 }

    /// Does the next part. Returns whether there is more.
    ///
    /// - Parameter busName: what the bus's ends are bound to, where those are looked for that lead there; nil where not.
    func goOn(in table: any SocketTable, for busName: [UInt8]?) -> Bool {
        if mayList {
            mayList = false
            list = table.all()
            return true
        }
        if let list {
            if let some = list.next() {
                for (inode, socket) in some { note(inode, socket, for: busName) }
                return true
            }
            self.list = nil
            let missing = sockets.filter { unread[$0] == nil }
            // A few may have been left out.
            left = missing.count <= Self.socketsAtOnce ? Array(missing)[...] : []
            return !left.isEmpty
        }
        for inode in left.prefix(Self.socketsAtOnce) {
            guard let socket = table[inode], let peer = socket.peer else { continue }
            unread[inode] = socket.unreadBytes
            if let busName, table[peer]?.name == busName { leadingToBus.append(inode) }
        }
        left = left.dropFirst(Self.socketsAtOnce)
        return !left.isEmpty
    }

    private func note(_ inode: UInt32, _ socket: UnixSocket, for busName: [UInt8]?) {
        guard let peer = socket.peer else { return }
        if sockets.contains(inode) { unread[inode] = socket.unreadBytes }
        if let busName, socket.name == busName, sockets.contains(peer) { leadingToBus.append(peer) }
    }
}

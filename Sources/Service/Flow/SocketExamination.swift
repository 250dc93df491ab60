// SPDX-License-Identifier: Apache-2.0
/// A query to the kernel about some Unix sockets of one process, in bounded parts. ``SocketBacklogProbe`` runs the
/// parts on a worker thread, and other work between them.
///
/// An examination answers one of two questions: how many bytes are unread in each socket, or which sockets lead to the
/// bus. Up to ``socketsAtOnce`` sockets are looked up one by one. For more sockets all sockets of the machine are
/// listed, because the kernel searches all of them at each single lookup.
///
/// Sockets are identified by their inode numbers.
///
/// Unchecked: the loop hands it to a thread for one part, and does not use it until that part has ended.
final class SocketExamination: @unchecked Sendable {
    // Sendable: one thread at a time uses it.

    /// The maximum number of single lookups in a part.
    private static let socketsAtOnce = 8
    /// The maximum number of sockets that are looked up one by one after a listing has not shown them. If more are
    /// missing, a second listing follows. If more than this number are missing again, they are skipped: sockets that
    /// both listings have missed are not of the Unix family, or closed.
    private static let maxLeftOut = 64

    /// The sockets to examine; nil once they are in ``remaining``.
    private var sockets: [UInt32]?
    /// The address to which the bus's ends of its connections are bound, in a search for sockets that lead to the bus;
    /// nil in a query for unread bytes.
    private let busName: [UInt8]?
    /// The result of a query for unread bytes: the unread bytes of each connected socket.
    private(set) var unread: [UInt32: UInt32] = [:]
    /// The result of a search for sockets that lead to the bus, each once.
    private(set) var leadingToBus: [UInt32] = []
    /// The sockets that have not been examined.
    private var remaining: Set<UInt32> = []
    /// The number of listings that have begun.
    private var listings = 0
    /// The listing of the machine's sockets, while there is one.
    private var list: (any SocketList)?
    /// The number of system calls for listings so far. The socket table counts those for single lookups.
    private(set) var systemCalls = 0

    /// - Parameter busName: the address of the bus, for a search for sockets that lead to it; nil for unread bytes.
    init(of sockets: [UInt32], leadingTo busName: [UInt8]? = nil) {
        self.sockets = sockets
        self.busName = busName
    }

    /// Whether the examination has a listing open between two parts, or opens one in the next part. An open listing
    /// uses a file descriptor of the service.
    var takesDescriptor: Bool { sockets.map { $0.count > Self.socketsAtOnce } ?? (list != nil) }

    /// Runs the next part. Returns whether there are more.
    func runNextPart(in table: any SocketTable) -> Bool {
        if let sockets = sockets.take() {
            remaining = Set(sockets)
            guard remaining.count > Self.socketsAtOnce else { return lookUpSome(in: table) }
            beginListing(in: table)
            return true
        }
        guard let list else { return lookUpSome(in: table) }
        let before = list.systemCalls
        defer { systemCalls += list.systemCalls - before }
        if let some = list.next() {
            for (inode, socket) in some { note(inode, socket) }
        } else {
            // The listing has ended. It may have missed some sockets, or have ended early because of an error.
            self.list = nil
            if remaining.count > Self.maxLeftOut {
                if listings < 2 { beginListing(in: table) } else { remaining = [] }
            }
        }
        return !remaining.isEmpty
    }

    /// Opens a listing of all sockets of the machine, in place of an earlier one. If that is not possible, ``list``
    /// stays nil, and the next parts look up the sockets one by one.
    private func beginListing(in table: any SocketTable) {
        listings += 1
        list = table.all()
    }

    /// Looks up the next sockets one by one. Returns whether there are more.
    private func lookUpSome(in table: any SocketTable) -> Bool {
        for _ in 0..<Self.socketsAtOnce {
            guard let inode = remaining.popFirst() else { break }
            guard let socket = table[inode], let peer = socket.peer else { continue }
            if busName == nil {
                unread[inode] = socket.unreadBytes
            } else if table[peer]?.name == busName {
                leadingToBus.append(inode)
            }
        }
        return !remaining.isEmpty
    }

    /// Takes a socket from a listing. The bound address stands at the bus's end, so a search for sockets that lead to
    /// the bus looks at the listed socket as the other end of an examined one.
    private func note(_ inode: UInt32, _ socket: UnixSocket) {
        if busName == nil {
            if remaining.remove(inode) != nil, socket.peer != nil { unread[inode] = socket.unreadBytes }
        } else if let peer = socket.peer {
            if remaining.remove(peer) != nil, socket.name == busName { leadingToBus.append(peer) }
        } else {
            // A socket that is not connected leads nowhere.
            remaining.remove(inode)
        }
    }
}

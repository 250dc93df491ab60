// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The key of an account. An account is the unit to which resources are charged (E4): all connections of one process
/// share it, and so do all processes of one sandboxed application.
public enum AccountID: Hashable, Comparable, Sendable {
    /// A connection whose process and user are unknown; it has an account of its own.
    case connection(ClientName)
    /// A process, by its ID.
    case process(UInt32)
    /// The user of connections whose process is unknown, by the user ID.
    case user(UInt32)
    /// A sandboxed application, by its application ID.
    case sandbox(String)

    /// Whether this account comes first where two accounts use equally much. For two connections the older one is
    /// first, as the bus numbers them. For other accounts the order is arbitrary, but the same in each process.
    func isOlder(than other: AccountID) -> Bool {
        if case .connection(let name) = self, case .connection(let later) = other {
            name.isOlder(than: later)
        } else {
            self < other
        }
    }
}

/// The resources that one process, sandboxed application, user or connection uses. The center has one account for each
/// ``AccountID`` in use, and sorts them by ``size``: where memory is short, notifications are taken from the largest.
final class Account: Sizable {
    let id: AccountID
    /// The number of its present connections.
    var peers = 0
    /// The amounts that its connections use.
    var usage = Usage()
    /// The part of the usage that belongs to connections that have left the bus: their retained values.
    var departed = Usage()
    /// The part of the usage beyond a limit that was lowered. It does not count in the total, so that it takes no
    /// capacity from others. While there is any, the account gets nothing more.
    var excess = Usage()
    /// Its clients, the one with most queued bytes first.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var clients = LargestFirst<Peer>()
    /// Its connections that are blocked on the in-flight quota, the first to be unblocked first. ``BlockedOnQuota``
    /// maintains it.
    var blockedOnQuota = Deque<Peer>()
    /// Whether the account is in the round-robin of ``BlockedOnQuota``.
    var isInRotation = false
    /// Its position among all accounts (``LargestFirst``).
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var place = LargestFirstPlace()

    init(_ id: AccountID) {
        self.id = id
    }

    /// The bytes of its queued notifications and of the state of minimum intervals.
    var size: Int { usage[.queuedBytes] + usage[.intervalBytes] }

    func precedes(_ other: Account) -> Bool { id < other.id }
}

/// A connection on the bus that the center keeps, because it is a client, uses resources, or has unacknowledged
/// messages. A client is a connection with registrations or other state of its own; its ``Client`` refers to its peer.
final class Peer: Sizable {
    let name: ClientName
    /// The account that is charged for the connection. It changes when the process of the connection becomes known.
    var account: Account
    /// The amounts that the connection uses. They are a part of the usage of its account.
    var usage = Usage()
    /// Whether the center has a ``Client`` for the connection.
    var isClient = false
    /// The identity of its process; nil when it is unknown.
    var identity: Identity? {
        didSet { lastWithOrigin = nil }
    }
    /// The identity with the origin of its last post from another session. A bridge makes many posts with few origins,
    /// and the posts share this object.
    private var lastWithOrigin: Identity?
    /// The unacknowledged messages to the connection (A4).
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var flow = FlowWindow()
    /// The bytes that the connection has acknowledged since the center knows it.
    var confirmedBytes: UInt64 = 0
    /// The value of ``confirmedBytes`` when its channel was opened. It is nil when the connection has no channel, or
    /// when the bus is known to have delivered the descriptor of the channel. Later acknowledgments are of bytes in the
    /// channel. They do not show that the connection has the channel, or that it got earlier messages on the bus.
    var confirmedBeforeChannel: UInt64?
    /// The acknowledged bytes that the connection has for certain. Control signals beyond them are sent again after the
    /// end of the bus or of the service.
    var surelyConfirmedBytes: UInt64 { confirmedBeforeChannel ?? confirmedBytes }
    /// The sizes of its pending replies, in bytes, the oldest first. They wait for the window of the connection; the
    /// driver has their content. A size of 0 stands for a reply that was discarded.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var answers = Deque<Int>()
    /// The flow control of replies on the bus to a connection that has a channel for its other messages. It is nil
    /// without a channel, once all such replies are acknowledged.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var replies: BusReplyFlow?
    /// The number of its accepted posts.
    var posted: UInt64 = 0
    /// The number of its refused posts.
    var refused: UInt64 = 0
    /// Whether a restart restored the connection, and its process is not identified yet.
    var isRestored = false
    /// Whether the restored connection gets nothing until its process is identified. Until then it is unknown whether
    /// policy still allows its observers (P3).
    var awaitsIdentity = false
    /// Whether the connection is in the center's table of peers. A connection that left the bus is not; it may still be
    /// charged for queued posts and retained values.
    var isKnown = true
    /// The size of the retained values that the connection left behind. It is nil for a connection in the table of
    /// peers, and for one without values.
    var departed: DepartedPayers.Entry?
    /// Whether the bus is asked to report its departure although it is no client, because it is charged for retained
    /// values.
    var isDepartureWatched = false
    /// Whether the connection is in the list of unregistered peers. When that list is too long, the oldest are
    /// forgotten.
    var isListedUnregistered = false
    /// Its position among the clients of its account (``LargestFirst``).
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var place = LargestFirstPlace()

    init(name: ClientName, account: Account) {
        self.name = name
        self.account = account
    }

    /// Returns the identity for posts with this origin; nil as origin stands for this session.
    func identity(withOrigin origin: OutsideOrigin?) -> Identity? {
        guard let origin else { return identity }
        if let lastWithOrigin, lastWithOrigin.origin == origin { return lastWithOrigin }
        let withOrigin = (identity ?? Identity()).withOrigin(origin)
        lastWithOrigin = withOrigin
        return withOrigin
    }

    /// Whether the driver has reported the identity of its process, even if it is unknown. The driver then has state
    /// for the connection, and gets an ``Effect/forget(_:)`` when the connection is forgotten.
    var isIdentified = false

    /// The bytes of its queued notifications and of the state of minimum intervals.
    var size: Int { usage[.queuedBytes] + usage[.intervalBytes] }

    func precedes(_ other: Peer) -> Bool { name < other.name }
}

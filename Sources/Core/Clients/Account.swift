// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The identity of the account that is charged for a connection's resources (E4). All connections of a process share
/// one account, and so do all processes of a sandbox.
public enum AccountID: Hashable, Comparable, Sendable {
    /// A connection whose process and user are unknown; it has an account of its own.
    case connection(ClientName)
    case process(UInt32)
    /// The user of connections whose processes are unknown.
    case user(UInt32)
    /// The application of a sandbox, by its id.
    case sandbox(String)

    /// Whether this account's connection came before the other's, as far as that is known.
    func isOlder(than other: AccountID) -> Bool {
        if case .connection(let name) = self, case .connection(let later) = other {
            name.isOlder(than: later)
        } else {
            self < other
        }
    }
}

/// The resources that one process, sandbox, user or connection uses.
final class Account: Sizable {
    let id: AccountID
    /// The number of its present connections.
    var peers = 0
    var usage = Usage()
    /// The part of the usage that departed connections have left behind.
    var departed = Usage()
    /// The part of the usage that does not count in the total, because a limit was lowered.
    var excess = Usage()
    /// Its clients, by the size of their waiting notifications.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var clients = LargestFirst<Peer>()
    /// Its connections that are blocked on the in-flight quota, and whether the account has a place in the round-robin
    /// of ``BlockedOnQuota``.
    var blockedOnQuota = Deque<Peer>()
    var isInTurn = false
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var place = LargestFirstPlace()

    init(_ id: AccountID) {
        self.id = id
    }

    var size: Int { usage[.queuedBytes] + usage[.intervalBytes] }

    func precedes(_ other: Account) -> Bool { id < other.id }
}

/// A connection that the service has to do with: it is a client, uses resources, or has unacknowledged messages.
final class Peer: Sizable {
    let name: ClientName
    var account: Account
    var usage = Usage()
    var isClient = false
    /// The identity of its process; nil when it is unknown.
    var identity: Identity? {
        didSet { lastWithOrigin = nil }
    }
    /// The identity with the origin of its last post from outside. A bridge posts much from few origins, so these are
    /// shared.
    private var lastWithOrigin: Identity?
    /// The window of messages to the connection (A4).
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var flow = FlowWindow()
    /// The bytes that it has read, as far as is known.
    var confirmedBytes: UInt64 = 0
    /// The value of ``confirmedBytes`` when its channel was opened, until the bus is known to have carried the
    /// descriptor to it. Later confirmations are of bytes on the channel, and prove nothing about the bus.
    var confirmedBeforeChannel: UInt64?
    /// The confirmed bytes that can't be lost, even if the bus or the service ends.
    var surelyConfirmedBytes: UInt64 { confirmedBeforeChannel ?? confirmedBytes }
    /// The sizes of the replies that are kept for it, in bytes, the oldest first.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var answers = Deque<Int>()
    /// Its replies on the bus, beside its channel; nil when there is no channel and all of them are confirmed.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var replies: ReplyLine?
    /// The number of its accepted posts.
    var posted: UInt64 = 0
    /// The number of its refused posts.
    var refused: UInt64 = 0
    /// Whether it was restored after a restart, and has not been identified yet.
    var isRestored = false
    /// Whether it was restored and must be identified before it is sent anything: policy may no longer allow its
    /// observers (P3).
    var awaitsIdentity = false
    /// Whether the center still has it among its peers. A departed connection may still be charged, for queued posts
    /// and retained values.
    var isKnown = true
    /// The retained values that it left behind, as ``DepartedPayers`` counts them; nil for a present connection, or
    /// when it left none.
    var departed: DepartedPayers.Entry?
    /// Whether the bus is asked to report its departure although it is no client, because it is charged for retained
    /// values.
    var isDepartureWatched = false
    /// Whether it has a place among the unregistered peers, of which the oldest are forgotten when there are too many.
    var isListedUnregistered = false
    /// Its place among the clients of its account.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var place = LargestFirstPlace()

    init(name: ClientName, account: Account) {
        self.name = name
        self.account = account
    }

    /// The identity for posts from an origin; nil for this session.
    func identity(withOrigin origin: OutsideOrigin?) -> Identity? {
        guard let origin else { return identity }
        if let lastWithOrigin, lastWithOrigin.origin == origin { return lastWithOrigin }
        let withOrigin = (identity ?? Identity()).withOrigin(origin)
        lastWithOrigin = withOrigin
        return withOrigin
    }

    /// Whether the driver of the center has identified it, also as unknown. Then the driver gets an
    /// ``Effect/forget(_:)`` when the connection is forgotten.
    var isIdentified = false

    var size: Int { usage[.queuedBytes] + usage[.intervalBytes] }

    func precedes(_ other: Peer) -> Bool { name < other.name }
}

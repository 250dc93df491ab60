// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Who pays for what a connection makes the service hold (E4): all connections of a process share one account, and all
/// processes of a sandbox.
public enum AccountID: Hashable, Comparable, Sendable {
    /// Nobody knows who is behind it, so that it pays for itself.
    case connection(ClientName)
    case process(UInt32)
    /// Where the process is not known.
    case user(UInt32)
    /// The application in a sandbox, by its id.
    case sandbox(String)

    /// Whether it is, as far as is known, that of a connection that came before the other's.
    func isOlder(than other: AccountID) -> Bool {
        if case .connection(let name) = self, case .connection(let later) = other {
            name.isOlder(than: later)
        } else {
            self < other
        }
    }
}

/// What one payer uses of each total.
final class Account: Sizable {
    let id: AccountID
    /// Its connections that there are.
    var peers = 0
    var usage = Usage()
    /// The part of it that its connections have left behind.
    var departed = Usage()
    /// The part of it that does not count in the total, as a limit was lowered.
    var excess = Usage()
    /// Its clients, by what waits for them.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var clients = LargestFirst<Peer>()
    /// Its connections that wait for room on the way, and whether it has a place among those that have some (``BlockedOnQuota``).
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

/// A connection that the service has to do with: it is a client, uses something, or has something on its way to it.
final class Peer: Sizable {
    let name: ClientName
    var account: Account
    var usage = Usage()
    var isClient = false
    /// Who is behind it; nil where nothing tells.
    var identity: Identity? {
        didSet { lastBringing = nil }
    }
    /// The same with what it brought from outside last: who brings much brings it from few places.
    private var lastBringing: Identity?
    /// How much it may be sent (A4).
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var flow = FlowWindow()
    /// Bytes that it has read, as far as is known.
    var confirmedBytes: UInt64 = 0
    /// The value of ``confirmedBytes`` when its channel was opened, until the bus is known to have carried the descriptor to
    /// it. Confirmations since then are of bytes that were written to the channel, and prove nothing about the bus.
    var confirmedBeforeChannel: UInt64?
    /// Bytes that it has read whatever becomes of the bus and the service.
    var surelyConfirmedBytes: UInt64 { confirmedBeforeChannel ?? confirmedBytes }
    /// The sizes of the answers that are kept for it, the oldest first.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var answers = Deque<Int>()
    /// Its replies on the bus, beside its channel; nil for one that has none, and has confirmed what it had.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var replies: ReplyLine?
    /// Posts that it made, and that were accepted.
    var posted: UInt64 = 0
    /// Posts that it made, and that were refused.
    var refused: UInt64 = 0
    /// Whether it came back with a restart, and nobody has said yet who is behind it.
    var isRestored = false
    /// Whether it came back, and is sent nothing before it is known who is behind it: policy may allow it no more what it had
    /// registered (P3).
    var awaitsIdentity = false
    /// Whether it is among the peers that the center knows. One that left may still pay, for posts that wait and for values.
    var isKnown = true
    /// The values that it has left behind, as ``DepartedPayers`` knows it; nil for one that is there, or left nothing.
    var departed: DepartedPayers.Entry?
    /// Whether the bus is to tell when it leaves, though it is no client: it pays for values.
    var isDepartureWatched = false
    /// Whether it has a place among those that are forgotten when there are too many.
    var isAmongStrangers = false
    /// Where it stands among the clients of its account.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var place = LargestFirstPlace()

    init(name: ClientName, account: Account) {
        self.name = name
        self.account = account
    }

    /// Who is behind it, for what it posts from there; nil for this session.
    func identity(bringingFrom origin: OutsideOrigin?) -> Identity? {
        guard let origin else { return identity }
        if let lastBringing, lastBringing.origin == origin { return lastBringing }
        let withOrigin = (identity ?? Identity()).withOrigin(from: origin)
        lastBringing = withOrigin
        return withOrigin
    }

    /// Whether somebody said who is behind it, be it that nobody knows: then it is told when it is forgotten.
    var isIdentified = false

    var size: Int { usage[.queuedBytes] + usage[.intervalBytes] }

    func precedes(_ other: Peer) -> Bool { name < other.name }
}

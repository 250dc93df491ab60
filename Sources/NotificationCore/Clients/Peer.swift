import Collections

/// A connection that the service has to do with: it is a client, uses something, or has something on its way to it.
final class Peer {
    let name: ClientName
    var account: Account
    var usage = Usage()
    /// Set while it is a client.
    weak var client: Client?
    /// How much it may be sent (A4).
    var flow = FlowWindow()
    /// The sizes of the answers that are kept for it, the oldest first.
    var answers = Deque<Int>()
    /// Posts that it made, and that were accepted.
    var posted: UInt64 = 0
    /// Whether it is among the peers that the center knows. One that left may still pay, for posts that wait.
    var isKnown = true

    /// Whether somebody said who is behind it.
    var isIdentified: Bool { account.id != .connection(name) }

    init(name: ClientName, account: Account) {
        self.name = name
        self.account = account
    }
}

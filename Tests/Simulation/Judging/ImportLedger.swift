// SPDX-License-Identifier: Apache-2.0
/// Notifications from other sessions, and how many of them the service takes in a time (G1, docs/security.md).
final class ImportLedger {
    private struct User {
        /// When each message of the user was sent, in order.
        var sent: [Int64] = []
        /// The posts of the user that arrived at anybody.
        var arrived: Set<Int> = []
        var floods: [Flood] = []
    }

    /// From the moment at which a session begins to send without waiting.
    private struct Flood {
        let start: Int64
        /// How often a service had connected to the system bus before.
        let staysBefore: Int
        /// How many arrived of those that were sent since then.
        var arrived = 0
    }

    private unowned let ledger: Ledger
    private var users: [UInt32: User] = [:]
    /// How often a service connected to the system bus; each time it begins to count anew.
    private var stays = 0

    /// Of each user in a second, and so many more at once, with the windows of all sessions of a user.
    private static let perSecond: Int64 = 500
    private static let burst = 2000 + 8 * 64
    /// A user who sends fewer in a minute is not limited, however late they are read.
    private static let surelyTaken = 1500
    private static let minute: Int64 = 60_000_000

    init(_ ledger: Ledger) {
        self.ledger = ledger
    }

    func noteStay() { stays += 1 }

    func noteFlood(of user: UInt32) {
        users[user, default: User()].floods.append(Flood(start: ledger.world.now, staysBefore: stays))
    }

    func noteSent(by user: UInt32) { users[user, default: User()].sent.append(ledger.world.now) }

    /// Whether a notification that the service has confirmed was posted, and not refused for anything.
    func isSurelyTaken(_ number: Int) -> Bool {
        let plan = ledger.posts[number].plan
        guard let user = plan.user, plan.flaw == nil, plan.lie == nil,
            ledger.policy.verdict(ofPost: number) == .allowed,
            !isLimited(user)
        else { return false }
        guard plan.options.retention != nil else { return true }
        let time = ledger.posts[number].time
        return ledger.policy.verdict(since: time) { $0.keeps(plan.nameText, of: user) } == .allowed && hasRoom
    }

    private func isLimited(_ user: UInt32) -> Bool {
        let sent = users[user]?.sent ?? []
        guard sent.count > Self.surelyTaken else { return false }
        return sent[sent.count - 1 - Self.surelyTaken] > ledger.world.now - Self.minute
    }

    /// The service keeps all values of other sessions as its own.
    private var hasRoom: Bool {
        let kinds = Set(
            ledger.posts.lazy.map(\.plan).filter { $0.user != nil && $0.options.retention != nil }.map(\.kind))
        return UInt64(kinds.count) <= ledger.limits[.retainedPerClient]
    }

    /// A notification of another session arrives at somebody.
    func noteArrival(of number: Int) {
        guard let user = ledger.posts[number].plan.user, users[user]?.arrived.insert(number).inserted == true else {
            return
        }
        for index in users[user]!.floods.indices where users[user]!.floods[index].start <= ledger.posts[number].time {
            users[user]!.floods[index].arrived += 1
            let flood = users[user]!.floods[index]
            let bursts = Self.burst * (1 + stays - flood.staysBefore)
            let most = bursts + Int(Self.perSecond * (ledger.world.now - flood.start) / 1_000_000) + 1
            guard flood.arrived > most else { continue }
            ledger.world.violate(
                "G1",
                "\(flood.arrived) posts of user \(user) arrive that were sent since \(flood.start) µs, and \(most) may")
        }
    }
}

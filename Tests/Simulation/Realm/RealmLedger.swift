// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The truth of a realm: the posts of each machine, and those that arrived.
final class RealmLedger {
    struct Post {
        let host: Int
        let name: String
        let isValue: Bool
        /// Whether it is a value that goes with its poster.
        let isBound: Bool
        /// Whether a bridge was there to see it.
        let isSeen: Bool
        /// Whether its service has taken it.
        var isAccepted = false
    }

    /// Identifies posts that are announced as lost, to their machine or to another one.
    struct Loss: Hashable {
        let host: String
        let name: String
    }

    private let world: World
    private(set) var posts: [Post] = []
    /// For each machine, which posts arrived there.
    private var arrived: [Int: Set<Int>] = [:]
    private var last: [Int: [Loss: Int]] = [:]
    /// For each machine.
    private var announced: [Int: [Loss: Int]] = [:]
    private(set) var received = 0
    /// Whether a broker has refused messages: one whose answer is lost is sent again, behind later ones that it has taken.
    var isOrderBroken: () -> Bool = { false }
    /// Pairs of machines between which a notification may come twice, or late, or be missing without a word.
    var isRough: (_ from: Int, _ to: Int) -> Bool = { _, _ in false }

    init(_ world: World) {
        self.world = world
    }

    func post(_ host: Int, _ name: String, isValue: Bool, isBound: Bool = false, isSeen: Bool = true) -> Int {
        posts.append(Post(host: host, name: name, isValue: isValue, isBound: isBound, isSeen: isSeen))
        return posts.count - 1
    }

    func settle(_ number: Int, _ isAccepted: Bool) { posts[number].isAccepted = isAccepted }

    var announcedCount: Int { announced.values.reduce(0) { $0 + $1.values.reduce(0, +) } }

    func received(_ receipt: RealmProgram.Receipt, at host: Int) {
        received += 1
        if receipt.name == Self.lostName { return noteLoss(receipt, at: host) }
        guard let number = receipt.number, posts.indices.contains(number) else {
            return world.violate("G2", "\(RealmPlan.hostNames[host]) got \(receipt.name), which nobody has posted")
        }
        let post = posts[number]
        let origin = post.host == host ? nil : RealmPlan.hostNames[post.host]
        guard receipt.host == origin, receipt.name == post.name else {
            return world.violate(
                "G3", "post \(number) of \(post) arrived as \(receipt.name) of \(receipt.host ?? "here")")
        }
        guard !post.isValue else { return }
        let isNew = arrived[host, default: []].insert(number).inserted
        guard !isRough(post.host, host) else { return }
        if !isNew {
            world.violate(
                "G2", "post \(number) of \(RealmPlan.hostNames[post.host]) came twice to \(RealmPlan.hostNames[host])")
        }
        let line = Loss(host: RealmPlan.hostNames[post.host], name: post.name)
        if let before = last[host, default: [:]][line], before > number, !isOrderBroken() {
            world.violate("G2", "post \(number) of \(line.host) came behind \(before) to \(RealmPlan.hostNames[host])")
        }
        last[host, default: [:]][line] = number
    }

    static let lostName = "org.carillon.Bridge.Lost"

    private func noteLoss(_ receipt: RealmProgram.Receipt, at host: Int) {
        guard case .string(let origin)? = receipt.userInfo["host"], case .string(let name)? = receipt.userInfo["name"],
            case .uint64(let count)? = receipt.userInfo["count"]
        else { return world.violate("G2", "a word about losses that nobody can read: \(receipt.userInfo)") }
        world.note(
            "\(RealmPlan.hostNames[host]) is told that \(count) of \(name) from \(origin) are lost: \(receipt.userInfo["reason"] ?? .string(""))"
        )
        announced[host, default: [:]][Loss(host: origin, name: name), default: 0] += Int(count)
    }

    /// - Parameter missed: what the observers of each machine were told that they have missed.
    func judge(hostCount: Int, missed: [Int]) {
        for from in 0..<hostCount {
            for to in 0..<hostCount where from != to && !isRough(from, to) {
                for name in RealmPlan.names {
                    let missing = posts.indices.filter {
                        let post = posts[$0]
                        return post.host == from && post.name == name && post.isAccepted && post.isSeen
                            && !arrived[to, default: []].contains($0)
                    }
                    let host = RealmPlan.hostNames[from]
                    let told = [from, to].flatMap { one in
                        [name, ""].map { announced[one, default: [:]][Loss(host: host, name: $0), default: 0] }
                    }.reduce(missed[to], +)
                    guard missing.count > told else { continue }
                    world.violate(
                        "G2",
                        "\(missing.count) of \(name) from \(host) are missing at \(RealmPlan.hostNames[to]), as "
                            + "\(missing.first!), and \(told) are announced")
                }
            }
        }
    }
}

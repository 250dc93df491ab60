// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// A kind of state that clients can make the center hold, at its standard limit.
package enum FullState: String, CaseIterable, Sendable {
    /// One client observes one name as often as it may.
    case observersOfOne
    /// Sixteen clients have all the observers that there may be, each of any name.
    case observersOfAll
    /// As many clients as there may be observe one name.
    case clients
    /// As many clients, and all of them are suspended and hold a notification.
    case suspendedClients
    /// One suspended client holds as many notifications as it may.
    case held
    /// The same, each of a name of its own and replaced by the next of that name.
    case coalescing
    /// One client that does not read has as many due.
    case due
    /// Values, as many as there may be, of several posters.
    case retained
    /// The values of one poster that go with its connection.
    case connectionValues
    /// Values that expire in the same second.
    case expiring
    /// One suspended client whose observers, as many as it may have, ask for values of other names.
    case replays
    /// One client with 2000 observers that have minimum intervals, and 2000 names within these.
    case intervals
    /// Names, as many as there may be observers, that one client follows.
    case interest
    /// Posts of one poster that wait for asap, as many as it may have.
    case queuedPosts
    /// Posts that wait for the exit of their poster.
    case atExitPosts
    /// Answers that one caller does not read.
    case answers
    /// Many connections that read nothing and use up what may be on its way.
    case blockedPeers

    static let subject = client(1)
    static let poster = client(2)
    static let bystander = client(3)

    fileprivate static func client(_ number: Int) -> ClientName { ClientName(rawValue: ":1.\(number)")! }

    /// A center with this state.
    func build() throws -> MeteredCenter {
        let full = MeteredCenter()
        let limits = full.center.limits
        func limit(_ key: Limits.Key) -> Int { Int(limits[key]) }
        var options = ObserverOptions()
        let (subject, poster) = (Self.subject, Self.poster)
        switch self {
        case .observersOfOne:
            for _ in 0..<limit(.observersPerClient) { try full.observe(subject, "A") }
        case .observersOfAll:
            // One process may not have all.
            for number in 0..<15 {
                for _ in 0..<limit(.observersPerClient) { try full.observe(FullState.client(100 + number)) }
            }
        case .clients, .suspendedClients:
            options.suspensionBehavior = .hold
            for number in 0..<limit(.clients) - 10 {
                try full.observe(FullState.client(100 + number), "A", "", options)
                if self == .suspendedClients { try full.suspend(FullState.client(100 + number)) }
            }
            if self == .suspendedClients { try full.post("A", from: poster) }
        case .held, .coalescing:
            options.suspensionBehavior = self == .held ? .hold : .coalesce
            for _ in 0..<4 { try full.observe(subject, "", "", options) }
            try full.suspend(subject)
            // An eighth is free, beyond which a client that reads is sent what it holds.
            for number in 0..<limit(.queuedPerClient) / 8 * 7 {
                try full.post(self == .held ? "A" : "A\(number)", from: poster)
            }
        case .due:
            full.silent = [subject]
            try full.observe(subject)
            for _ in 0..<limit(.queuedPerClient) { try full.post("A", from: poster) }
        case .retained: try full.retain(limit(.retained), of: 9)
        case .connectionValues:
            var options = PostOptions()
            options.retention = Retention(whileConnected: true)
            for number in 0..<limit(.retainedPerClient) { try full.post("V\(number)", from: subject, options) }
            try full.retain(limit(.retained) - 2 * limit(.retainedPerClient), of: 8)
        case .expiring:
            try full.retain(limit(.retained), of: 9, expiresAfter: 1)
            full.now += 10_000_000
        case .replays:
            try full.retain(limit(.retained), of: 9)
            options.wantsRetained = true
            options.suspensionBehavior = .hold
            try full.suspend(subject)
            for number in 0..<limit(.observersPerClient) {
                try full.observe(subject, "Other\(number)", "", options)
            }
        case .intervals:
            options.minimumInterval = 60_000
            for _ in 0..<2000 { try full.observe(subject, "", "", options) }
            for _ in 0..<2 {
                for number in 0..<2000 { try full.post("A\(number)", from: poster) }
            }
        case .interest:
            for number in 0..<limit(.observersPerClient) * 15 {
                try full.observe(FullState.client(100 + number / limit(.observersPerClient)), "A\(number)")
            }
            try full.followInterest(subject)
        case .queuedPosts, .atExitPosts:
            var options = PostOptions()
            options.postingStyle = self == .queuedPosts ? .asap : .atExit
            var count = 0
            while (try? full.post("A", "\(count)", from: subject, options)) != nil { count += 1 }
        case .answers:
            full.silent = [subject]
            while full.center.isServed(subject) {
                full.perform { _ = full.center.mayAnswer(subject, byteCount: 256, effects: &$0) }
            }
        case .blockedPeers:
            for number in 0..<limit(.clients) - 10 {
                full.silent.insert(FullState.client(100 + number))
                try full.observe(FullState.client(100 + number), "A")
            }
            for _ in 0..<200 { try full.post("A", from: poster) }
        }
        return full
    }
}

extension MeteredCenter {
    /// Has `count` values kept, as far as there is room for them, of so many posters.
    fileprivate func retain(_ count: Int, of posters: Int, expiresAfter seconds: UInt32? = nil) throws {
        var options = PostOptions()
        options.retention = Retention()
        options.expiresAfter = seconds
        for number in 0..<count {
            do {
                try post("V\(number)", "o", from: FullState.client(50 + number % posters), options)
            } catch is CenterError {
                return
            }
        }
    }

    func followInterest(_ client: ClientName, after: String = "") throws {
        try perform { effects in
            _ = try center.followInterest(
                of: client, after: after, most: 1000, room: 1 << 20, byteCount: { $0.utf8.count + 8 },
                effects: &effects)
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What other sessions are to get.
@Suite("G1: posts to all sessions", .limited)
struct ExportTests {
    @Test("A post to all sessions is exported once when it is posted, with or without local observers")
    func exported() throws {
        let center = Scenario()
        try center.observe(one, "Ding")
        try center.post("Ding", "x", immediately: true, retention: Retention(), allSessions: true)
        try center.post("Ding")
        try center.post("Dong", expiresAfter: 5, allSessions: true)
        #expect(center.exported.map(\.name) == ["Ding", "Dong"])
        #expect(center.exported[0].object == "x" && center.exported[0].deliverImmediately)
        #expect(center.exported[0].retention != nil && center.exported[0].expiry == nil)
        #expect(center.exported[1].retention == nil && center.exported[1].expiry == (center.seconds + 5) * 1_000_000)
        #expect(center.received(one).map(\.name) == ["Ding", "Ding"])
        #expect(center.deliveries(one).map(\.notification.goesToAllSessions) == [true, false])
    }

    @Test("G2: a post that arrives from two sources is delivered once, and retained once for each origin")
    func brought() throws {
        let center = Scenario()
        try center.observe(one, "Ding")
        func bring(_ identity: String?, from host: String?, of user: String = "ann", kept: Bool = false) throws -> Int {
            var options = PostOptions()
            options.origin = try OutsideOrigin(host: host, user: user)
            options.deduplicationID = identity
            options.retention = kept ? Retention() : nil
            return try center.perform { effects throws(CenterError) in
                try center.center.post(
                    name: "Ding", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 1), options: options,
                    from: two, effects: &effects)
            }.receivers
        }
        #expect(try bring("1", from: nil) == 1 && bring("1", from: "desk") == 0)
        #expect(try bring("2", from: "desk") == 1 && bring("2", from: nil) == 0)
        #expect(try bring("1", from: "desk", of: "ben") == 1, "of another user")
        #expect(try bring(nil, from: "desk") == 1 && bring(nil, from: "desk") == 1)
        #expect(try bring("3", from: nil, kept: true) == 1 && bring("3", from: "desk", kept: true) == 0)
        #expect(center.received(one).count == 6 && center.values().count == 2)
        #expect(center.statistics.unmatched == 0)
        // The oldest are forgotten.
        for number in 10..<17_000 { _ = try bring("\(number)", from: nil) }
        #expect(try bring("1", from: "desk") == 1 && bring("16999", from: "desk") == 0)
        let next = DistributedCenter()
        next.takeOver(center.center)
        var (options, effects) = (PostOptions(), [Effect]())
        (options.origin, options.deduplicationID) = (try OutsideOrigin(host: "desk", user: "ann"), "16998")
        let receipt = try next.post(
            name: "Ding", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 1), options: options, from: two,
            effects: &effects)
        #expect(receipt.receivers == 0, "also behind a new connection")
    }

    @Test("A queued post is exported when it is posted, and a replaced post is not exported")
    func queued() throws {
        let center = Scenario()
        for object in ["1", "2"] {
            try center.post("Ding", object, style: .whenIdle, coalescing: [.name], allSessions: true)
        }
        #expect(center.exported.isEmpty)
        center.postQueued(.whenIdle)
        #expect(center.exported.map(\.object) == ["2"])
        try center.post("Ding", "3", style: .whenIdle, allSessions: true)
        try center.post("Ding", "4", coalescing: [.name])
        center.postQueued(.whenIdle)
        #expect(center.exported.map(\.object) == ["2"], "the one that took its place was not meant for them")
    }

    @Test("R8: the center lists the values for all sessions, and reports their ends of any cause")
    func values() throws {
        let center = Scenario()
        func told() -> [String] {
            var (names, after): ([String], UInt64) = ([], 0)
            while let (value, serial) = center.center.valueForSessions(after: after, through: .max) {
                names.append("\(value.name) \(value.object)\(value.retention?.whileConnected == true ? " bound" : "")")
                after = serial
            }
            return names
        }
        var ended: [String] { center.exportsEnded.map { "\($0.name) \($0.object)" } }
        for object in ["1", "2", "3", "4"] {
            try center.post("Ding", object, retention: Retention(), allSessions: true)
        }
        try center.post("Ding", "here", retention: Retention())
        try center.post("Ding", "none", allSessions: true)
        try center.observe(one, "Dong")
        try center.post(
            "Ding", "5", retention: Retention(whileConnected: true), allSessions: true, from: one)
        try center.post("Ding", "6", retention: Retention(), expiresAfter: 5, allSessions: true)
        #expect(told() == ["Ding 1", "Ding 2", "Ding 3", "Ding 4", "Ding 5 bound", "Ding 6"])
        // A newer one for others as well takes its place there, too.
        try center.post("Ding", "1", retention: Retention(), allSessions: true)
        #expect(ended.isEmpty)
        try center.post("Ding", "2", retention: Retention())
        #expect(ended == ["Ding 2"])
        try center.post("Ding", "3", allSessions: true)
        #expect(center.forget("Ding", "3") == 1 && center.forget("Ding", "here") == 1)
        #expect(ended == ["Ding 2", "Ding 3"])
        center.disappear(one)
        center.seconds += 6
        _ = center.values()
        #expect(Set(ended) == ["Ding 2", "Ding 3", "Ding 5", "Ding 6"])
        #expect(told() == ["Ding 4", "Ding 1"])
    }

    @Test("G3: a post on behalf of an outside user carries the identity of that user")
    func identity() throws {
        let center = Scenario()
        try center.observe(one, "Ding")
        let who = Identity(userID: 7, origin: try OutsideOrigin(host: nil, user: "anna"))
        var effects: [Effect] = []
        _ = try center.center.post(
            name: "Ding", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), from: ":1.0", as: who,
            effects: &effects)
        center.center.sendAllReady(effects: &effects)
        let identities = effects.compactMap {
            if case .deliver(let delivery) = $0 { delivery.notification.identity } else { nil }
        }
        #expect(identities == [who])
    }
}

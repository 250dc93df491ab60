// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Who posted, and what of it a receiver is told.
@Suite("P1: identity of the poster", .limited)
struct IdentityTests {
    private let one: ClientName = ":1.1"
    private let poster: ClientName = ":1.9"
    private let who = Identity(userID: 1000, processID: 42, process: "backup", unit: "backup.service")

    /// A center with an observer, at some time.
    private func scenario(_ limits: [Limits.Key: UInt64] = [:]) throws -> Scenario {
        let center = Scenario(limits)
        center.center.clock = Clock { 1_000_000 }
        center.identify(poster, as: 42, who)
        try center.observe(one, "Ding", "", .hold)
        return center
    }

    @Test("A notification carries its time and the identity of its poster, if the poster is identified")
    func live() throws {
        let center = try scenario()
        try center.post("Ding", from: poster)
        try center.post("Ding", from: ":1.8")
        let notifications = center.deliveries(one).map(\.notification)
        #expect(notifications.map(\.identity) == [who, nil])
        #expect(notifications.map(\.time) == [1_000_000, 1_000_000])
        #expect(notifications[0].byteCount == notifications[1].byteCount + who.byteCount, "E4: it counts")
    }

    @Test(
        "Held and queued notifications keep the identity of a poster that has left",
        arguments: [PostingStyle.now, .whenIdle])
    func departed(style: PostingStyle) throws {
        let center = try scenario()
        try center.suspend(one)
        try center.post("Ding", style: style, from: poster)
        center.disappear(poster)
        center.postQueued(style)
        try center.resume(one)
        #expect(center.deliveries(one).map(\.notification.identity) == [who])
    }

    @Test("A client gets the details that it requested, from the next notification on")
    func details() throws {
        let center = try scenario()
        try center.setOptions(ClientOptionsChange(details: [.userID, .time]), of: one)
        try center.post("Ding", from: poster)
        try center.setOptions(ClientOptionsChange(batches: true), of: one)
        try center.post("Ding", from: poster)
        try center.setOptions(ClientOptionsChange(details: []), of: one)
        try center.post("Ding", from: poster)
        #expect(center.deliveries(one).map(\.details.all) == [[.userID, .time], [.userID, .time], []])
    }

    @Test("Live and later deliveries of a value have equal details kept and expiry")
    func keptAndExpiry() throws {
        let center = Scenario()
        center.center.clock = Clock(
            time: { [unowned center] in 7_000_000 + center.seconds * 1_000_000 },
            uptime: { [unowned center] in center.seconds * 1_000_000 })
        try center.setOptions(ClientOptionsChange(details: [.kept, .expiry]), of: one)
        try center.observe(one)
        try center.post("Kept", retention: Retention(), expiresAfter: 60)
        try center.post("Kept", "for ever", style: .asap, retention: Retention())
        center.postQueued(.asap)
        try center.post("Ding", expiresAfter: 30)
        try center.post("Ding")
        center.seconds += 10
        try center.observe(one, "Kept", retained: true)
        try center.setOptions(ClientOptionsChange(details: [.kept]), of: one)
        try center.post("Ding", expiresAfter: 30)
        let deliveries = center.deliveries(one)
        #expect(
            deliveries.map { $0.notification.retention != nil } == [true, true, false, false, true, true, false])
        let begin: Int64 = 7_000_000 + 1000 * 1_000_000
        let (minute, half) = (begin + 60_000_000, begin + 30_000_000)
        #expect(deliveries.map(\.expiryTime) == [minute, nil, half, nil, minute, nil, nil])
    }

    @Test("G3: a notification from outside carries its origin and its poster, and a local one has no origin")
    func outside() throws {
        let center = try scenario()
        let origin = try #require(try OutsideOrigin(host: "alpha", user: "anna"))
        try center.post("Ding", origin: origin, from: poster)
        try center.post("Ding", origin: origin, from: poster)
        try center.post("Ding", from: poster)
        try center.post("Ding", origin: origin, from: ":1.8")
        let identities = center.deliveries(one).map(\.notification.identity)
        #expect(
            identities == [who.withOrigin(origin), who.withOrigin(origin), who, Identity(origin: origin)])
        #expect(identities[0] === identities[1], "one for all that come from there")
        #expect(who.withOrigin(origin).byteCount == who.byteCount + 9, "E4: it counts")
        // Who it is can be learned later.
        center.identify(poster, as: 42, Identity(userID: 1))
        try center.post("Ding", origin: origin, from: poster)
        #expect(center.deliveries(one).last?.notification.identity == Identity(userID: 1, origin: origin))
    }

    @Test("G3: a host or user name has 1 to 255 bytes, and other names are refused")
    func noOrigin() throws {
        #expect(try OutsideOrigin(host: nil, user: nil) == nil)
        let longest = String(repeating: "x", count: 255)
        #expect(try OutsideOrigin(host: longest, user: longest)?.host == longest)
        for (key, text) in [
            ("host", ""), ("host", longest + "x"), ("user", ""), ("user", "é" + longest), ("user", "\0"),
        ] {
            let error = #expect(throws: CenterError.self) {
                _ = try OutsideOrigin(host: key == "host" ? text : nil, user: key == "user" ? text : "anna")
            }
            #expect("\(String(describing: error))".contains("'\(key)'"))
        }
    }

    @Test("Each detail has a fixed number for the log, and details are in the documented order")
    func numbers() {
        #expect(Detail.allCases.map { Details($0).rawValue } == (0..<13).map { 1 << $0 })
        let words = "uid pid process app unit host user retained time kept expiry while-connected all-sessions".split(
            separator: " ")
        #expect(Detail.allCases.map(\.rawValue) == words.map(String.init))
        #expect(Details([Detail.time, .userID]).all == [.userID, .time])
        #expect(
            Detail.allCases.filter { !$0.isAboutPoster } == [
                .retained, .time, .kept, .expiry, .whileConnected, .allSessions,
            ])
    }
}

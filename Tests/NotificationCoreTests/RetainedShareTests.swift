// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// The room for values that somebody posts for other machines, as a bridge does.
@Suite("R6: shares of retained values", .limited)
struct RetainedShareTests {
    private let one: ClientName = ":1.1"
    private let two: ClientName = ":1.2"

    @Test("R6: the values posted by a bridge are limited for each machine, with all users of it together")
    func shares() throws {
        let center = Scenario([.retainedPerClient: 2])
        func mayPost(_ object: String, _ host: String?, _ user: String?) throws -> Bool {
            let origin = host == nil && user == nil ? nil : try OutsideOrigin(host: host, user: user)
            do {
                _ = try center.post("A", object, retention: Retention(), origin: origin, from: one)
                return true
            } catch CenterError.limitExceeded(.retainedPerClient, 2) {
                return false
            }
        }
        for host in ["lap", "tower", "desk"] {
            #expect(try mayPost("1", host, "ann") && mayPost("2", host, "ben"))
            #expect(try !mayPost("3", host, "ann") && !mayPost("3", host, "eve"))
            #expect(try mayPost("2", host, "ben"), "the same again is no more")
        }
        #expect(try mayPost("1", nil, "ann") && mayPost("2", nil, "ann") && !mayPost("3", nil, "ann"))
        #expect(try mayPost("1", nil, "ben"), "another session")
        #expect(try mayPost("1", nil, nil) && mayPost("2", nil, nil) && !mayPost("3", nil, nil))
        try center.center.checkInvariants()
        center.forget("")
        #expect(try mayPost("3", "lap", "eve"))
        try center.center.checkInvariants()
    }

    @Test(
        "R6: a machine keeps its share of retained values when its bridge is restarted", arguments: [false, true])
    func restarts(isRestored: Bool) throws {
        var center = Scenario([.retainedPerClient: 3])
        let desk = try OutsideOrigin(host: "desk", user: "ann")
        func mayPost(_ object: String, _ bridge: ClientName, _ origin: OutsideOrigin? = nil) throws -> Bool {
            do {
                _ = try center.post("A", object, retention: Retention(), origin: origin ?? desk, from: bridge)
                return true
            } catch CenterError.limitExceeded(.retainedPerClient, 3) {
                return false
            }
        }
        for object in ["1", "2"] { #expect(try mayPost(object, one)) }
        center.disappear(one)
        if isRestored {
            let next = Scenario([.retainedPerClient: 3])
            center.center.forEachRememberedChange { change in #expect(next.center.restore(change)) }
            let last = center.center.lastNumbers
            next.center.restoreNumbers(lastSerial: last.serial, lastObserver: last.observer)
            next.finishRestoring()
            next.disappear(one)
            center = next
        }
        #expect(try mayPost("3", two) && !mayPost("4", two))
        #expect(try mayPost("1", two) && mayPost("2", two), "what was there before may change")
        #expect(try !mayPost("4", two))
        #expect(try mayPost("1", two, OutsideOrigin(host: "lap", user: "ann")), "another machine has its own")
        try center.center.checkInvariants()
        center.disappear(two)
        let three: ClientName = ":1.3"
        #expect(try !mayPost("4", three))
        #expect(try mayPost("3", three))
        #expect(center.forget("A", "3", from: desk))
        #expect(try mayPost("4", three) && !mayPost("5", three))
        try center.center.checkInvariants()
        center.forget("")
        for object in ["5", "6", "7"] { #expect(try mayPost(object, three)) }
        #expect(try !mayPost("8", three))
        try center.center.checkInvariants()
    }

    @Test("R6: an at-exit value counts with all values of its machine whose posters have left", arguments: [10, 3000])
    func behindTheEnd(bytes: Int) throws {
        let center = Scenario([.retainedPerClient: 3])
        let desk = try OutsideOrigin(host: "desk", user: "ann")
        try center.post("K", bytes: 2000, retention: Retention(), origin: desk, from: one)
        try center.post("L", retention: Retention(), origin: desk, from: one)
        center.disappear(one)
        try center.post("own", retention: Retention(), from: two)
        try center.post("K", bytes: bytes, style: .atExit, retention: Retention(), origin: desk, from: two)
        try center.post("M", style: .atExit, retention: Retention(), origin: desk, from: two)
        try center.post("N", style: .atExit, retention: Retention(), origin: desk, from: two)
        center.disappear(two)
        for style in [PostingStyle.asap, .whenIdle] { center.postQueued(style) }
        try center.center.checkInvariants()
        #expect(Set(center.values().filter { $0.hasSuffix("@desk") }).count == 3, "\(center.values())")
    }

    @Test("R6: the default limits allow 400 values of each of fifty machines beside 2,000 local values")
    func fifty() throws {
        let center = Scenario()
        for host in 0..<50 {
            let origin = try OutsideOrigin(host: "host-\(host)", user: "ann")
            for number in 0..<400 {
                _ = try center.post(
                    "org.example.Sensor", "\(number)", retention: Retention(), origin: origin, from: one)
            }
        }
        for number in 0..<2_000 {
            _ = try center.post("org.example.Own", "\(number)", retention: Retention(), from: two)
        }
        #expect(center.statistics.retained == 22_000)
    }
}

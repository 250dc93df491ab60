// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Order, serials and sequences.
@Suite("Order, serials and sequence numbers", .limited)
struct OrderTests {
    let center = Scenario()

    @Test("D4: posts of one client reach every observer in their order")
    func perPoster() throws {
        for client in [one, two] { try center.observe(client, "A") }
        for number in 1...200 { try center.post("A", "\(number)", from: three) }
        for client in [one, two] { #expect(center.objects(client) == (1...200).map(String.init)) }
    }

    @Test("D4: all observers receive one global order, even if they are suspended or do not read for a time")
    func globalOrder() throws {
        let clients = [one, two, three]
        for client in clients { try center.observe(client, "", "", .hold) }
        for number in 1...600 {
            switch number {
            case 50: try center.suspend(one)
            case 60: center.stop(two)
            case 300: try center.resume(one)
            case 350: center.goOn(two)
            case 400: center.stop(three)
            case 590: center.goOn(three)
            default: break
            }
            try center.post("N\(number % 5)", from: clients[number % 3])
        }
        for client in clients {
            #expect(center.received(client).map(\.serial) == Array(1...600))
            #expect(center.sequences(client) == Array(1...600))
        }
    }

    @Test("D4: the serial counts every accepted post, including unmatched posts, and no refused post")
    func serials() throws {
        try center.observe(one, "A")
        try center.post("A")
        try center.post("B")
        #expect(throws: CenterError.invalidName) { try center.post("") }
        #expect(throws: CenterError.limitExceeded(.nameLength, value: 1024)) {
            try center.post(String(repeating: "n", count: 1025))
        }
        try center.post("A")
        #expect(center.received(one).map(\.serial) == [1, 3])
        #expect(center.statistics.posted == 3)
        #expect(center.statistics.unmatched == 1)
    }

    @Test("D6: every client has a sequence of its own, without holes")
    func sequences() throws {
        try center.observe(one, "A")
        try center.observe(two)
        for name in ["A", "B", "A", "B"] { try center.post(name) }
        #expect(center.sequences(one) == [1, 2])
        #expect(center.sequences(two) == [1, 2, 3, 4])
        #expect(center.received(one).map(\.serial) == [1, 3])
    }

    @Test("D6: notifications discarded by drop or coalesce leave no hole in the sequence and are no loss")
    func noHoles() throws {
        try center.observe(one, "A", "", .coalesce)
        try center.observe(one, "B", "", .drop)
        try center.post("A")
        try center.suspend(one)
        for name in ["A", "B", "A", "B", "A"] { try center.post(name) }
        try center.resume(one)
        try center.post("B")
        #expect(center.sequences(one) == [1, 2, 3])
        #expect(center.losses(one) == [])
        #expect(center.statistics.dropped == 0)
        #expect(center.statistics.delivered == 3)
        #expect(center.status(one)?.delivered == 3)
    }

    @Test("D6: a notification arrives once, with all matching observers in registration order")
    func onceWithAllObservers() throws {
        let everything = try center.observe(one)
        let object = try center.observe(one, "", "x")
        try center.observe(one, "B")
        let name = try center.observe(one, "A")
        let both = try center.observe(one, "A", "x")
        #expect(try center.post("A", "x") == 1)
        #expect(center.received(one).map(\.observers) == [[everything, object, name, both]])
        try center.post("A")
        #expect(center.received(one).last?.observers == [everything, name])
    }

    @Test("D5: a poster that observes gets its own posts, with its name")
    func ownPosts() throws {
        try center.observe(one, "A")
        #expect(try center.post("A", from: one) == 1)
        #expect(center.received(one).map(\.poster) == [one])
    }

    @Test("D6: coalesced notifications keep the serials under which they were posted")
    func serialsOfHeld() throws {
        try center.observe(one, "", "", .coalesce)
        try center.suspend(one)
        for name in ["A", "B", "A", "C"] { try center.post(name) }
        try center.resume(one)
        #expect(center.received(one).map(\.serial) == [2, 3, 4])
        #expect(center.sequences(one) == [1, 2, 3])
    }

    @Test("D3: a connection that only posts does not become a client and is not watched")
    func posters() throws {
        try center.post("A", from: one)
        #expect(center.status(one) == nil)
        #expect(center.statistics.clients == 0)
        #expect(center.watched == [])
    }
}

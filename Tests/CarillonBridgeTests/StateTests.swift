// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMQTT
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonBridge

@Suite("G2: saved state of a bridge", .limited)
struct StateTests {
    private func state() -> SavedState {
        var counts = TopicCounts(run: "r1")
        for topic in ["a", "b", "b"] { _ = counts.next(on: topic) }
        var places = SequenceTracker()
        let origin = Origin(host: "lap", user: "ben")!
        _ = places.check(
            topic: "t", origin: origin, name: "N", sequenceNumber: .init(run: "x", count: .max), now: .now)
        var properties = MessageProperties()
        (properties.object, properties.hops, properties.serial, properties.time) = ("o", 1, 7, -3)
        properties.sequenceNumber = .init(run: "r1", count: 2)
        properties.identity = "1000/7/-3"
        let message = OutwardMessage(
            name: "N", object: "o", payload: [0, 0xFF, 7], contentType: "application/json", isRetained: true, expiry: 9,
            properties: properties)
        return SavedState(
            realm: "home", origin: Origin(host: "desk", user: "anna")!, counts: counts, places: places.saved,
            queue: [
                .init(message: message, topic: "b"), .init(message: OutwardMessage(removalOf: "N", ""), topic: "c"),
            ])
    }

    @Test("The saved state is restored completely, and only once")
    func roundTrip() throws {
        let directory = try TemporaryDirectory()
        let file = StateFile(directory: directory.entry("new/deep"))
        #expect(file.take() == nil)
        var state = state()
        state.absences = [Origin(host: "shed", user: "a/b")!: 1_700_000_000_000_000]
        #expect(file.save(state) && file.save(state), "a newer one takes its place")
        let read = try #require(file.take())
        #expect(read.realm == state.realm && read.origin == state.origin && read.queue == state.queue)
        #expect(read.counts == state.counts && read.places == state.places && read.absences == state.absences)
        #expect(file.take() == nil, "it would not be true any more")
    }

    @Test("Sequence numbers continue after a restart, and earlier messages count as repeated")
    func goesOn() throws {
        let read = try #require(SavedState(state().bytes(now: 0), now: 0))
        var (counts, places) = (read.counts, SequenceTracker())
        for sequenceNumber in read.places { places.restore(sequenceNumber, now: .now) }
        let next = counts.next(on: "b")
        #expect(next == .init(run: "r1", count: 3))
        let origin = Origin(host: "lap", user: "ben")!
        let verdict = places.check(
            topic: "t", origin: origin, name: "N", sequenceNumber: .init(run: "x", count: 5), now: .now)
        #expect(verdict == .repeated)
    }

    @Test("Unposted messages are restored with their remaining lifetime, together with losses and holes")
    func unposted() throws {
        let lap = Origin(host: "lap", user: "ben")!
        let topic = BridgeTopic(.value(name: "a.b", object: "o/1"), of: lap)
        let publication = Publication(
            topic: topic.text(in: "home"), payload: Array(#"{"n": 1}"#.utf8), isRetained: true,
            contentType: "application/json", expiry: 90,
            userProperties: [UserProperty("serial", "5"), UserProperty("count", "7")])
        var state = state()
        state.inbox = [
            try InwardMessage(publication, on: topic), try InwardMessage(publication, on: topic).marked(anew: true),
        ]
        state.imports = [.below("a."), .all, .exactly("b")]
        state.losses = [
            .init(origin: lap, name: ExactText("a.b"), reason: .missing): 3,
            .init(origin: lap, name: nil, reason: .queueFull): 1,
        ]
        let later: Int64 = 30_000_000
        let read = try #require(SavedState(state.bytes(now: 0), now: later))
        #expect(read.losses == state.losses && read.imports == state.imports)
        #expect(read.inbox.map(\.mayBeOld) == [false, true])
        let message = try #require(read.inbox.first)
        #expect(message.name == "a.b" && message.object == "o/1" && message.origin == lap && message.isRetainedValue)
        #expect(message.properties.serial == 5 && message.expiresAfter == 60)
        if case .notification(let userInfo) = message.content {
            #expect(userInfo == ["n": .int64(1)])
        } else {
            Issue.record("it is a removal")
        }

        var places = SequenceTracker()
        let start = SuspendingClock.now
        for count: UInt64 in [1, 5] {
            _ = places.check(
                topic: "t", origin: lap, name: "N", sequenceNumber: .init(run: "x", count: count), now: start)
        }
        state.places = places.saved
        var after = SequenceTracker()
        for sequenceNumber in try #require(SavedState(state.bytes(now: 0), now: 0)).places {
            after.restore(sequenceNumber, now: start)
        }
        #expect(after.isWaiting && after.losses(at: start + .seconds(4)).isEmpty)
        #expect(
            after.check(topic: "t", origin: lap, name: "N", sequenceNumber: .init(run: "x", count: 3), now: start)
                == .new)
        #expect(after.losses(at: start + .seconds(6)).map(\.count).reduce(0, +) == 2)
    }

    @Test(
        "A malformed saved state is not restored",
        arguments: ["", "{", "{}", #"{"version": 2}"#, #"{"version": 1, "realm": "home"}"#, "[1]"])
    func malformed(text: String) throws {
        #expect(SavedState(Array(text.utf8), now: 0) == nil)
        let directory = try TemporaryDirectory()
        try directory.write(text, to: "bridge-state.json")
        #expect(StateFile(directory: directory.path).take() == nil)
    }

    @Test("A malformed element is skipped, and a malformed count begins a new run")
    func oneMalformed() throws {
        let state = state()
        let text = String(decoding: state.bytes(now: 0), as: UTF8.self)
        let queue = #""queue": ["#
        #expect(text.contains(queue) && text.contains(#"["b", 2]"#))
        let read = try #require(
            SavedState(Array(text.replacing(queue, with: queue + #"{"topic": 7}, "#).utf8), now: 0))
        #expect(read.queue == state.queue && read.counts == state.counts)
        let other = try #require(SavedState(Array(text.replacing(#"["b", 2]"#, with: #"["b", -2]"#).utf8), now: 0))
        #expect(other.queue == state.queue && other.counts.run != state.counts.run)
    }

    @Test("The client ID at the broker is created once for each state directory")
    func clientID() throws {
        let (one, other) = (try TemporaryDirectory(), try TemporaryDirectory())
        let id = try #require(StateFile(directory: one.entry("deep/er")).clientID())
        #expect(id.utf8.count > 16 && StateFile(directory: one.entry("deep/er")).clientID() == id)
        #expect(StateFile(directory: other.path).clientID() != id)
        try other.write("a b\n", to: "bridge-id")
        #expect(try #require(StateFile(directory: other.path).clientID()).utf8.count > 16)
        #expect(StateFile(directory: nil).clientID() == nil)
    }

    @Test("Without a writable state directory saving fails")
    func nowhere() throws {
        #expect(!StateFile(directory: nil).save(state()))
        #expect(!StateFile(directory: "/proc/none").save(state()))
    }
}

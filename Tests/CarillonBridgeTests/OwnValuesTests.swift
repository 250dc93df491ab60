// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: a host's values at its broker", .limited)
struct OwnValuesTests {
    private func message(_ object: String, _ text: String) -> OutwardMessage {
        OutwardMessage(
            name: "N", object: object, payload: Array(text.utf8), contentType: "application/json", isRetained: true,
            expiry: nil, properties: MessageProperties())
    }

    private func kinds(_ objects: String...) -> Set<ValueKey> { Set(objects.map { ValueKey("N", $0) }) }

    /// The broker shows these contents of objects.
    private func show(_ contents: [String: String], to values: inout OwnValues) {
        values.beginLooking()
        for (object, text) in contents {
            values.show(
                "N", object,
                Publication(topic: "t", payload: Array(text.utf8), isRetained: true, contentType: "application/json"),
                now: 0)
        }
    }

    @Test("A value that the broker has forgotten or restored to an older state is published again")
    func repaired() {
        var values = OwnValues()
        for object in ["a", "b", "c"] {
            let isNew = values.publish(message(object, "new"), isReplayed: true)
            #expect(isNew)
        }
        show(["a": "new", "b": "old"], to: &values)
        let difference = values.compare(with: kinds("a", "b", "c")) { _ in true }
        #expect(difference.gone.isEmpty && difference.isReplayNeeded)
        var published: [String] = []
        for object in ["a", "b", "c", "b"] where values.publish(message(object, "new"), isReplayed: true) {
            published.append(object)
        }
        #expect(published == ["b", "c"], "the other is there, and each is published once")
        let isPublished = values.publish(message("b", "new"), isReplayed: false)
        #expect(isPublished, "a new post always goes out")
    }

    @Test("A value with another lifetime is another value, even with equal content")
    func lifetimes() {
        func message(expiry: Int64?) -> OutwardMessage {
            OutwardMessage(
                name: "N", object: "a", payload: Array("1".utf8), contentType: "application/json", isRetained: true,
                expiry: expiry, properties: MessageProperties())
        }
        for (before, after, isSame) in [
            (nil, nil, true), (nil, 60_000_000, false), (60_000_000, nil, false), (60_000_000, 64_000_000, true),
            (60_000_000, 90_000_000, false),
        ] as [(Int64?, Int64?, Bool)] {
            var values = OwnValues()
            _ = values.publish(message(expiry: before), isReplayed: false)
            let isPublished = values.publish(message(expiry: after), isReplayed: true)
            #expect(isPublished == !isSame)
            _ = values.publish(message(expiry: after), isReplayed: false)
            values.beginLooking()
            values.show(
                "N", "a",
                Publication(
                    topic: "t", payload: Array("1".utf8), isRetained: true, contentType: "application/json",
                    expiry: before.map { UInt32($0 / 1_000_000) - 10 }), now: 10_000_000)
            let difference = values.compare(with: kinds("a")) { _ in true }
            #expect(difference.isReplayNeeded == !isSame)
        }
    }

    @Test("A value that ended in the session is removed at the broker, but only for exported or own names")
    func removed() {
        var values = OwnValues()
        _ = values.publish(message("a", "1"), isReplayed: false)
        show(["a": "1", "b": "1"], to: &values)
        let gone1 = values.compare(with: kinds("a")) { _ in true }.gone
        #expect(gone1 == [ValueKey("N", "b")])
        show(["b": "1"], to: &values)
        values.willAsk()
        let gone2 = values.compare(with: kinds("a")) { _ in false }.gone
        #expect(gone2 == [])
        let gone3 = values.compare(with: []) { _ in false }.gone
        #expect(gone3 == [ValueKey("N", "a")], "this process has published it")
        let gone4 = values.compare(with: []) { _ in true }.gone
        #expect(gone4 == [])
    }

    @Test("A value published after the request is not removed if the answer lacks it")
    func published() {
        var values = OwnValues()
        values.willAsk()
        _ = values.publish(message("a", "1"), isReplayed: false)
        let early = values.compare(with: []) { _ in true }
        #expect(early.gone == [] && early.mustAskAgain, "perhaps it was removed as well, so it is asked for again")
        values.willAsk()
        let late = values.compare(with: []) { _ in true }
        #expect(late.gone == [ValueKey("N", "a")] && !late.mustAskAgain)
    }

    @Test("A value from the saved queue that ended in the session is removed behind its message")
    func restored() {
        var values = OwnValues()
        for object in ["gone", "there", "removed"] { values.restore(message(object, "1")) }
        values.restore(OutwardMessage(removalOf: "N", "removed"))
        show([:], to: &values)
        let isPublished = values.publish(message("there", "1"), isReplayed: true)
        #expect(!isPublished, "it waits in the queue")
        let gone = values.compare(with: kinds("there")) { _ in true }.gone
        #expect(gone == [ValueKey("N", "gone")], "the broker has not shown it, as it was not sent yet")
    }

    @Test("A value that was lost before it was sent is published again, or removed if the session no longer has it")
    func lost() {
        var values = OwnValues()
        for object in ["a", "b", "c"] { _ = values.publish(message(object, "1"), isReplayed: false) }
        _ = values.publish(message("b", "2"), isReplayed: false)
        values.lost(message("a", "1"))
        values.lost(message("b", "1"))
        let isDue = values.takeReplay()
        let isDueAgain = values.takeReplay()
        #expect(isDue && !isDueAgain)
        let again = ["a", "b", "c"].filter { values.publish(message($0, $0 == "b" ? "2" : "1"), isReplayed: true) }
        #expect(again == ["a"], "a newer content of the other one follows")
        values.lost(message("c", "1"))
        values.willAsk()
        let gone = values.compare(with: kinds("a", "b"), hasLooked: false) { _ in true }.gone
        #expect(gone == [ValueKey("N", "c")])
    }

    @Test("A notification missed during a replay is not recovered by that replay")
    func missed() {
        var values = OwnValues()
        var states = [values.mayLackValues]
        values.noteMissed()
        let first = values.misses
        values.noteMissed()
        let second = values.misses
        values.replayed(behind: first)
        states.append(values.mayLackValues)
        values.replayed(behind: second)
        states.append(values.mayLackValues)
        // One that began before, and ends late.
        values.replayed(behind: first)
        states.append(values.mayLackValues)
        #expect(states == [false, true, false, false])
    }

    @Test("A value that is published while the broker shows its values is not missing there")
    func publishedMeanwhile() {
        var values = OwnValues()
        _ = values.publish(message("a", "1"), isReplayed: false)
        show(["a": "1"], to: &values)
        _ = values.publish(message("a", "2"), isReplayed: false)
        let isNeeded = values.compare(with: kinds("a")) { _ in true }.isReplayNeeded
        #expect(!isNeeded)
        show(["a": "1"], to: &values)
        let isNeededLater = values.compare(with: kinds("a")) { _ in true }.isReplayNeeded
        #expect(isNeededLater)
    }

    @Test("A new configuration publishes refused values again")
    func refused() {
        var values = OwnValues()
        _ = values.publish(message("a", "1"), isReplayed: false)
        values.refused(message("a", "1"))
        show([:], to: &values)
        let isNeeded = values.compare(with: kinds("a")) { _ in true }.isReplayNeeded
        #expect(!isNeeded)
        values.forgetRefused()
        show([:], to: &values)
        let isNeededThen = values.compare(with: kinds("a")) { _ in true }.isReplayNeeded
        let isPublished = values.publish(message("a", "1"), isReplayed: true)
        #expect(isNeededThen && isPublished)
    }

    @Test("A comparison without the broker's values finds no value missing")
    func notLooking() {
        var values = OwnValues()
        _ = values.publish(message("a", "1"), isReplayed: false)
        let isNeeded5 = values.compare(with: kinds("a", "b")) { _ in true }.isReplayNeeded
        #expect(!isNeeded5)
        values.beginLooking()
        values.stopLooking()
        let isNeeded6 = values.compare(with: kinds("a")) { _ in true }.isReplayNeeded
        #expect(!isNeeded6)
    }

    @Test("A removal, and a message that is not retained, does not count as a value at the broker")
    func notShown() {
        var values = OwnValues()
        _ = values.publish(message("a", "1"), isReplayed: false)
        show(["a": "1"], to: &values)
        values.show("N", "a", Publication(topic: "t", payload: [], isRetained: true), now: 0)
        values.show("N", "a", Publication(topic: "t", payload: [49], isRetained: false), now: 0)
        let isNeeded7 = values.compare(with: kinds("a")) { _ in true }.isReplayNeeded
        #expect(isNeeded7)
    }
}

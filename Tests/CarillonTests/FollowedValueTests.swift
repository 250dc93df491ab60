// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import Carillon

/// Which of what arrives, is read and is set a value shows (R1 to R3): every order in which that can happen, without a bus.
@Suite("R2: the shown value of a property", .limited)
struct FollowedValueTests {
    private let value = Follower()

    @Test("After a reading only newer notifications replace the value")
    func read() {
        let reading = value.beginReading()
        #expect(value.answer(reading, "five", 5) && value.shown == "five")
        value.hear("four", 4)
        value.hear("five again", 5)
        #expect(value.shown == "five")
        value.hear("six", 6)
        #expect(value.shown == "six")
    }

    @Test("A content that is decoded late does not replace a newer one")
    func lateDecoding() throws {
        var value = FollowedValue<String>()
        let first = value.arrived(serial: 1)
        let reading = value.beginReading()
        let second = value.answered(reading, serial: 2, isLast: false)
        value.take("second", at: try #require(second), from: reading)
        value.take("first", at: try #require(first))
        #expect(value.shown == "second")

        let removed = value.beginReading()
        let place = value.answered(removed, serial: 0, isLast: false)
        let third = value.arrived(serial: 3)
        value.take("third", at: try #require(third))
        value.take(nil, at: try #require(place), from: removed)
        #expect(value.shown == "third")
    }

    @Test("A notification during a reading causes another reading, up to a limit")
    func again() {
        let first = value.beginReading()
        value.hear("two", 2)
        #expect(!value.answer(first, "one", 1) && value.shown == "two")
        let second = value.beginReading()
        value.hear("three", 3)
        #expect(!value.answer(second, nil, 0))
        let third = value.beginReading()
        value.hear("four", 4)
        #expect(value.answer(third, "three", 3, isLast: true) && value.shown == "four")
        let fourth = value.beginReading()
        #expect(value.answer(fourth, nil, 0) && value.shown == nil)
    }

    @Test("An answer removes a value, and a notification that was not retained gives way to the answer")
    func gone() {
        value.hear("one", 1)
        value.hear("not retained", 2)
        let first = value.beginReading()
        #expect(value.answer(first, "one", 1) && value.shown == "one")
        let second = value.beginReading()
        #expect(value.answer(second, nil, 0) && value.shown == nil)
        value.hear("three", 3)
        #expect(value.shown == "three")
    }

    @Test("Serial numbers may restart with another service")
    func anew() {
        let first = value.beginReading()
        #expect(value.answer(first, "hundred", 100))
        value.serviceChanged()
        value.hear("one", 1)
        #expect(value.shown == "one")
        // What was heard of it before that was known is found by asking.
        let second = value.beginReading()
        #expect(value.answer(second, "hundred", 100))
        value.hear("two", 2)
        value.serviceChanged()
        let third = value.beginReading()
        #expect(value.answer(third, "two", 2) && value.shown == "two")
        value.hear("three", 3)
        #expect(value.shown == "three")
    }

    @Test("A set value is shown until all changes are answered and the service's value is read")
    func set() {
        value.hear("old", 1)
        let (first, second) = (value.begin("first"), value.begin("second"))
        #expect(value.shown == "second" && !value.isLast(first) && value.isLast(second))
        value.hear("first", 2)
        #expect(value.shown == "second" && !value.ended(first, isAccepted: true))
        // Asked while an answer is due: it may not know of the second.
        let early = value.beginReading()
        #expect(value.answer(early, "first", 2) && value.shown == "second")
        #expect(value.ended(second, isAccepted: true) && value.shown == "second")
        let late = value.beginReading()
        #expect(value.answer(late, "second", 3) && value.shown == "second")
        value.hear("second", 3)
        value.hear("another's", 4)
        #expect(value.shown == "another's")
    }

    @Test("A value set during a reading is not replaced by its answer")
    func setWhileRead() {
        let first = value.begin("first")
        #expect(value.ended(first, isAccepted: true))
        let reading = value.beginReading()
        let second = value.begin("second")
        #expect(value.answer(reading, "first", 1) && value.shown == "second")
        #expect(value.ended(second, isAccepted: true))
        let settling = value.beginReading()
        // Another program was behind.
        #expect(value.answer(settling, "another's", 3) && value.shown == "another's")
    }

    @Test("A refused change reverts, and an accepted change remains if the reading fails")
    func refused() {
        value.hear("old", 1)
        let refused = value.begin("refused")
        #expect(value.ended(refused, isAccepted: false))
        value.undoRefused()
        #expect(value.shown == "old")
        let made = value.begin("made")
        value.undoRefused()
        #expect(value.shown == "made" && value.ended(made, isAccepted: true))
        value.undoRefused()
        let reading = value.beginReading()
        value.failed(reading)
        #expect(value.shown == "made" && value.known == "made")
        let other = value.begin("refused")
        #expect(value.ended(other, isAccepted: false))
        let failing = value.beginReading()
        value.failed(failing)
        #expect(value.shown == "made")
    }

    @Test(
        "A refused change reverts to the last successful one, even before the service has announced that",
        arguments: [false, true])
    func refusedBehindMade(isRead: Bool) {
        let removal = value.begin(nil)
        #expect(value.ended(removal, isAccepted: true))
        let made = value.begin("made")
        #expect(value.ended(made, isAccepted: true))
        let early = value.beginReading()
        for _ in 0..<2 {
            let refused = value.begin(nil)
            #expect(value.shown == nil)
            #expect(value.ended(refused, isAccepted: false))
            value.undoRefused()
            #expect(value.shown == "made")
        }
        #expect(value.answer(early, "made", 2) && value.shown == "made")
        let late = value.beginReading()
        if isRead {
            #expect(value.answer(late, "another's", 3) && value.shown == "another's")
        } else {
            value.failed(late)
            #expect(value.shown == "made" && value.known == "made")
        }
        value.hear("four", 4)
        #expect(value.shown == "four")
        let refused = value.begin("refused")
        #expect(value.ended(refused, isAccepted: false))
        value.undoRefused()
        #expect(value.shown == "four", "what was made before is no longer what it goes back to")
    }

    @Test("A refused change among others reverts to the last accepted change", arguments: [false, true])
    func refusedAmongOthers(isFirstAnsweredFirst: Bool) {
        value.hear("old", 1)
        let (first, second) = (value.begin("first"), value.begin("second"))
        if isFirstAnsweredFirst {
            #expect(!value.ended(first, isAccepted: true))
            #expect(value.ended(second, isAccepted: false))
            value.undoRefused()
            #expect(value.shown == "first")
        } else {
            #expect(!value.ended(second, isAccepted: false))
            value.undoRefused()
            #expect(value.shown == "old")
            #expect(value.ended(first, isAccepted: true))
        }
        value.failed(value.beginReading())
        #expect(value.shown == "first" && value.known == "first")
    }

    @Test("A refused change reverts to a newer value of another program instead of an accepted change")
    func refusedBehindNewer() {
        let made = value.begin("made")
        #expect(value.ended(made, isAccepted: true))
        value.hear("another's", 3)
        let refused = value.begin("refused")
        #expect(value.ended(refused, isAccepted: false))
        value.undoRefused()
        #expect(value.shown == "another's")
        value.failed(value.beginReading())
        #expect(value.shown == "another's" && value.known == "another's")
    }

    @Test("A removed value is not restored by notifications or answers in flight")
    func removed() {
        let set = value.begin("set")
        #expect(value.ended(set, isAccepted: true))
        let removal = value.begin(nil)
        #expect(value.shown == nil)
        value.willRemove(serial: 1)
        value.hear("set", 1)
        // Asked before the service heard of it.
        let early = value.beginReading()
        #expect(!value.answer(early, "set", 1) && value.shown == nil)
        #expect(value.ended(removal, isAccepted: true))
        let reading = value.beginReading()
        #expect(value.answer(reading, nil, 0) && value.shown == nil && value.known == nil)
        value.hear("new", 2)
        #expect(value.shown == "new")
    }
}

/// One value, and who decodes at once what comes of it.
private final class Follower {
    private var value = FollowedValue<String>()
    /// Of each change.
    private var contents: [UInt64: String?] = [:]

    typealias Reading = FollowedValue<String>.Reading

    var shown: String? { value.shown }
    var known: String? { value.known }

    /// A notification.
    func hear(_ content: String, _ serial: UInt64) {
        if let place = value.arrived(serial: serial) { value.take(content, at: place) }
    }

    /// - Returns: whether the answer settles it.
    func answer(_ reading: Reading, _ content: String?, _ serial: UInt64, isLast: Bool = false) -> Bool {
        guard let place = value.answered(reading, serial: serial, isLast: isLast) else { return false }
        value.take(content, at: place, from: reading)
        return true
    }

    func beginReading() -> Reading { value.beginReading() }
    func failed(_ reading: Reading) { value.failed(reading) }
    func serviceChanged() { value.serviceChanged() }
    func begin(_ content: String?) -> UInt64 {
        let number = value.begin(content)
        contents[number] = .some(content)
        return number
    }
    func ended(_ number: UInt64, isAccepted: Bool) -> Bool {
        value.ended(number, contents[number] ?? nil, isAccepted: isAccepted)
    }
    func isLast(_ number: UInt64) -> Bool { value.isLast(number) }
    func willRemove(serial: UInt64) { value.willRemove(serial: serial) }
    func undoRefused() { value.undoRefused() }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestSupport
import Foundation
import Testing

import Carillon
import CarillonTestLimits

@Suite("Observers of the Swift library on a real bus", .limited)
struct ObservingTests {
    @Test("D2: observers match by name and object as in the table of C1")
    func matching() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", "o", tag: "name and object")
        try ear.listen("a", tag: "name")
        try ear.listen(nil, "o", tag: "object")
        try ear.listen(nil, tag: "everything")
        for (number, (name, object)) in [("a", "o"), ("a", nil), ("b", "o"), ("b", nil), ("A", "O"), ("a", "p")]
            .enumerated()
        { poster.post(name, object, number: number) }
        #expect(
            try ear.everything(from: poster) == [
                "name and object 0", "name 0", "object 0", "everything 0", "name 1", "everything 1", "object 2",
                "everything 2", "everything 3", "everything 4", "name 5", "everything 5",
            ])
    }

    @Test("C3: observers run in the order of their addition, across shared and separate registrations")
    func order() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", tag: "1")
        try ear.listen(nil, tag: "2")
        try ear.listen("a", tag: "3")
        try ear.listen("a", "o", tag: "4")
        try ear.listen(nil, "o", tag: "5")
        try ear.listen("a", nil, .hold, tag: "6")
        try ear.listen(nil, tag: "7")
        try ear.listen("a", tag: "8")
        poster.post("a", "o", number: 0)
        #expect(try ear.everything(from: poster) == (1...8).map { "\($0) 0" })
        #expect(ear.center.statistics.received == 2, "one signal for all of them, and one for the end")
    }

    @Test("C10, C11: observers of one name and object share one registration at the service")
    func shared() throws {
        let desk = try Desk()
        let center = desk.center()
        let tokens = (0..<100).map { _ in center.addObserver(forName: .init("a"), object: nil, queue: nil) { _ in } }
        let other = center.addObserver(forName: .init("a"), object: "o", queue: nil) { _ in }
        try center.settle()
        try expectObserverCounts([2], on: desk.bus)
        for token in tokens.dropLast() { center.removeObserver(token) }
        try center.settle()
        try expectObserverCounts([2], on: desk.bus)
        center.removeObserver(tokens.last!)
        center.removeObserver(other)
        try center.settle()
        try expectObserverCounts([], on: desk.bus)
    }

    @Test("An observer receives notifications after its registration was removed and added many times")
    func flicker() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        for number in 0..<200 {
            let token = ear.center.addObserver(forName: .init("a"), object: nil, queue: nil) { [heard = ear.heard] _ in
                heard.add("\(number)")
            }
            if number < 199 { ear.center.removeObserver(token) }
        }
        try expectObserverCounts([2], on: desk.bus)
        try ear.center.settle()
        poster.post("a", number: 0)
        #expect(try ear.everything(from: poster) == ["199"])
    }

    @Test("C8: a removed observer is not called again, and an observer added during a post not for that post")
    func changesInside() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let later = Locked<Token?>(nil)
        let own = Locked<Token?>(nil)
        let first = ear.center.addObserver(forName: .init("a"), object: nil, queue: nil) { [heard = ear.heard] note in
            heard.add("first \(note.userInfo?["number"] ?? "")")
            let center = ear.center
            if let token = later.withLock({ $0 }) { center.removeObserver(token.value) }
            if let token = own.withLock({ $0 }) { center.removeObserver(token.value) }
            center.addObserver(forName: .init("a"), object: nil, queue: nil) { note in
                heard.add("added \(note.userInfo?["number"] ?? "")")
            }
            // Nested posts come later, through the service.
            center.post("b", number: 7)
            heard.add("done")
        }
        own.withLock { $0 = Token(first) }
        let second = try ear.listen("a", tag: "second")
        later.withLock { $0 = Token(second) }
        try ear.listen("b", tag: "b")
        poster.post("a", number: 0)
        try eventually("the nested post: \(ear.heard.all)") { ear.heard.contains { $0 == "b 7" } }
        poster.post("a", number: 1)
        let heard = try ear.everything(from: poster)
        #expect(heard == ["first 0", "done", "b 7", "added 1"])
    }

    @Test("C6, C10: repeated and foreign removals have no effect, and an optional token is accepted")
    func removing() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let first = try ear.listen("a", tag: "first")
        let second: (any NSObjectProtocol)? = try ear.listen("a", tag: "second")
        try ear.listen("a", tag: "third")
        let stranger = poster.addObserver(forName: .init("a"), object: nil, queue: nil) { _ in }
        ear.center.removeObserver(first)
        ear.center.removeObserver(first)
        ear.center.removeObserver(first, name: .init("b"), object: nil)
        ear.center.removeObserver(stranger)
        ear.center.removeObserver(5)
        ear.center.removeObserver("text")
        ear.center.removeObserver(NSObject())
        ear.center.removeObserver(Optional<NSObject>.none as Any)
        poster.post("a", number: 0)
        #expect(try ear.everything(from: poster) == ["second 0", "third 0"])
        // As code on macOS has it: an optional that became an Any.
        ear.center.removeObserver(second as Any)
        poster.post("a", number: 1)
        #expect(try ear.everything(from: poster).suffix(1) == ["third 1"])
    }

    @Test("C6: removal by name and object removes only observers added with them")
    func removingByName() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let target = Recorder(ear.heard)
        for (name, object) in [("a", nil), ("a", "o"), ("b", nil), (nil, nil)] as [(String?, String?)] {
            ear.center.addObserver(
                target, method: Recorder.received, name: name.map { .init($0) }, object: object)
        }
        let other = Recorder(ear.heard, tag: "other")
        ear.center.addObserver(other, method: Recorder.received, name: .init("a"))
        ear.center.removeObserver(target, name: .init("a"), object: "o" as NSString)
        try ear.center.settle()
        poster.post("a", "o", number: 0)
        #expect(try ear.everything(from: poster) == ["target 0", "target 0", "other 0"])
        ear.center.removeObserver(target, name: .init("a"), object: nil)
        poster.post("a", "o", number: 1)
        let rest = try ear.everything(from: poster).dropFirst(3)
        #expect(rest == ["target 1", "other 1"])
        ear.center.removeObserver(target)
        poster.post("b", "o", number: 2)
        #expect(try ear.everything(from: poster).count == 5)
        withExtendedLifetime((target, other)) {}
    }

    @Test("C7: an observation ends with its handle or by cancellation")
    func handles() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let kept = ear.center.observe(.init("a")) { [heard = ear.heard] _ in heard.add("kept") }
        var dropped: DistributedNotificationCenter.Observation? = ear.center.observe(.init("a"), object: "o") {
            [heard = ear.heard] _ in
            heard.add("dropped")
        }
        _ = ear.center.observe(.init("a")) { [heard = ear.heard] _ in heard.add("never") }
        try ear.center.settle()
        poster.post("a", "o", number: 0)
        #expect(try ear.everything(from: poster) == ["kept", "dropped"])
        withExtendedLifetime(dropped) {}
        dropped = nil
        poster.post("a", "o", number: 1)
        #expect(try ear.everything(from: poster) == ["kept", "dropped", "kept"])
        kept.cancel()
        kept.cancel()
        poster.post("a", "o", number: 2)
        #expect(try ear.everything(from: poster).count == 3)
        try ear.center.settle()
        try expectObserverCounts([1], on: desk.bus)
    }

    @Test("C9: objects captured by a block may use the center in their deinit")
    func deinits() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        /// Removes its token and posts while it ends.
        final class Holder: @unchecked Sendable {
            // Sendable: made here, and ended by the removal.
            let center: DistributedNotificationCenter
            let token: any NSObjectProtocol
            init(_ center: DistributedNotificationCenter) {
                self.center = center
                token = center.addObserver(forName: .init("held"), object: nil, queue: nil) { _ in }
            }
            deinit {
                center.removeObserver(token)
                center.removeObserver(self)
                center.post("a", number: 5)
                _ = center.observe(.init("x")) { _ in }
            }
        }
        try ear.listen("a", tag: "a")
        // By token, by handle, as a handler of events, and from within the block itself.
        func block() -> @Sendable (Notification) -> Void {
            let holder = Holder(ear.center)
            return { _ in withExtendedLifetime(holder) {} }
        }
        ear.center.removeObserver(ear.center.addObserver(forName: .init("b"), object: nil, queue: nil, using: block()))
        ear.center.observe(.init("b"), using: block()).cancel()
        do {
            let holder = Holder(ear.center)
            ear.center.observeEvents { _ in withExtendedLifetime(holder) {} }.cancel()
        }
        let inner = Locked<DistributedNotificationCenter.Observation?>(nil)
        let action = block()
        let outer = ear.center.observe(.init("c")) { note in
            action(note)
            inner.withLock { $0.take() }?.cancel()
        }
        inner.withLock { $0 = ear.center.observe(.init("c"), using: block()) }
        try ear.center.settle()
        poster.post("c", number: 0)
        try eventually("four posts from deinits: \(ear.heard.all)") {
            ear.heard.all.filter { $0 == "a 5" }.count == 4
        }
        withExtendedLifetime(outer) {}
    }

    @Test("B4: refused observers are counted and reported, and other observers still work")
    func refused() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let events = Inbox<DistributedNotificationError>()
        let observation = ear.center.observeEvents { event in
            if case .observerRefused(_, _, let error) = event { events.add(error) }
        }
        let block: @Sendable (Notification) -> Void = { _ in Issue.record("a refused observer was called") }
        ear.center.addObserver(forName: .init(""), object: nil, queue: nil, using: block)
        ear.center.addObserver(forName: .init("a\0b"), object: nil, queue: nil, using: block)
        ear.center.addObserver(forName: .init("a"), object: 5, queue: nil, using: block)
        ear.center.addObserver(forName: .init("a"), object: self, queue: nil, using: block)
        // What only the service knows.
        let long = ear.center.addObserver(
            forName: .init(String(repeating: "a", count: 1025)), object: nil, queue: nil, using: block)
        let errors = try events.wait(for: 5)
        #expect(errors.prefix(2) == [.invalidName(""), .invalidName("a\0b")])
        #expect(errors.dropFirst(2).prefix(2).allSatisfy { if case .invalidObject = $0 { true } else { false } })
        #expect({ if case .limitExceeded = errors[4] { true } else { false } }(), "\(errors)")
        #expect(ear.center.statistics.refusedObservers == 5)
        ear.center.removeObserver(long)
        try ear.listen("a", NSString("o") as String, tag: "a")
        poster.post("a", "o", number: 0)
        #expect(try ear.everything(from: poster) == ["a 0"])
        withExtendedLifetime(observation) {}
    }

    @Test("An object may be an NSString, and the empty string is no object (N3)")
    func objects() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        ear.center.addObserver(forName: .init("a"), object: "o" as NSString, queue: nil) { [heard = ear.heard] note in
            heard.add("\(note.object as? String ?? "-")")
        }
        ear.center.addObserver(forName: .init("b"), object: "", queue: nil) { [heard = ear.heard] note in
            heard.add("\(note.object as? String ?? "-")")
        }
        try ear.center.settle()
        poster.post(name: .init("a"), object: "o" as NSString)
        poster.post(Notification(name: .init("b"), object: ""))
        #expect(try ear.everything(from: poster) == ["o", "-"])
    }

    @Test("The origin of a delivery has its poster, serial number and sequence number (D4, D6)")
    func origin() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let origins = Inbox<Origin?>()
        ear.center.addObserver(forName: .init("a"), object: nil, queue: OperationQueue()) { _ in
            origins.add(Origin.current)
        }
        try ear.center.settle()
        for number in 0..<3 { poster.post("a", number: number) }
        let all = try origins.wait(for: 3).compactMap { $0 }
        #expect(all.count == 3 && Set(all.map(\.poster)).count == 1 && all[0].poster.hasPrefix(":"))
        #expect(all.map(\.sequence) == [1, 2, 3])
        #expect(all.map(\.serial) == all.map(\.serial).sorted() && Set(all.map(\.serial)).count == 3)
        #expect(Origin.current == nil)
    }
}

/// A target whose method observes.
final class Recorder: Sendable {
    private let heard: Inbox<String>
    private let tag: String

    init(_ heard: Inbox<String>, tag: String = "target") {
        self.heard = heard
        self.tag = tag
    }

    func received(_ note: Notification) {
        guard let number = note.userInfo?["number"] as? Int else { return }
        heard.add("\(tag) \(number)")
    }
}

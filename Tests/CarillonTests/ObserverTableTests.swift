// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonTestLimits
import CarillonThreadDelivery
import Testing

@testable import Carillon

@Suite("Observer table: the program's observers and their shared registrations", .limited)
struct ObserverTableTests {
    private final class Token: Sendable {}

    private func key(_ name: String) -> RegistrationKey {
        RegistrationKey(name: ExactText(name), object: nil, options: ObserverOptions())
    }

    private func add(
        _ table: inout ObserverTable, _ owner: AnyObject, _ name: String, isToken: Bool = true
    ) -> ObserverTable.Change {
        table.add(owner: owner, isToken: isToken, key: key(name), target: DirectTarget(), action: .block { _ in })
    }

    @Test("Observers with the same name, object and behavior share one registration")
    func shared() {
        var table = ObserverTable()
        let (first, second) = (Token(), Token())
        #expect(add(&table, first, "a") == .init(registered: key("a")))
        #expect(add(&table, second, "a") == .init())
        #expect(table.remove(of: first) == .init())
        #expect(table.remove(of: second) == .init(unregistered: [key("a")]))
        #expect(table.count == 0)
    }

    @Test("Observers are listed in the order of their addition, across all registrations (C3)")
    func order() {
        var table = ObserverTable()
        let tokens = (0..<6).map { _ in Token() }
        for (index, token) in tokens.enumerated() { _ = add(&table, token, index.isMultiple(of: 2) ? "a" : "b") }
        let orders = table.observers(of: [key("b"), key("a")]).map(\.order)
        #expect(orders == orders.sorted() && orders.count == 6)
    }

    @Test("An observer added twice is listed twice, and one removal removes both (C10)")
    func twice() {
        var table = ObserverTable()
        let owner = Token()
        _ = add(&table, owner, "a", isToken: false)
        _ = add(&table, owner, "a", isToken: false)
        #expect(table.observers(of: [key("a")]).count == 2)
        #expect(table.remove(of: owner) == .init(unregistered: [key("a")]))
        #expect(table.remove(of: owner) == .init())
    }

    @Test("Removal by condition affects only matching observers of the given owner (C6)")
    func condition() {
        var table = ObserverTable()
        let (owner, other) = (Token(), Token())
        for name in ["a", "b"] {
            _ = add(&table, owner, name)
            _ = add(&table, other, name)
        }
        let none = table.remove(of: owner) { $0 == key("a") }
        #expect(none == .init())
        #expect(table.observers(of: [key("a")]).count == 1)
        #expect(table.observers(of: [key("b")]).count == 2)
        let last = table.remove(of: other) { $0 == key("a") }
        #expect(last == .init(unregistered: [key("a")]))
    }

    @Test("Repeated queries for the same registrations reflect changes of the observers")
    func again() {
        var table = ObserverTable()
        let (one, other) = (Token(), Token())
        let keys = [key("a"), key("b")]
        _ = add(&table, one, "a")
        #expect(table.observers(of: keys).count == 1)
        _ = add(&table, other, "b")
        #expect(table.observers(of: keys).count == 2)
        #expect(table.observers(of: [key("b")]).count == 1)
        #expect(table.observers(of: keys).map(\.order) == [1, 2])
        _ = table.remove(of: one)
        #expect(table.observers(of: keys).map(\.order) == [2])
        _ = table.remove(of: other)
        #expect(table.observers(of: keys).isEmpty)
    }

    @Test("The observers of a deallocated object are removed, also if a new object has its address (C12)")
    func dead() {
        var table = ObserverTable()
        var owner: Token? = Token()
        _ = add(&table, owner!, "a", isToken: false)
        owner = nil
        #expect(table.removeDead() == .init(unregistered: [key("a")]))
        #expect(table.count == 0)

        // Until another object is at the same address.
        for _ in 0..<10_000 {
            var old: Token? = Token()
            let address = ObjectIdentifier(old!)
            _ = add(&table, old!, "old", isToken: false)
            old = nil
            let new = Token()
            guard ObjectIdentifier(new) == address else {
                _ = table.removeDead()
                continue
            }
            #expect(
                add(&table, new, "new", isToken: false)
                    == .init(registered: key("new"), unregistered: [key("old")]))
            #expect(table.remove(of: new) == .init(unregistered: [key("new")]))
            return
        }
        Issue.record("the allocator never used an address again")
    }

    @Test("An object may remove its observers in its deinit")
    func inDeinit() {
        final class Owner {
            var atEnd: (Owner) -> Void = { _ in }
            deinit { atEnd(self) }
        }
        var table = ObserverTable()
        var changes: [ObserverTable.Change] = []
        do {
            let owner = Owner()
            _ = table.add(
                owner: owner, isToken: false, key: key("a"), target: DirectTarget(), action: .method { _ in false })
            owner.atEnd = { changes.append(table.remove(of: $0) { _ in false }) }
        }
        #expect(changes == [.init(unregistered: [key("a")])])
        #expect(table.count == 0)
    }

    @Test("Observers of deallocated objects are removed during later additions, without a notification (C5, E1)")
    func swept() {
        var table = ObserverTable()
        for number in 0..<10_000 { _ = add(&table, Token(), "\(number)", isToken: false) }
        #expect(table.count < 200)
    }

    @Test("Objects captured by a removed observer are released by the caller, not inside the table")
    func released() {
        var table = ObserverTable()
        weak var held: Token?
        let owner = Token()
        do {
            let token = Token()
            held = token
            _ = table.add(
                owner: owner, isToken: true, key: key("a"), target: DirectTarget(),
                action: .block { _ in withExtendedLifetime(token) {} })
        }
        _ = table.observers(of: [key("a")])
        _ = table.remove(of: owner)
        #expect(held != nil)
        _ = table.takeReleased()
        #expect(held == nil)
    }

    @Test("An observer remains after the program has discarded its token (C5)")
    func token() {
        var table = ObserverTable()
        _ = add(&table, Token(), "a")
        #expect(table.removeDead() == .init())
        #expect(table.observers(of: [key("a")]).count == 1)
    }

    @Test("A registration passes unchanged from a deallocated owner to a new owner at its address")
    func takenOver() {
        var table = ObserverTable()
        for _ in 0..<10_000 {
            var old: Token? = Token()
            let address = ObjectIdentifier(old!)
            _ = add(&table, old!, "a", isToken: false)
            old = nil
            let new = Token()
            guard ObjectIdentifier(new) == address else {
                _ = table.removeDead()
                continue
            }
            #expect(add(&table, new, "a", isToken: false) == .init())
            #expect(table.observers(of: [key("a")]).count == 1)
            return
        }
        Issue.record("the allocator never used an address again")
    }

    @Test("Ten thousand observers of one name are added and removed without leaving observers")
    func many() {
        var table = ObserverTable()
        let tokens = (0..<10_000).map { _ in Token() }
        for token in tokens { _ = add(&table, token, "a") }
        for token in tokens.reversed() { _ = table.remove(of: token) }
        #expect(table.count == 0)
    }
}

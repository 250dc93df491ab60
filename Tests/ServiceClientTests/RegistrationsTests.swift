// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

@Suite("Registrations: comparison of the service's with the wanted ones (E3)", .limited)
struct RegistrationsTests {
    private func key(
        _ name: String?, _ object: String? = nil, _ behavior: SuspensionBehavior = .coalesce,
        mode: RunLoopMode = .default
    ) -> RegistrationKey {
        RegistrationKey(
            name: name.map(ExactText.init), object: object.map(ExactText.init),
            options: ObserverOptions(suspensionBehavior: behavior, runLoopMode: mode))
    }

    private func listed(
        _ id: UInt64, _ name: String, _ object: String = "", _ behavior: String = "coalesce"
    ) -> ListedObserver {
        ListedObserver(id: ObserverID(rawValue: id), name: name, object: object, suspensionBehavior: behavior)
    }

    /// Registered under 1, 2, 3 …
    private func registered(_ keys: RegistrationKey...) -> Registrations {
        var registrations = Registrations()
        for (index, key) in keys.enumerated() {
            registrations.want(key)
            registrations.asked(key)
            let isWanted = registrations.added(key, id: ObserverID(rawValue: UInt64(index + 1)))
            #expect(isWanted)
        }
        return registrations
    }

    @Test("A registration has the shared number 0 unless it is given another number")
    func shared() {
        let options = ObserverOptions()
        func key(_ number: UInt64) -> RegistrationKey {
            RegistrationKey(name: ExactText("a"), object: nil, options: options, number: number)
        }
        let unnumbered = RegistrationKey(name: ExactText("a"), object: nil, options: options)
        #expect(unnumbered == key(0) && unnumbered != key(1))
    }

    @Test("A service that restored all registrations needs no repair")
    func recovered() {
        var registrations = registered(key("a"), key("b", "x", .hold), key(nil))
        let repair = registrations.compare(with: [listed(1, "a"), listed(2, "b", "x", "hold"), listed(3, "")])
        #expect(repair == Registrations.Repair())
        #expect(registrations.key(of: 2) == key("b", "x", .hold))
    }

    @Test("A lookup of observer IDs reflects every registration, removal and revocation since the last lookup")
    func again() {
        var registrations = registered(key("a"), key("b"))
        let ids: [ObserverID] = [1, 2, 3]
        #expect(registrations.keys(of: ids) == [key("a"), key("b")])
        #expect(registrations.keys(of: [2]) == [key("b")])
        registrations.want(key("c"))
        registrations.asked(key("c"))
        #expect(registrations.keys(of: ids) == [key("a"), key("b")])
        _ = registrations.added(key("c"), id: 3)
        #expect(registrations.keys(of: ids) == [key("a"), key("b"), key("c")])
        _ = registrations.forget(key("a"))
        #expect(registrations.keys(of: ids) == [key("b"), key("c")])
        _ = registrations.revoked(2)
        #expect(registrations.keys(of: ids) == [key("c")])
        registrations.reset()
        #expect(registrations.keys(of: ids).isEmpty)
    }

    @Test("An observer ID is awaited until it arrives, or the registration is refused, removed or reset")
    func awaited() {
        var registrations = Registrations()
        func ask() {
            registrations.want(key("a"))
            #expect(!registrations.hasPendingRequests)
            registrations.asked(key("a"))
            #expect(registrations.hasPendingRequests)
        }
        ask()
        _ = registrations.forget(key("a"))
        ask()
        registrations.failed(key("a"))
        ask()
        registrations.reset()
        ask()
        _ = registrations.added(key("a"), id: 1)
        #expect(!registrations.hasPendingRequests)
        _ = registrations.forget(key("a"))
        #expect(!registrations.hasPendingRequests)
    }

    @Test("A service without registrations gets all of them, in the order in which they were first wanted")
    func fresh() {
        let keys = (0..<20).map { key("name \($0)") }
        var registrations = Registrations()
        for (index, key) in keys.enumerated() {
            registrations.want(key)
            registrations.asked(key)
            let isWanted = registrations.added(key, id: ObserverID(rawValue: UInt64(index)))
            #expect(isWanted)
        }
        let repair = registrations.compare(with: [])
        #expect(repair == Registrations.Repair(missing: keys))
        #expect(registrations.key(of: 3) == nil)
        #expect(!registrations.hasInherited)
    }

    @Test("A registration requested before the comparison does not show that the service remembers the client")
    func askedOfAnother() {
        func compared(with listed: ListedObserver...) -> Bool {
            var registrations = registered(key("a"))
            registrations.want(key("b"))
            registrations.asked(key("b"))
            // Its numbers may begin anew.
            let id = listed.last!.id
            let isWanted = registrations.added(key("b"), id: id, byAnother: true)
            #expect(isWanted)
            let repair = registrations.compare(with: listed)
            #expect(repair == Registrations.Repair(missing: listed.count == 1 ? [key("a")] : []))
            #expect(registrations.key(of: id) == key("b"))
            let isRemembered = registrations.hasInherited
            // The next one that has it has it from this one.
            _ = registrations.compare(with: [listed.last!])
            #expect(registrations.hasInherited)
            return isRemembered
        }
        #expect(!compared(with: listed(1, "b")))
        #expect(!compared(with: listed(2, "b")))
        #expect(compared(with: listed(1, "a"), listed(2, "b")))
    }

    @Test("A registration whose ID was lost with the service is adopted, not made twice")
    func adopted() {
        var registrations = registered(key("a"))
        registrations.want(key("b"))
        registrations.asked(key("b"))
        let repair = registrations.compare(with: [listed(1, "a"), listed(7, "b")])
        #expect(repair == Registrations.Repair())
        #expect(registrations.key(of: 7) == key("b"))
    }

    @Test("An ambiguous registration is not adopted, because the list does not contain the run-loop mode")
    func ambiguous() {
        var registrations = Registrations()
        registrations.want(key("a"))
        registrations.want(key("a", mode: .eventTracking))
        let repair = registrations.compare(with: [listed(7, "a")])
        #expect(repair.surplus == [7])
        #expect(repair.missing == [key("a"), key("a", mode: .eventTracking)])
    }

    @Test("Duplicate and unwanted registrations at the service are removed")
    func surplus() {
        var registrations = registered(key("a"), key("b"))
        #expect(registrations.forget(key("b")) == 2)
        let repair = registrations.compare(with: [listed(5, "a"), listed(1, "a"), listed(2, "b")])
        #expect(repair == Registrations.Repair(missing: [], surplus: [5, 2]))
        #expect(registrations.key(of: 1) == key("a"))
    }

    @Test("Names of registrations are compared byte for byte, as in the service")
    func exact() {
        var registrations = Registrations()
        registrations.want(key("\u{E9}"))
        let repair = registrations.compare(with: [listed(1, "e\u{301}")])
        #expect(repair == Registrations.Repair(missing: [key("\u{E9}")], surplus: [1]))
    }

    @Test("A late reply to a registration that is no longer wanted has to be undone")
    func late() {
        var registrations = Registrations()
        registrations.want(key("a"))
        registrations.asked(key("a"))
        #expect(registrations.forget(key("a")) == nil)
        let isWanted = registrations.added(key("a"), id: 1)
        #expect(!isWanted)
        #expect(registrations.isEmpty)
    }

    @Test("After a reconnection to the bus no ID is known, and all registrations are wanted")
    func reset() {
        var registrations = registered(key("a"))
        registrations.reset()
        #expect(registrations.key(of: 1) == nil)
        let repair = registrations.compare(with: [])
        #expect(repair.missing == [key("a")])
    }

    @Test("Sequence numbers reveal missing and repeated notifications (D6)")
    func sequence() {
        var check = SequenceCheck()
        #expect(check.check(sequence: 1, serial: 10) == .next)
        #expect(check.check(sequence: 2, serial: 11) == .next)
        #expect(check.check(sequence: 2, serial: 11) == .repeated)
        #expect(check.check(sequence: 5, serial: 14) == .missing(count: 2))
        check.dropped(3)
        #expect(check.check(sequence: 9, serial: 20) == .next)
        // A service that knew nothing of us counts from one.
        #expect(check.check(sequence: 1, serial: 1) == .next)
        check.dropped(5, isBound: true)
        check.reset()
        #expect(check.check(sequence: 3, serial: 1) == .missing(count: 2), "the new count has no losses yet")
        check.reset()
        #expect(check.check(sequence: 1, serial: 1) == .next)
    }

    @Test("Upper bounds of losses together excuse the next hole, and no later one (D6, S4)")
    func bounds() {
        /// - Returns: what comes of a number behind 1.
        func outcome(_ sequence: UInt64, _ told: (count: UInt64, isBound: Bool)...) -> SequenceCheck.Outcome {
            var check = SequenceCheck()
            _ = check.check(sequence: 1, serial: 1)
            for told in told { check.dropped(told.count, isBound: told.isBound) }
            let outcome = check.check(sequence: sequence, serial: 2)
            #expect(check.check(sequence: sequence + 2, serial: 3) == .missing(count: 1), "it excuses one hole")
            return outcome
        }
        #expect(outcome(2, (3, true)) == .next && outcome(5, (3, true)) == .next)
        #expect(outcome(6, (3, true)) == .missing(count: 1))
        #expect(outcome(7, (3, true), (2, true)) == .next)
        #expect(outcome(8, (3, true), (2, true)) == .missing(count: 1))
        // A number that is known counts where it stands.
        #expect(outcome(7, (3, true), (2, false)) == .next)
        #expect(outcome(7, (2, false), (3, true)) == .next)
        #expect(outcome(8, (2, false), (3, true)) == .missing(count: 1))
    }

    @Test("A service that may lack the client's state continues the sequence numbers or begins them anew (D6)")
    func maybeAnew() {
        /// - Returns: what comes of a number behind 1 and 2.
        func outcome(_ sequence: UInt64, dropped: UInt64 = 0) -> SequenceCheck.Outcome {
            var check = SequenceCheck()
            _ = check.check(sequence: 1, serial: 1)
            _ = check.check(sequence: 2, serial: 2)
            check.mayBeginAnew()
            if dropped > 0 { check.dropped(dropped) }
            return check.check(sequence: sequence, serial: 100)
        }
        #expect(outcome(3) == .next)
        #expect(outcome(1) == .next)
        #expect(outcome(2) == .missing(count: 1))
        #expect(outcome(5) == .missing(count: 2))
        #expect(outcome(4, dropped: 3) == .next)
        #expect(outcome(6, dropped: 3) == .next)
        #expect(outcome(8, dropped: 3) == .missing(count: 2))
        // The very same numbers are another notification.
        var check = SequenceCheck()
        #expect(check.check(sequence: 1, serial: 2) == .next && check.check(sequence: 1, serial: 2) == .repeated)
        check.mayBeginAnew()
        #expect(check.check(sequence: 1, serial: 2) == .next && check.check(sequence: 1, serial: 2) == .repeated)
    }

    @Test("Notifications of an ended channel may be repeated, unless the sequence numbers begin anew (D6)")
    func comesAgain() {
        func checked() -> SequenceCheck {
            var check = SequenceCheck()
            for number: UInt64 in 1...3 { _ = check.check(sequence: number, serial: 100 + number) }
            return check
        }
        var check = checked()
        check.mayRepeat()
        #expect(check.check(sequence: 2, serial: 102) == .repeated)
        #expect(check.check(sequence: 3, serial: 103) == .repeated)
        #expect(check.check(sequence: 4, serial: 104) == .next)
        // The next service knows nothing of us, and its channel ends before it had anything for us.
        for isAnnounced in [false, true] {
            check = checked()
            check.mayBeginAnew()
            if isAnnounced { check.dropped(2) }
            check.mayRepeat()
            #expect(check.check(sequence: isAnnounced ? 3 : 1, serial: 1) == .next)
            #expect(check.check(sequence: isAnnounced ? 4 : 2, serial: 2) == .next)
        }
        // It has something for us, with serials that begin anew, and the one behind it has lost the count only.
        check = SequenceCheck()
        #expect(check.check(sequence: 1, serial: 100) == .next)
        check.mayBeginAnew()
        #expect(check.check(sequence: 1, serial: 1) == .next)
        check.mayRepeat()
        #expect(check.check(sequence: 1, serial: 1) == .repeated)
        #expect(check.check(sequence: 1, serial: 50) == .next)
    }
}

extension ObserverID: ExpressibleByIntegerLiteral {
    public init(integerLiteral value: UInt64) {
        self.init(rawValue: value)
    }
}

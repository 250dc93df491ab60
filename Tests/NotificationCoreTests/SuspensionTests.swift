// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What becomes of notifications for a suspended client.
@Suite("Suspension", .limited)
struct SuspensionTests {
    let center = Scenario()

    // MARK: The four behaviors

    @Test("S1: a drop observer gets nothing while suspended, nor on resume")
    func drop() throws {
        try center.observe(one, "A", "", .drop)
        try center.suspend(one)
        try center.post("A")
        #expect(center.status(one)?.queued == 0)
        try center.resume(one)
        #expect(center.received(one) == [])
        try center.post("A")
        #expect(center.names(one) == ["A"])
    }

    @Test("S1: a coalesce observer keeps the newest notification of each name and object")
    func coalesce() throws {
        try center.observe(one, "A", "", .coalesce)
        try center.suspend(one)
        for _ in 1...3 { try center.post("A", "x") }
        #expect(center.status(one)?.queued == 1)
        #expect(center.statistics.coalesced == 2)
        try center.resume(one)
        #expect(center.received(one).map(\.tag) == [3], "the newest userInfo")
        #expect(center.received(one).map(\.serial) == [3])
    }

    @Test("S1: coalesce is the default")
    func defaultBehavior() {
        #expect(ObserverOptions().suspensionBehavior == .coalesce)
    }

    @Test("S1: a coalesced notification moves to the tail")
    func coalescingMovesToTheTail() throws {
        try center.observe(one, "", "", .coalesce)
        try center.suspend(one)
        for name in ["A", "B", "A", "C", "B"] { try center.post(name) }
        try center.resume(one)
        #expect(center.names(one) == ["A", "C", "B"])
        #expect(center.received(one).map(\.serial) == [3, 4, 5])
    }

    @Test("S1: coalescing keeps notifications of other names and other objects, and without an object")
    func coalescingKeepsOthers() throws {
        try center.observe(one, "A")
        try center.observe(one, "B")
        try center.suspend(one)
        for (name, object) in [("A", "x"), ("A", "y"), ("A", ""), ("B", "x"), ("A", "y")] {
            try center.post(name, object)
        }
        try center.resume(one)
        #expect(center.received(one).map { $0.name + $0.object } == ["Ax", "A", "Bx", "Ay"])
    }

    @Test("S1: an observer of all names coalesces each name and object separately")
    func wildcardCoalescesApart() throws {
        try center.observe(one)
        try center.suspend(one)
        for _ in 1...2 {
            for (name, object) in [("A", ""), ("A", "x"), ("B", "x"), ("B", "y")] { try center.post(name, object) }
        }
        try center.resume(one)
        #expect(center.received(one).map { $0.name + $0.object } == ["A", "Ax", "Bx", "By"])
        #expect(center.received(one).map(\.serial) == [5, 6, 7, 8])
    }

    @Test("S1: notifications of different posters coalesce")
    func coalescingOfSeveralPosters() throws {
        try center.observe(one, "A")
        try center.suspend(one)
        try center.post("A", from: two)
        try center.post("A", from: three)
        try center.resume(one)
        #expect(center.received(one).map(\.poster) == [three])
    }

    @Test("S1: a hold observer keeps all notifications while suspended")
    func hold() throws {
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        for _ in 1...3 { try center.post("A") }
        #expect(center.received(one) == [])
        #expect(center.status(one)?.queued == 3)
        #expect(center.statistics.queued == 3)
        try center.resume(one)
        #expect(center.received(one).map(\.tag) == [1, 2, 3])
        #expect(center.status(one)?.queued == 0)
    }

    @Test("S1: a deliver-immediately observer gets notifications as if it were not suspended")
    func deliverImmediately() throws {
        let observer = try center.observe(one, "A", "", .deliverImmediately)
        try center.suspend(one)
        try center.post("A")
        #expect(center.received(one).map(\.observers) == [[observer]])
        #expect(center.status(one)?.isSuspended == true)
        try center.resume(one)
        #expect(center.names(one) == ["A"], "not again on resume")
    }

    @Test("S1: one observer coalesces notifications that another observer holds")
    func coalescingBesideHolding() throws {
        let holding = try center.observe(one, "A", "", .hold)
        let coalescing = try center.observe(one, "A", "", .coalesce)
        try center.suspend(one)
        for _ in 1...3 { try center.post("A") }
        #expect(center.statistics.coalesced == 0, "every notification is still wanted by one")
        try center.resume(one)
        #expect(center.received(one).map(\.observers) == [[holding], [holding], [holding, coalescing]])
        #expect(center.sequences(one) == [1, 2, 3])
    }

    @Test("S1: two observers of different scope coalesce independently")
    func coalescingIsPerObserver() throws {
        let everything = try center.observe(one, "", "", .coalesce)
        let ofObject = try center.observe(one, "A", "x", .coalesce)
        try center.suspend(one)
        try center.post("A", "x")
        try center.post("A", "y")
        try center.post("A", "x")
        try center.resume(one)
        #expect(center.objects(one) == ["y", "x"])
        #expect(center.received(one).map(\.observers) == [[everything], [everything, ofObject]])
    }

    @Test("S1: a notification held for one observer does not name an observer that drops")
    func droppingBesideHolding() throws {
        try center.observe(one, "A", "", .drop)
        let holding = try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A")
        try center.resume(one)
        #expect(center.received(one).map(\.observers) == [[holding]])
    }

    @Test("S1: the behavior does not matter while the client is active", arguments: SuspensionBehavior.allCases)
    func activeClients(_ behavior: SuspensionBehavior) throws {
        try center.observe(one, "A", "", behavior)
        try center.post("A")
        try center.post("A")
        #expect(center.names(one) == ["A", "A"])
        try center.suspend(one)
        try center.resume(one)
        try center.post("A")
        #expect(center.sequences(one) == [1, 2, 3])
    }

    @Test("D3, S1: a suspended client counts among the receivers", arguments: SuspensionBehavior.allCases)
    func receivers(_ behavior: SuspensionBehavior) throws {
        try center.observe(one, "A", "", behavior)
        try center.observe(two, "A")
        try center.suspend(one)
        #expect(try center.post("A") == 2)
        #expect(center.statistics.unmatched == 0)
    }

    @Test("S1: suspending one client leaves others alone")
    func others() throws {
        try center.observe(one, "A", "", .hold)
        try center.observe(two, "A", "", .hold)
        try center.suspend(one)
        try center.post("A")
        #expect(center.received(one) == [])
        #expect(center.names(two) == ["A"])
        #expect(center.status(two)?.isSuspended == false)
    }

    @Test("S1: names and objects are compared byte for byte, also for coalescing")
    func textsByteForByte() throws {
        let (composed, decomposed) = ("\u{E9}", "e\u{301}")
        try center.observe(one)
        try center.suspend(one)
        try center.post(composed)
        try center.post(decomposed)
        try center.post("A", composed)
        try center.post("A", decomposed)
        try center.resume(one)
        #expect(center.received(one).map(\.serial) == [1, 2, 3, 4])
    }

    // MARK: Resuming

    @Test("S2: a suspended client has one queue in global order over all observers and behaviors")
    func globalOrder() throws {
        try center.observe(one, "A", "", .hold)
        try center.observe(one, "B", "", .coalesce)
        try center.observe(one, "", "x", .hold)
        try center.suspend(one)
        for (name, object) in [("B", ""), ("A", ""), ("C", "x"), ("B", ""), ("A", "x"), ("B", "x")] {
            try center.post(name, object)
        }
        try center.resume(one)
        #expect(center.received(one).map { $0.name + $0.object } == ["A", "Cx", "B", "Ax", "Bx"])
        #expect(center.received(one).map(\.serial) == [2, 3, 4, 5, 6])
    }

    @Test("S2: a resume delivers all held notifications before newer ones")
    func resumeFlushesFirst() throws {
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A", "old")
        try center.post("A", "newer")
        try center.resume(one)
        #expect(center.objects(one) == ["old", "newer"])
        try center.post("A", "newest")
        #expect(center.objects(one) == ["old", "newer", "newest"])
    }

    @Test("S2: a client that does not read at its resume later gets all held notifications before newer ones")
    func resumeOfABusyClient() throws {
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post(300, of: "A")
        center.stop(one)
        try center.resume(one)
        #expect(center.received(one).count == 126, "it was told of two changes")
        try center.post("A", "newest")
        center.goOn(one)
        #expect(center.objects(one) == (1...300).map(String.init) + ["newest"])
        #expect(center.sequences(one) == Array(1...301))
    }

    @Test("S2: a notification delivered on resume is not delivered again")
    func resumeOnce() throws {
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        try center.post("A", "1")
        try center.resume(one)
        try center.resume(one)
        try center.suspend(one)
        try center.post("A", "2")
        try center.resume(one)
        #expect(center.objects(one) == ["1", "2"])
    }

    @Test("S5: many changes of suspension between posts cause no loss, duplicate or reordering")
    func manyChanges() throws {
        try center.observe(one, "A", "", .hold)
        for number in 1...500 {
            switch number % 7 {
            case 1, 5: try center.suspend(one)
            case 3: try center.resume(one)
            case 6: try center.followActivity(one)
            default: break
            }
            try center.post("A", "\(number)")
        }
        try center.resume(one)
        #expect(center.objects(one) == (1...500).map(String.init))
        #expect(center.sequences(one) == Array(1...500))
    }
}

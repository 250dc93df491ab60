// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// Values that stay: what is kept, who gets it, and when it goes.
@Suite("R1 to R3: retained values", .limited)
struct RetainedTests {
    private let one: ClientName = ":1.1"
    private let two: ClientName = ":1.2"
    private let poster: ClientName = ":1.9"

    private func scenario(_ limits: [Limits.Key: UInt64] = [:]) -> Scenario {
        let center = Scenario(limits)
        center.center.remembersChanges = true
        return center
    }

    private func post(
        _ name: String, _ object: String = "", bytes: Int = 0, whileConnected: Bool = false,
        expiresAfter: UInt32? = nil,
        style: PostingStyle = .now, host: String? = nil, user: String? = nil, from poster: ClientName? = nil,
        on center: Scenario
    ) throws {
        try center.post(
            name, object, bytes: bytes, style: style, retention: Retention(whileConnected: whileConnected),
            expiresAfter: expiresAfter, origin: OutsideOrigin(host: host, user: user), from: poster ?? self.poster)
    }

    /// A new center with what the log of this one has.
    private func restored(_ center: Scenario) -> Scenario {
        let next = Scenario()
        restore(center.changes, of: center, into: next)
        return next
    }

    private func restore(_ log: [Change], of center: Scenario, into next: Scenario) {
        for change in log { _ = next.center.restore(change) }
        let last = center.center.lastNumbers
        next.center.restoreNumbers(lastSerial: last.serial, lastObserver: last.observer)
    }

    // MARK: R1

    @Test("The last retained post of each name and object is kept until it is removed")
    func lastOfEach() throws {
        let center = scenario()
        for (name, object) in [("A", "x"), ("A", "y"), ("B", ""), ("A", "x"), ("A", "")] {
            try post(name, object, on: center)
        }
        try center.post("B", from: poster)
        #expect(center.values() == ["A y", "B", "A x", "A"], "in the order of their serials")
        #expect(center.values("A") == ["A y", "A x", "A"] && center.values("", "x") == ["A x"])
        #expect(center.values("A", "x") == ["A x"] && center.values("C").isEmpty)
        #expect(center.statistics.retained == 4)
        #expect(center.forget("A", "x") == 1 && center.forget("A", "x") == 0)
        #expect(center.forget("", "y") == 1)
        #expect(center.values() == ["B", "A"])
        #expect(center.forget("") == 2)
        #expect(center.statistics.retained == 0 && center.statistics.retainedBytes == 0)
        try center.center.checkInvariants()
    }

    @Test("G3: values of different origins exist beside each other, and each can be removed separately")
    func origins() throws {
        let center = scenario()
        try center.observe(one)
        try center.suspend(one)
        try post("A", "x", on: center)
        for host in ["alpha", "beta", "e\u{301}", "\u{E9}"] { try post("A", "x", host: host, on: center) }
        try post("A", "x", host: "alpha", user: "anna", on: center)
        try post("A", "x", user: "anna", on: center)
        #expect(center.values("A", "x").count == 7 && center.statistics.retained == 7)
        // Each takes the place of its own.
        try post("A", "x", host: "alpha", on: center)
        try post("A", "x", on: center)
        let values = ["A x @beta", "A x @e\u{301}", "A x @\u{E9}", "A x @alpha", "A x", "A x @alpha", "A x"]
        #expect(center.values("A", "x").map(ExactText.init) == values.map(ExactText.init))
        #expect(center.values() == center.values("A", "x") && center.values("", "x") == center.values())
        try center.center.checkInvariants()
        // S1: nor does one make up for another where it is held.
        try center.resume(one)
        #expect(center.received(one).map(\.serial) == [3, 4, 5, 6, 7, 8, 9])
        // R2: who asks gets all of them, whatever it asked by.
        for (client, name, object) in [(two, "A", "x"), (poster, "A", ""), (":1.3", "", "x"), (":1.4", "", "")] {
            try center.observe(client, name, object, retained: true)
            #expect(center.received(client).map(\.serial) == [3, 4, 5, 6, 7, 8, 9], "\(client)")
        }
        func origin(_ host: String?, _ user: String? = nil) throws -> OutsideOrigin? {
            try OutsideOrigin(host: host, user: user)
        }
        #expect(try !center.forget("A", "x", from: origin("gamma")) && !center.forget("A", from: origin("alpha")))
        #expect(center.forget("A", "x", from: try origin("alpha")))
        #expect(center.forget("A", "x", from: try origin("alpha", "anna")))
        #expect(center.forget("A", "x", from: nil) && !center.forget("A", "x", from: nil))
        #expect(center.values("A", "x").count == 4)
        #expect(restored(center).values() == center.values())
        #expect(center.forget("A", "x") == 4)
        #expect(center.statistics.retained == 0 && center.statistics.retainedBytes == 0)
        try center.center.checkInvariants()
    }

    @Test("E4: a poster that replaces its own value and uses nothing else remains charged for the value")
    func replacesItsOwn() throws {
        let center = scenario()
        // Nobody said whose connection it is, and it is no client.
        for _ in 1...4 {
            try post("A", on: center)
            try center.center.checkInvariants()
        }
        try center.observe(poster, "B")
        try center.center.checkInvariants()
        #expect(center.forget("A") == 1)
        try center.center.checkInvariants()
        #expect(center.statistics.retainedBytes == 0)
    }

    @Test("A retained post is delivered like any other, and a queued one becomes a value when it is posted")
    func posting() throws {
        let center = scenario()
        try center.observe(one)
        try post("A", style: .whenIdle, on: center)
        #expect(center.values().isEmpty && center.names(one).isEmpty)
        center.postQueued(.whenIdle)
        #expect(center.values() == ["A"] && center.names(one) == ["A"])
        #expect(center.deliveries(one).map(\.isRetained) == [false])
    }

    @Test("A queued while-connected post is delivered without the mark of a value if its poster has left")
    func whileConnectedBehindTheQueue() throws {
        let center = Scenario()
        try center.setOptions(ClientOptionsChange(details: [.kept, .whileConnected]), of: one)
        try center.observe(one)
        try center.post("Here", style: .asap, retention: Retention(whileConnected: true), from: two)
        center.disappear(two)
        center.postQueued(.asap)
        let deliveries = center.deliveries(one)
        #expect(deliveries.count == 1 && deliveries[0].notification.retention == nil, "it is no value")
        #expect(center.statistics.retained == 0)
    }

    @Test("A while-connected value is removed when its poster leaves, and other values remain")
    func whileConnected() throws {
        let center = scenario()
        try post("A", whileConnected: true, on: center)
        try post("B", on: center)
        try post("C", whileConnected: true, from: two, on: center)
        #expect(Set(center.watched) == [poster, two], "its leaving is noticed")
        center.disappear(poster)
        #expect(center.values() == ["B", "C"])
        // Another one's takes its place, which stays.
        try post("C", from: one, on: center)
        center.disappear(two)
        #expect(center.values() == ["B", "C"])
        try center.center.checkInvariants()
    }

    @Test("A queued while-connected post whose poster leaves first is delivered and does not become a value")
    func leftWhileQueued() throws {
        let center = scenario()
        try center.observe(one)
        try post("A", whileConnected: true, style: .whenIdle, on: center)
        center.disappear(poster)
        center.postQueued(.whenIdle)
        #expect(center.names(one) == ["A"] && center.values().isEmpty)
    }

    @Test("An expired value is neither readable nor sent to new observers")
    func expiry() throws {
        let center = scenario()
        try post("A", expiresAfter: 60, on: center)
        try post("B", expiresAfter: 10, on: center)
        try post("C", on: center)
        center.seconds += 9
        #expect(center.values() == ["A", "B", "C"])
        center.seconds += 1
        try center.observe(one, retained: true)
        #expect(center.names(one) == ["A", "C"])
        #expect(center.values() == ["A", "C"])
        center.seconds += 50
        #expect(center.values("A", "").isEmpty && center.statistics.expired == 2)
        try center.center.checkInvariants()
    }

    @Test("A notification that expires while it is held gets no sequence number and is not counted as lost")
    func expiredWhileWaiting() throws {
        let center = scenario()
        try center.observe(one, "", "", .hold)
        try center.suspend(one)
        center.clear()
        try center.post("A", expiresAfter: 10)
        try center.post("B", expiresAfter: 20)
        try center.post("C")
        center.seconds += 10
        try center.resume(one)
        #expect(center.names(one) == ["B", "C"] && center.sequences(one) == [1, 2] && center.losses(one) == [])
        #expect(center.statistics.expired == 1)
    }

    // MARK: R2

    @Test("A retained observer gets matching values in order, with their serials, before newer notifications")
    func atRegistration() throws {
        let center = scenario()
        for name in ["A", "B", "A", "C"] { try post(name, "x", on: center) }
        try post("A", "y", on: center)
        let all = try center.observe(one, retained: true)
        let some = try center.observe(one, "A", "x", retained: true)
        try center.observe(two, "A")
        try center.post("A", "x", from: poster)
        let received = center.received(one)
        #expect(received.map(\.serial) == [2, 3, 4, 5, 3, 6])
        #expect(received.map(\.sequence) == [1, 2, 3, 4, 5, 6])
        #expect(received.map(\.observers) == [[all], [all], [all], [all], [some], [all, some]])
        #expect(center.deliveries(one).map(\.isRetained) == [true, true, true, true, true, false])
        #expect(center.names(two) == ["A"], "who does not ask gets what is new")
    }

    @Test("A client that does not read gets the current values when it reads, each once, before newer notifications")
    func stopped() throws {
        let center = scenario()
        try center.observe(one, "Z")
        center.stop(one)
        for number in 1...200 { try post("A", "\(number)", on: center) }
        try center.observe(one, "A", retained: true)
        let before = center.names(one).count
        #expect(before < 200)
        try post("A", "200", on: center)
        try center.post("A", "new", from: poster)
        center.forget("A", "199")
        center.goOn(one)
        #expect(center.objects(one) == (1...198).map(String.init) + ["200", "new"])
        #expect(center.sequences(one) == (1...200).map(UInt64.init))
        #expect(center.received(one).map(\.serial).suffix(2) == [201, 202])
    }

    @Test(
        "A suspended observer receives values according to its suspension behavior",
        arguments: [SuspensionBehavior.drop, .coalesce, .hold, .deliverImmediately])
    func suspended(behavior: SuspensionBehavior) throws {
        let center = scenario()
        try post("A", on: center)
        try post("B", on: center)
        try center.observe(one, "Z")
        try center.suspend(one)
        center.clear()
        try center.observe(one, "", "", behavior, retained: true)
        #expect(center.names(one) == (behavior == .deliverImmediately ? ["A", "B"] : []))
        try post("B", on: center)
        try center.resume(one)
        let now = behavior == .deliverImmediately ? ["A", "B", "B"] : behavior == .drop ? [] : ["A", "B"]
        #expect(center.names(one) == now)
        try center.post("C")
        #expect(center.names(one) == now + ["C"])
    }

    @Test("A deliver-immediately post to a suspended client arrives behind the client's waiting values")
    func immediately() throws {
        let center = scenario()
        try post("A", on: center)
        try center.observe(one, "Z")
        try center.suspend(one)
        try center.observe(one, "", "", .hold, retained: true)
        try center.post("B", immediately: true)
        #expect(center.names(one) == ["A", "B"])
    }

    @Test("A removed observer or a client that left gets no further values")
    func removed() throws {
        let center = scenario()
        for number in 1...300 { try post("A", "\(number)", on: center) }
        try center.observe(one, "Z")
        center.stop(one)
        let id = try center.observe(one, "A", retained: true)
        let count = center.names(one).count
        try center.remove(id, of: one)
        center.goOn(one)
        #expect(center.names(one).count == count)
        center.stop(two)
        try center.observe(two, "A", retained: true)
        center.disappear(two)
        try center.center.checkInvariants()
    }

    @Test("A client with batches gets its values and a newer notification in order")
    func together() throws {
        let center = scenario()
        for number in 1...100 { try post("A", "\(number)", on: center) }
        try center.setOptions(ClientOptionsChange(batches: true), of: one)
        try center.observe(one, "A", retained: true)
        try center.post("A", "new", from: poster)
        #expect(center.objects(one) == (1...100).map(String.init) + ["new"])
    }

    // MARK: R6

    @Test("Values are limited by number and bytes, per poster and in total, and charged to their poster")
    func limits() throws {
        let center = scenario([.retainedPerClient: 3, .retained: 5])
        func isRefused(_ key: Limits.Key, _ body: () throws -> Void) -> Bool {
            do { try body() } catch CenterError.limitExceeded(key, _) { return true } catch {}
            return false
        }
        for object in ["1", "2", "3"] { try post("A", object, on: center) }
        #expect(isRefused(.retainedPerClient) { try post("A", "4", on: center) })
        #expect(center.names(one).isEmpty && center.statistics.posted == 3, "a post that is refused is not made")
        try post("A", "3", on: center)
        for object in ["5", "6"] { try post("A", object, from: two, on: center) }
        #expect(isRefused(.retained) { try post("A", "7", from: one, on: center) })
        // What another had is its own from now on.
        try post("A", "1", from: two, on: center)
        try post("A", "2", from: one, on: center)
        #expect(center.values().count == 5)
        try center.center.checkInvariants()

        let bytes = scenario([.retainedBytesPerClient: 5000, .retainedBytes: 12_000])
        try post("A", bytes: 4000, on: bytes)
        #expect(isRefused(.retainedBytesPerClient) { try post("B", bytes: 1000, on: bytes) })
        try post("A", bytes: 4100, on: bytes)
        try post("B", bytes: 4000, from: two, on: bytes)
        #expect(isRefused(.retainedBytes) { try post("C", bytes: 4000, from: one, on: bytes) })
        bytes.disappear(poster)
        #expect(bytes.statistics.retainedBytes > 8100, "who has left still pays")
        bytes.forget("")
        #expect(bytes.statistics.retainedBytes == 0)
        try bytes.center.checkInvariants()
    }

    @Test("A queued retained post without space for its value is posted and counts as unretained")
    func noRoomFromQueue() throws {
        let center = scenario([.retainedPerClient: 1])
        try post("A", style: .whenIdle, on: center)
        try post("B", on: center)
        center.postQueued(.whenIdle)
        #expect(center.values() == ["B"] && center.statistics.unretained == 1 && center.statistics.posted == 2)
    }

    @Test("E3: values and retained replays survive a restart, except while-connected values of posters that left")
    func restart() throws {
        let center = scenario()
        for number in 1...200 { try post("A", "\(number)", on: center) }
        try post("B", whileConnected: true, from: two, on: center)
        try post("C", expiresAfter: 60, on: center)
        center.forget("A", "7")
        try center.observe(one, "Z")
        center.stop(one)
        let id = try center.observe(one, "A", retained: true)
        let sent = center.objects(one)
        let next = restored(center)
        #expect(next.values().count == 201)
        #expect(next.statistics.retainedBytes == center.statistics.retainedBytes)
        next.finishRestoring()
        #expect(sent + next.objects(one) == (1...200).filter { $0 != 7 }.map(String.init))
        #expect(next.received(one).allSatisfy { $0.observers == [id] })
        next.disappear(two)
        #expect(next.values("B").isEmpty)
        next.seconds += 60
        #expect(next.values("C").isEmpty)
        try next.center.checkInvariants()
        let again = Scenario()
        next.center.forEachRememberedChange { _ = again.center.restore($0) }
        #expect(again.values() == next.values())
    }

    @Test("E8, R2: a resume with 8,000 retained replays takes bounded steps, and values precede newer notifications")
    func many() throws {
        let center = scenario()
        center.center.checksInvariants = false
        for number in 1...600 { try post("A", "\(number)", on: center) }
        try center.suspend(one)
        for number in 1...8000 { try center.observe(one, "Other\(number)", "", .hold, retained: true) }
        let id = try center.observe(one, "A", "", .hold, retained: true)
        let any = try center.observe(one, "", "600", .hold, retained: true)
        try center.post("A", "newer")
        var most = 0
        center.center.meter.eventEnded = { most = max(most, $1) }
        try center.resume(one)
        try center.post("A", "newest")
        center.center.meter.eventEnded = nil
        #expect(most < 20_000, "\(most) steps")
        let got = center.received(one)
        #expect(got.map(\.object) == (1...600).map(String.init) + ["600", "newer", "newest"])
        #expect(got.prefix(600).allSatisfy { $0.observers == [id] } && got[600].observers == [any])
        try center.center.checkInvariants()
    }

    @Test(
        "R2, S2: held notifications follow the retained values, for any number of observers that requested values",
        arguments: [0, 500])
    func heldBehind(observers: Int) throws {
        let center = scenario()
        center.center.checksInvariants = false
        try post("Kept", on: center)
        try center.observe(one, "A", "", .hold)
        try center.suspend(one)
        for number in 0..<observers { try center.observe(one, "Other\(number)", "", .hold, retained: true) }
        try center.observe(one, "Kept", "", .hold, retained: true)
        for number in 1...300 { try center.post("A", "\(number)") }
        try center.resume(one)
        #expect(center.received(one).map(\.name) == ["Kept"] + .init(repeating: "A", count: 300))
        #expect(center.objects(one).dropFirst() == (1...300).map(String.init)[...])
        try center.center.checkInvariants()
    }

    @Test("E3, R2: a retained replay whose values were all removed is not restored by the next process")
    func owedNoMore() throws {
        let center = scenario()
        for number in 1...200 { try post("A", "\(number)", on: center) }
        try center.observe(one, "Z")
        center.stop(one)
        try center.observe(one, "A", retained: true)
        let count = center.names(one).count
        #expect(count < 200)
        #expect(restored(center).center.clients[one]?.replays.count == 1)
        center.forget("A")
        center.goOn(one)
        #expect(center.names(one).count == count)
        #expect(restored(center).center.clients[one]?.replays.isEmpty == true)
    }

    @Test("E5, R2: a value too large for the bus is reported as a loss to a retained observer")
    func carried() throws {
        let center = scenario()
        try post("A", on: center)
        try center.observe(one, "A", retained: true)
        let size = try #require(center.deliveries(one).first).carriedBytes
        for (most, isCarried) in [(size, false), (size + 1, true)] {
            center.center.maxBytes = most
            center.clear()
            let onTheWay = Int(center.statistics.inFlightBytes)
            try center.observe(one, "A", retained: true)
            #expect(center.received(one).count == (isCarried ? 1 : 0))
            #expect(center.losses(one) == (isCarried ? [] : [1]))
            if !isCarried {
                #expect(Int(center.statistics.inFlightBytes) == onTheWay + DistributedCenter.signalSize)
                // The signal about the loss may get lost as any other.
                center.cutDeliveries(to: one, atMost: 0, losses: 1)
                center.answer(one)
                #expect(center.losses(one) == [1, 1])
            }
        }
    }

    @Test("E3, E4: a value of a poster that is no client is restored, and its removal does not affect the poster")
    func restoredPoster() throws {
        let center = scenario()
        try post("A", on: center)
        let next = restored(center)
        next.finishRestoring()
        try next.center.checkInvariants()
        try next.observe(poster, "B")
        next.forget("A")
        #expect(next.statistics.retainedBytes == 0)
        try next.center.checkInvariants()
        try next.post("B")
        #expect(next.names(poster) == ["B"])
    }

    // MARK: At random

    /// What is kept of one name, object and host.
    private struct Kept {
        let serial: UInt64
        let poster: ClientName
        let whileConnected: Bool
        let end: Int64?
    }

    @Test("R1 R2 R3 R6 E3: in random runs, the values and the replays to late observers equal those of a table")
    func random() throws {
        // A debug build is too slow for all of them on a busy machine.
        #if DEBUG
            let seeds: UInt64 = 30
        #else
            let seeds: UInt64 = 80
        #endif
        for seed in 1...(isQuick ? 2 : seeds) { try random(seed: seed) }
    }

    private func random(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        func number(_ range: ClosedRange<Int>) -> Int { .random(in: range, using: &generator) }
        func name() -> String { ["A", "B", "C"][number(0...2)] }
        /// Of this session, as often as not.
        func host() -> String { ["", "", "alpha", "beta"][number(0...3)] }
        func object() -> String { ["", "x", "y"][number(0...2)] }
        let posters: [ClientName] = [":1.1", ":1.2", ":1.3"]
        var (center, log, table) = (scenario(), [Change](), [[String]: Kept]())
        var clients = 0
        /// Those that do not read since they asked, with what there was.
        var late: [(client: ClientName, name: String, object: String)] = []

        func values(_ name: String, _ object: String, from host: String? = nil) -> [(key: [String], value: Kept)] {
            table.filter { key, _ in
                (name.isEmpty || key[0] == name) && (object.isEmpty || key[1] == object)
                    && (host == nil || key[2] == host)
            }.sorted { $0.value.serial < $1.value.serial }
        }
        func goOn() {
            for (client, name, object) in late {
                center.goOn(client)
                let serials = center.received(client).filter { $0.name != "Z" }.map(\.serial)
                #expect(serials == Set(serials).sorted(), "seed \(seed): each once, in order")
                #expect(
                    Set(serials).isSuperset(of: values(name, object).map(\.value.serial)),
                    "seed \(seed): \(serials) of \(values(name, object))")
            }
            late = []
        }
        for _ in 1...150 {
            switch number(0...19) {
            case 0...8:
                let (key, poster) = ([name(), object(), host()], posters[number(0...2)])
                let (whileConnected, seconds) = (number(0...2) == 0, number(0...2) == 0 ? number(1...20) : nil)
                try post(
                    key[0], key[1], bytes: number(0...100), whileConnected: whileConnected,
                    expiresAfter: seconds.map(UInt32.init), host: key[2].isEmpty ? nil : key[2], from: poster,
                    on: center)
                table[key] = Kept(
                    serial: center.center.lastNumbers.serial, poster: poster, whileConnected: whileConnected,
                    end: seconds.map { center.seconds + Int64($0) })
            case 9, 10: try center.post(name(), object(), from: posters[number(0...2)])
            case 11:
                guard number(0...1) == 0 else {
                    let key = [name(), object(), host()]
                    let origin = try OutsideOrigin(host: key[2].isEmpty ? nil : key[2], user: nil)
                    let isThere = table.removeValue(forKey: key) != nil
                    #expect(center.forget(key[0], key[1], from: origin) == isThere, "seed \(seed)")
                    break
                }
                let (name, object) = (number(0...3) == 0 ? "" : name(), object())
                let over = values(name, object)
                #expect(center.forget(name, object) == over.count, "seed \(seed)")
                for (key, _) in over { table[key] = nil }
            case 12:
                let poster = posters[number(0...2)]
                center.disappear(poster)
                table = table.filter { !($0.value.whileConnected && $0.value.poster == poster) }
            case 13, 14:
                center.seconds += Int64(number(1...8))
                table = table.filter { $0.value.end ?? .max > center.seconds }
            case 15, 16, 17:
                clients += 1
                let (client, name, object) = (
                    ClientName(unchecked: ":2.\(clients)"), number(0...1) == 0 ? "" : name(), object()
                )
                if number(0...2) == 0 {
                    try center.observe(client, "Z")
                    center.stop(client)
                    for _ in 1...number(1...200) { try center.post("Z") }
                    late.append((client, name, object))
                }
                try center.observe(client, name, object, retained: true)
                guard late.last?.client != client else { break }
                #expect(
                    center.received(client).map(\.serial) == values(name, object).map(\.value.serial),
                    "seed \(seed)")
                #expect(!center.deliveries(client).contains { !$0.isRetained }, "seed \(seed)")
            case 18: goOn()
            default:
                goOn()
                log += center.changes
                if number(0...1) == 0 {
                    log = []
                    center.center.forEachRememberedChange { log.append($0) }
                }
                let next = scenario()
                next.seconds = center.seconds
                restore(log, of: center, into: next)
                next.finishRestoring()
                center = next
            }
            #expect(
                center.values()
                    == values("", "").map {
                        $0.key[0] + ($0.key[1].isEmpty ? "" : " \($0.key[1])")
                            + ($0.key[2].isEmpty ? "" : " @\($0.key[2])")
                    },
                "seed \(seed)")
            try center.center.checkInvariants()
        }
    }
}

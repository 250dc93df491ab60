// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What is due leaves in the order of its urgency, however it came.
@Suite("M6: order of due notifications by urgency", .limited)
struct DeliveryLaneTests {
    @Test("M6: due notifications are sent in the order immediate, event tracking, modal panel, default")
    func lanes() throws {
        let center = Scenario()
        try center.observe(one, "D")
        try center.observe(one, "M", mode: .modalPanel)
        try center.observe(one, "E", mode: .eventTracking)
        center.isBusy = true
        for name in ["D", "M", "E", "D", "M", "E"] { try center.post(name) }
        try center.post("D", immediately: true)
        center.send()
        #expect(center.names(one) == ["D", "E", "E", "M", "M", "D", "D"])
        #expect(center.received(one).map(\.serial) == [7, 3, 6, 2, 5, 1, 4])
        #expect(center.sequences(one) == [1, 2, 3, 4, 5, 6, 7], "D6: counted as they are sent")
    }

    @Test("M6: sending up to a lane sends no less urgent notifications")
    func upTo() throws {
        let center = Scenario()
        try center.observe(one, "D")
        try center.observe(two, "E", mode: .eventTracking)
        center.isBusy = true
        for name in ["D", "E"] { try center.post(name) }
        center.send(upTo: .modalPanel)
        #expect(center.names(one).isEmpty)
        #expect(center.names(two) == ["E"])
        #expect(center.center.isReady(.standard))
        #expect(!center.center.isReady(.eventTracking) && center.center.isAnythingReady)
        center.send(limit: 1)
        #expect(center.names(one) == ["D"])
        #expect(!center.center.isAnythingReady)
    }

    @Test(
        "D3, M6: a post with receivers in several modes has passed when its least urgent delivery was sent",
        arguments: [
            [RunLoopMode.default, .eventTracking], [.eventTracking, .default], [.eventTracking, .modalPanel],
        ])
    func mark(modes: [RunLoopMode]) throws {
        let center = DistributedCenter()
        var effects: [Effect] = []
        for (client, mode) in zip([one, two], modes) {
            _ = try center.addObserver(
                of: client, name: "A", object: "", options: ObserverOptions(runLoopMode: mode), effects: &effects)
        }
        let receipt = try center.post(
            name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), from: three, effects: &effects)
        #expect(receipt.receivers == 2)
        let mark = try #require(receipt.mark)
        #expect(mark.lane == (modes.contains(.default) ? .standard : .modalPanel))
        #expect(!center.hasPassed(mark))
        center.sendReady(upTo: .eventTracking, limit: .max, effects: &effects)
        #expect(!center.hasPassed(mark), "one of two was sent")
        center.sendReady(upTo: mark.lane, limit: .max, effects: &effects)
        #expect(center.hasPassed(mark))
    }

    @Test("D3: a post without notifications in the send schedule has no watermark")
    func noMark() throws {
        let center = DistributedCenter()
        var effects: [Effect] = []
        func post() throws -> Receipt {
            try center.post(
                name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), from: three,
                effects: &effects)
        }
        #expect(try post().mark == nil, "nobody observes")
        _ = try center.addObserver(of: one, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        try center.setSuspended(true, of: one, effects: &effects)
        #expect(try post().mark == nil, "it is held")
        _ = try center.addObserver(of: two, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        for _ in 0..<63 { _ = try post() }
        center.sendAllReady(effects: &effects)
        // The first answer is that to the probe at registration, so the window closes with the 64th.
        #expect(try post().mark != nil)
        center.sendAllReady(effects: &effects)
        #expect(try post().mark == nil, "it waits for a client that does not read")
    }

    @Test("M6, D4: notifications of one mode are sent in one global order over all clients")
    func globalOrder() throws {
        let center = DistributedCenter()
        var effects: [Effect] = []
        for client in [one, two, three] {
            _ = try center.addObserver(
                of: client, name: "", object: "", options: ObserverOptions(), effects: &effects)
        }
        for _ in 0..<20 {
            _ = try center.post(
                name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), from: two,
                effects: &effects)
        }
        center.sendAllReady(effects: &effects)
        let sent = effects.compactMap { if case .deliver(let delivery) = $0 { delivery } else { nil } }
        #expect(sent.map(\.notification.serial) == (1...20).flatMap { [$0, $0, $0] })
        #expect(sent.map(\.client) == (1...20).flatMap { _ in [one, two, three] })
    }

    @Test("D6, M6: a client with observers in several modes gets a notification once, in the most urgent mode")
    func severalModes() throws {
        let center = Scenario()
        let inDefault = try center.observe(one, "A")
        let tracking = try center.observe(one, "A", mode: .eventTracking)
        try center.observe(one, "B")
        center.isBusy = true
        try center.post("B")
        try center.post("A")
        center.send(upTo: .eventTracking)
        #expect(center.received(one).map(\.observers) == [[inDefault, tracking]])
        center.send()
        #expect(center.names(one) == ["A", "B"])
    }

    @Test("A4, M6: a client that reads again receives its most urgent waiting notifications first")
    func backlog() throws {
        let center = Scenario()
        try center.observe(one, "D")
        try center.observe(one, "E", mode: .eventTracking)
        center.stop(one)
        try center.post(200, of: "D")
        let before = center.received(one).count
        #expect(before == 128)
        try center.post("E")
        center.goOn(one)
        let rest = Array(center.received(one)[before...])
        #expect(rest.map(\.name) == ["E"] + Array(repeating: "D", count: 72))
        #expect(rest.dropFirst().map(\.object) == (129...200).map { "\($0)" })
        #expect(center.sequences(one) == (1...201).map { $0 })
    }

    @Test("S2, M6: held notifications are sent before all newer ones, even before more urgent ones")
    func heldFirst() throws {
        let center = Scenario()
        try center.observe(one, "D", "", .hold)
        try center.observe(one, "E", "", .hold, mode: .eventTracking)
        center.isBusy = true
        try center.post("D", "before")
        try center.suspend(one)
        try center.post("D", "1")
        try center.post("E", "2")
        try center.post("D", "3")
        try center.resume(one)
        // Resuming is control: it does not wait for a turn, and takes with it what is older.
        #expect(center.objects(one) == ["before", "1", "2", "3"])
        try center.post("D", "5")
        try center.post("E", "4")
        center.send()
        #expect(center.objects(one) == ["before", "1", "2", "3", "4", "5"])
    }

    @Test("S1, M6: a notification posted before a suspension is delivered, behind the SuspensionChanged signal")
    func suspendedWhileReady() throws {
        let center = Scenario()
        let id = try center.observe(one, "A", "", .drop)
        center.isBusy = true
        try center.post("A")
        try center.suspend(one)
        try center.post("A")
        center.send()
        #expect(
            center.happened(one) == [
                .suspensionChanged(true, .explicit), .delivered("A", to: [id], sequence: 1),
            ])
    }

    @Test("D8, S1: due notifications are not sent to removed observers and departed clients")
    func removedWhileReady() throws {
        let center = Scenario()
        let id = try center.observe(one, "A")
        let other = try center.observe(one, "A")
        try center.observe(two, "A")
        center.isBusy = true
        try center.post("A")
        try center.remove(id, of: one)
        center.disappear(two)
        center.send()
        #expect(center.received(one).map(\.observers) == [[other]])
        #expect(center.received(two).isEmpty)
        #expect(center.statistics.queued == 0)
        #expect(center.statistics.queuedBytes == 0)
    }

    @Test("E1: at most 1024 notifications are scheduled, and each further post sends the most urgent one")
    func bounded() throws {
        let center = Scenario()
        try center.observe(one, "D")
        try center.observe(one, "E", mode: .eventTracking)
        center.isBusy = true
        try center.post(1100, of: "D")
        #expect(center.statistics.queued == 1024)
        #expect(center.objects(one) == (1...76).map { "\($0)" }, "the oldest went, in order")
        try center.post("E")
        #expect(center.names(one).last == "E", "what is pushed out is the most urgent")
        center.send()
        #expect(center.sequences(one) == (1...1101).map { $0 }, "and none is lost")
        center.clear()
        try center.post(40, of: "D", bytes: 100_000)
        #expect(center.statistics.queuedBytes <= 1 << 20)
        center.send()
        #expect(center.received(one).count == 40)
    }

    @Test("E1: the bytes of scheduled notifications are bounded, exact to the byte")
    func boundedByBytes() throws {
        let center = Scenario()
        try center.observe(one, "A")
        center.isBusy = true
        for _ in 0..<4 { try center.post("A", bytes: (1 << 18) - 257) }  // a quarter of it each
        #expect(center.received(one).isEmpty)
        try center.post("A")
        #expect(center.received(one).count == 1)
    }

    @Test("E1: the backlog of a client does not count against the bytes of scheduled notifications")
    func backlogTakesNoRoom() throws {
        let center = Scenario()
        try center.observe(one, "A")
        try center.observe(two, "B")
        center.stop(two)
        try center.post(300, of: "B")
        center.isBusy = true
        for _ in 0..<4 { try center.post("A", bytes: (1 << 18) - 257) }
        center.goOn(two)
        try center.post("observed by nobody")
        #expect(center.received(one).isEmpty)
        center.send()
        #expect(center.received(one).count == 4 && center.received(two).count == 300)
    }

    @Test("E1, Q7: posts from posting queues respect the bound of scheduled notifications")
    func boundedFromQueues() throws {
        let center = Scenario()
        try center.observe(one, "A")
        center.isBusy = true
        for number in 1...1100 { try center.post("A", "\(number)", style: .asap) }
        center.postQueued(.asap)
        #expect(center.statistics.queued == 1024)
        #expect(center.objects(one) == (1...76).map(String.init))
    }

    @Test("A4: a client whose window closes receives its queued notifications when it reads again")
    func closedWindow() throws {
        let center = Scenario()
        try center.observe(one)
        try center.observe(two)
        center.stop(one)
        center.isBusy = true
        try center.post(300, of: "A")
        center.send()
        #expect(center.received(one).count == 128)
        #expect(center.received(two).count == 300)
        #expect(center.statistics.queued == 172)
        center.goOn(one)
        center.send()
        #expect(center.objects(one) == (1...300).map { "\($0)" })
    }
}

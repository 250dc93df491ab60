// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What goes to a client together (F1), and that nothing else changes by it.
@Suite("F1: batches", .limited)
struct BatchTests {
    private func tower() throws -> Tower {
        let tower = Tower()
        try tower.add(":1.1")
        try tower.center.setOptions(ClientOptionsChange(batches: true), of: ":1.1", effects: &tower.effects)
        return tower
    }

    /// Posts that are staged, and have not had their turn.
    private func stage(_ count: Int, on tower: Tower, size: Int = 8, immediately: Bool = false) throws {
        var options = PostOptions()
        options.deliverImmediately = immediately
        for _ in 0..<count {
            _ = try tower.center.post(
                name: "Ding", object: "", userInfo: Tower.Payload(byteCount: size), options: options, from: ":1.99",
                effects: &tower.effects)
        }
    }

    private func takeBatches(_ tower: Tower) -> [[UInt64]] {
        defer { tower.effects = [] }
        return tower.effects.compactMap { effect in
            switch effect {
            case .deliverTogether(":1.1", let batch): batch.map(\.sequence)
            case .deliver(let delivery) where delivery.client == ":1.1": [delivery.sequence, .max]
            default: nil
            }
        }
    }

    private func send(_ tower: Tower) { tower.center.sendAllReady(effects: &tower.effects) }

    @Test("A single due notification is sent at once, as a batch of one")
    func alone() throws {
        let tower = try tower()
        try stage(1, on: tower)
        send(tower)
        #expect(takeBatches(tower) == [[1]])
    }

    @Test("All due notifications of a client are sent together in order, up to 64 and 64 KiB per batch")
    func together() throws {
        let tower = try tower()
        tower.center.clientAnswered(":1.1", effects: &tower.effects)  // the first probe
        try stage(70, on: tower)
        send(tower)
        #expect(takeBatches(tower) == [Array(1...64), Array(65...70)])
        tower.center.clientAnswered(":1.1", effects: &tower.effects)
        try stage(3, on: tower, size: 22 << 10)
        send(tower)
        #expect(takeBatches(tower) == [[71, 72], [73]])
    }

    @Test("R6: an expired notification is left out of a batch, and gets no sequence number")
    func expired() throws {
        let tower = try tower()
        let clock = LookedAtClock()
        tower.center.clock = Clock(time: { 0 }, uptime: { clock.now })
        for seconds in [nil, 60, 1, 60, nil] as [UInt32?] {
            var options = PostOptions()
            options.expiresAfter = seconds
            _ = try tower.center.post(
                name: "Ding", object: "", userInfo: Tower.Payload(), options: options, from: ":1.99",
                effects: &tower.effects)
        }
        clock.now += 1_000_000
        send(tower)
        #expect(takeBatches(tower) == [[1, 2], [3, 4]])
        #expect(tower.center.statistics.expired == 1)
    }

    private final class LookedAtClock {
        var now: Int64 = 1_000_000
    }

    @Test("R2: the retained values for a new observer are sent in one batch")
    func values() throws {
        let tower = try tower()
        for name in ["A", "B", "C"] {
            var options = PostOptions()
            options.retention = Retention()
            _ = try tower.center.post(
                name: name, object: "", userInfo: Tower.Payload(), options: options, from: ":1.99",
                effects: &tower.effects)
        }
        send(tower)
        tower.center.clientAnswered(":1.1", effects: &tower.effects)
        tower.effects = []
        var options = ObserverOptions()
        options.wantsRetained = true
        try tower.add(":1.1", "", "", options)
        send(tower)
        #expect(takeBatches(tower) == [[4, 5, 6]])
    }

    @Test("E4: a batch uses no more in-flight quota than single notifications would")
    func room() throws {
        let tower = try tower()
        tower.center.clientAnswered(":1.1", effects: &tower.effects)
        tower.center.limits[.inFlightBytes] = 20_000
        // Some of it is taken, and as much as it has a client leaves to others.
        #expect(tower.center.mayAnswer(":1.7", byteCount: 1000, effects: &tower.effects))
        try stage(12, on: tower, size: 1500)
        send(tower)
        let sent = takeBatches(tower)
        #expect(sent == [Array(1...5)], "\(sent)")
        #expect(tower.center.statistics.inFlightBytes <= 10_500)
        for _ in 0..<4 {
            tower.center.clientAnswered(":1.1", effects: &tower.effects)
            send(tower)
        }
        #expect(takeBatches(tower).joined().elementsEqual(6...12))
    }

    @Test("Clients without the option batches receive single notifications")
    func others() throws {
        let tower = try tower()
        try tower.add(":1.2")
        try stage(3, on: tower)
        send(tower)
        var (together, alone) = (0, 0)
        for effect in tower.effects {
            if case .deliverTogether(let client, let batch) = effect {
                #expect(client == ":1.1" && batch.count == 3)
                together += 1
            }
            if case .deliver(let delivery) = effect {
                #expect(delivery.client == ":1.2")
                alone += 1
            }
        }
        #expect(together == 1 && alone == 3)
    }

    @Test("A burst to many clients beyond the bound of scheduled messages is still sent in few batches (M6)")
    func burst() throws {
        let tower = try tower()
        let clients = (1...50).map { ClientName(unchecked: ":1.\($0)") }
        for client in clients.dropFirst() {
            try tower.add(client)
            try tower.center.setOptions(ClientOptionsChange(batches: true), of: client, effects: &tower.effects)
        }
        for client in clients { tower.center.clientAnswered(client, effects: &tower.effects) }
        tower.effects = []
        // A thousand may be staged: twenty for each client.
        try stage(60, on: tower)
        send(tower)
        for client in clients {
            let batches = tower.effects.compactMap { effect -> Int? in
                if case .deliverTogether(client, let batch) = effect { batch.count } else { nil }
            }
            #expect(batches.reduce(0, +) == 60)
            #expect(batches.count <= 4, "\(client): \(batches)")
        }
        #expect(!tower.center.isAnythingReady)
    }

    @Test("A watermark is passed only when all messages before it have left, even if some left in earlier batches")
    func answered() throws {
        let tower = try tower()
        try tower.add(":1.2")
        try tower.center.setOptions(ClientOptionsChange(batches: true), of: ":1.2", effects: &tower.effects)
        var marks: [Watermark] = []
        for _ in 0..<5 {
            let receipt = try tower.center.post(
                name: "Ding", object: "", userInfo: Tower.Payload(byteCount: 8), options: PostOptions(), from: ":1.99",
                effects: &tower.effects)
            marks.append(try #require(receipt.mark))
        }
        tower.center.sendReady(upTo: .flushed, limit: 1, effects: &tower.effects)
        #expect(marks.allSatisfy { !tower.center.hasPassed($0) })
        // The first client's turn takes all five along; the second's are still to come.
        tower.center.sendReady(upTo: DeliveryLane.allCases.last!, limit: 1, effects: &tower.effects)
        #expect(marks.allSatisfy { !tower.center.hasPassed($0) })
        tower.center.sendReady(upTo: DeliveryLane.allCases.last!, limit: 1, effects: &tower.effects)
        #expect(marks.allSatisfy { tower.center.hasPassed($0) })
    }

    @Test("An urgent notification is sent alone before the less urgent notifications of its client (M6)")
    func urgent() throws {
        let tower = try tower()
        try stage(3, on: tower)
        try stage(1, on: tower, immediately: true)
        tower.center.sendReady(upTo: .immediate, limit: 1, effects: &tower.effects)
        #expect(takeBatches(tower) == [[1]])
        send(tower)
        #expect(takeBatches(tower) == [[2, 3, 4]])
    }

    @Test("A window counts each batch with all its bytes, so batches do not enlarge two unacknowledged windows (A4)")
    func window() throws {
        let tower = try tower()
        tower.center.clientAnswered(":1.1", effects: &tower.effects)
        tower.effects = []
        for _ in 0..<10 { try stage(64, on: tower, size: 700) }
        send(tower)
        let batches = takeBatches(tower)
        let sent = batches.reduce(0) { $0 + $1.count }
        // Two windows of 64 KiB, of which the last may go beyond by a batch.
        #expect((2 * 64..<3 * 68).contains(sent), "\(sent) of about a KiB each")
        #expect(batches.count < 6)
        let status = try #require(tower.center.clientStatuses.first { $0.name == ":1.1" })
        #expect(status.flow == .waiting && status.queued == 640 - sent)
        tower.center.clientAnswered(":1.1", effects: &tower.effects)
        send(tower)
        let more = takeBatches(tower)
        #expect(more.first?.first == UInt64(sent) + 1, "it goes on where it stopped")
    }

    @Test("A batch that the bus refused is reported as a loss of all its notifications (S4)")
    func refused() throws {
        let tower = try tower()
        try stage(5, on: tower)
        send(tower)
        tower.effects = []
        tower.center.deliveryRefused(":1.1", notifications: 5, effects: &tower.effects)
        for _ in 0..<3 { tower.center.clientAnswered(":1.1", effects: &tower.effects) }
        let announced = tower.effects.compactMap { effect -> UInt64? in
            if case .dropped(":1.1", let count, _, .busLimits, _) = effect { count } else { nil }
        }
        #expect(announced == [5])
    }

    @Test("A notification too large for the bus is reported as lost in its order, between two batches")
    func tooLarge() throws {
        let tower = try tower()
        tower.center.maxBytes = 3000
        try stage(2, on: tower, size: 1000)
        try stage(1, on: tower, size: 5000)
        try stage(2, on: tower, size: 1000)
        send(tower)
        var told: [String] = []
        for effect in tower.effects {
            if case .deliverTogether(_, let batch) = effect { told.append("\(batch.map(\.sequence))") }
            if case .dropped(_, 1, _, .busLimits, let sequence) = effect { told.append("lost \(sequence)") }
        }
        #expect(told == ["[1, 2]", "lost 3", "[4, 5]"])
    }

    @Test("E5: a batch has fewer bytes than the bus carries in one message")
    func largest() throws {
        let first = try tower()
        try stage(1, on: first)
        send(first)
        let size = try #require(
            first.effects.compactMap { effect -> Int? in
                if case .deliverTogether(_, let batch) = effect { batch[0].carriedBytes } else { nil }
            }.last)
        for (most, batches) in [(2 * size + 1, [[1, 2]]), (2 * size, [[1], [2]])] as [(Int, [[UInt64]])] {
            let tower = try tower()
            tower.center.maxBytes = most
            try stage(2, on: tower)
            send(tower)
            #expect(takeBatches(tower) == batches)
        }
    }

    @Test("An unchanged option batches remains in force, and batches=false ends it")
    func options() throws {
        let tower = try tower()
        try tower.center.setOptions(ClientOptionsChange(), of: ":1.1", effects: &tower.effects)
        try tower.post("Ding")
        #expect(takeBatches(tower) == [[1]])
        try tower.center.setOptions(ClientOptionsChange(batches: false), of: ":1.1", effects: &tower.effects)
        try tower.post("Ding")
        #expect(takeBatches(tower) == [[2, .max]])
    }

    // MARK: E3

    @Test("The option batches survives a restart, and is not logged for clients without it")
    func survives() throws {
        let tower = try tower()
        try tower.add(":1.2")
        var changes: [Change] = []
        tower.center.forEachRememberedChange { changes.append($0) }
        let options = changes.filter { if case .options = $0 { true } else { false } }
        #expect(options.count == 1)
        let later = Tower()
        for change in changes { #expect(later.center.restore(change)) }
        later.center.finishRestoring(effects: &later.effects)
        later.effects = []
        try later.post("Ding")
        #expect(takeBatches(later) == [[1]])
    }

    @Test("After a kill, a batch that the log does not know as sent counts as lost and is not sent again")
    func killed() throws {
        let tower = try tower()
        tower.center.remembersChanges = true
        try tower.center.setSuspended(true, of: ":1.1", effects: &tower.effects)
        var options = ObserverOptions()
        options.suspensionBehavior = .hold
        try tower.add(":1.1", "", "", options)
        try stage(3, on: tower)
        var changes: [Change] = []
        tower.center.forEachRememberedChange { changes.append($0) }
        tower.effects = []
        try tower.center.setSuspended(false, of: ":1.1", effects: &tower.effects)
        // The log has that it was flushed; the counters that three numbers were given.
        let later = Tower()
        for change in changes {
            if case .client(let name, var counts) = change {
                (counts.sequence, counts.unconfirmed, counts.lastSerial) = (3, 3, 3)
                #expect(later.center.restore(.client(name, counts)))
            } else {
                #expect(later.center.restore(change))
            }
        }
        #expect(later.center.restore(.flushed(":1.1")))
        later.center.restoreNumbers(lastSerial: 3, lastObserver: 9)
        later.center.finishRestoring(effects: &later.effects)
        #expect(takeBatches(later) == [])
        let status = try #require(later.center.clientStatuses.first { $0.name == ":1.1" })
        #expect(status.queued == 0 && status.dropped == 3, "they may have arrived, and are told of as such")
    }

    @Test("R2: the limit of a send counts each value of a batch")
    func turnsOfValues() throws {
        let center = Scenario()
        for client in [one, two] {
            try center.observe(client, "Other")
            try center.setOptions(ClientOptionsChange(batches: true), of: client)
        }
        for object in ["x", "y", "z"] { try center.post("A", object, retention: Retention()) }
        center.isBusy = true
        for client in [one, two] { try center.observe(client, "A", retained: true) }
        center.send(limit: 3)
        #expect(center.objects(one) == ["x", "y", "z"] && center.objects(two).isEmpty)
        center.send(limit: 3)
        #expect(center.objects(two) == ["x", "y", "z"])
    }
}

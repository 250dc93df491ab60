// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonCore

/// The checks of what must hold: each finds the fault that it is there for.
@Suite("Checks of the center's invariants", .limited)
struct InvariantTests {
    /// A fault that the center does not make by itself, and the rule that it breaks.
    struct Fault: Sendable, CustomTestStringConvertible {
        let rule: String
        let make: @Sendable (DistributedCenter) throws -> Void
        var testDescription: String { rule }

        init(_ rule: String, _ make: @escaping @Sendable (DistributedCenter) throws -> Void) {
            self.rule = rule
            self.make = make
        }
    }

    static let faults: [Fault] = [
        Fault("E1: the total of queued notifications is the sum over clients") { $0.counters.queued += 1 },
        Fault("D4: each post has a serial") { $0.counters.posted += 1 },
        Fault("D8: :1.9 is a client that is there") { $0.clients[":1.9"] = $0.clients[one] },
        Fault("D8: :1.1 is a client that is there") { $0.clients[one]!.presence = .gone },
        Fault("D8: the index has the clients' observers alone") { center in
            let observer = center.index[center.clients[one]!.observers.first!.value.position]
            _ = center.index.insert(observer, name: nil, object: nil)
        },
        Fault("D8: observer 2 is that of :1.1") { center in
            let (mine, others) = (center.clients[one]!, center.clients[two]!)
            mine.observers[ObserverID(rawValue: 2)] = others.observers[ObserverID(rawValue: 2)]
        },
        Fault("no observer has a number that was not given yet") { $0.lastObserver = 0 },
        Fault("A2: :1.1 has 0 observers that refuse") { $0.clients[one]!.refusalsOfAutomation = 1 },
        Fault("S5: no epoch is from the future") { $0.clients[one]!.activityEpoch = 1 },
        Fault("S2: only a suspended client has held notifications") { $0.clients[one]!.explicitSuspension = nil },
        Fault("S4: :1.2 reads, so its losses are reported") {
            $0.clients[two]!.unreportedLoss = Client.Loss(count: 1, observers: [], reason: .queueFull)
        },
        Fault("E4: :1.2 pays for what it has") { center in
            center.charge(center.clients[two]!.peer, .observerBytes, 1)
        },
        Fault("E4: totals are the sums of the usage of connections") { $0.totals[.answerBytes] = 1 },
        Fault("E4: the usage of process(7) is the sum of the usage of its connections") { center in
            var effects: [Effect] = []
            center.identify(two, as: .process(7), effects: &effects)
            center.accountsByID[.process(7)]!.usage[.answerBytes] = 1
        },
        Fault("D8: :1.3 has its connection") { $0.peers[three] = nil },
        Fault("M6: :1.2, which reads, has a slot in each lane with due notifications: standard") { center in
            center.changeQueue(of: center.clients[two]!) { $0.append(entry(serial: 2, for: 2), in: .standard) }
        },
        Fault("E3: the due notifications of :1.3, which does not read, are logged") { center in
            center.remembersChanges = true
            center.clients[three]!.isDueLogged = false
        },
        Fault("D8: 2 waits for observers that :1.2 has: [1]") { center in
            center.changeQueue(of: center.clients[two]!) { $0.append(entry(serial: 2, for: 1), in: .standard) }
        },
        Fault("D4: no serial is from the future") { $0.lastSerial = 1 },
        Fault("D8: 1 waits for observers that :1.1 has: [1]") { center in
            center.index.remove(
                at: center.clients[one]!.observers.removeValue(forKey: ObserverID(rawValue: 1))!.position)
        },
        Fault("M6: the count of scheduled sends of :1.1 is right: standard") {
            $0.clients[one]!.queue[scheduledIn: .standard] = 1
        },
        Fault("D8: the scheduled client :1.2 is present, or has no state") { center in
            let stranger = Client(
                Peer(name: two, account: Account(.process(1))), number: 9, isAutomationOn: true, meter: center.meter)
            center.schedule.append(stranger, in: .standard, byteCount: 0)
        },
    ]

    /// One client for which something is held, one that reads, and one for which something waits as it does not.
    private static func center() throws -> DistributedCenter {
        let scenario = Scenario()
        for client in [one, two, three] { try scenario.observe(client, "\(client)", "", .hold) }
        try scenario.suspend(one)
        try scenario.post("\(one)")
        scenario.stop(three)
        try scenario.post(200, of: "\(three)")
        return scenario.center
    }

    @Test("The check of invariants detects each injected fault and names the broken rule", arguments: faults)
    func found(_ fault: Fault) throws {
        let center = try Self.center()
        try center.checkInvariants()
        try fault.make(center)
        let broken = #expect(throws: BrokenInvariant.self) { try center.checkInvariants() }
        #expect(broken?.description == fault.rule)
    }
}

private func entry(serial: UInt64, for observer: UInt64) -> DueQueue.Entry {
    let notification = Notification(
        name: "A", object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), poster: ":1.0", serial: serial)
    return DueQueue.Entry(notification: notification, observers: .one(ObserverID(rawValue: observer)))
}

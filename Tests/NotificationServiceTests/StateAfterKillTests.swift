// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonService

/// What the files of a killed process say of what it had on its way.
@Suite("E3: state after a kill of the service", .limited)
struct StateAfterKillTests: StateTests {
    @Test(
        "D4, E3: no serial is assigned twice after kills, and an orderly end leaves no hole", arguments: [1, 5, 9000])
    func serials(count: Int) throws {
        let directory = try TemporaryDirectory()
        var last: UInt64 = 0
        for _ in 1...3 {
            _ = try afterKill(in: directory) { center, store in
                var effects: [Effect] = []
                for _ in 1...count {
                    // Nobody matches it; what is carried out is nothing but the reservation.
                    _ = try center.post(
                        name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
                    store.reserveNumbers(of: center)
                    carryOut(&effects, in: store)
                }
                #expect(center.lastSerial >= last + UInt64(count))
                last = center.lastSerial
            }
        }
        // In one life they have no holes, and a life that ends in order leaves none either.
        let center = DistributedCenter()
        do {
            let store = try open(directory)
            _ = store.restore(into: center)
            store.finish(from: center)
        }
        let next = DistributedCenter()
        _ = try open(directory).restore(into: next)
        #expect(next.lastSerial == center.lastSerial && center.lastSerial > last)
    }

    @Test(
        "D6, E3: numbered notifications that may not have left are reported as lost, and carried ones are not",
        arguments: 0...3)
    func unconfirmed(count: Int) throws {
        let directory = try TemporaryDirectory()
        let (_, effects) = try afterKill(in: directory) { center, store in
            var effects: [Effect] = []
            _ = try center.addObserver(
                of: ":1.1", name: "", object: "", options: ObserverOptions(), effects: &effects)
            carryOut(&effects, in: store)
            for number in 1...5 {
                _ = try center.post(
                    name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
                center.sendAllReady(effects: &effects)
                guard number > 5 - count else {
                    carryOut(&effects, in: store)
                    continue
                }
                for case .deliver(let delivery) in effects {
                    store.countDelivery(
                        to: delivery.client, sequence: delivery.sequence, serial: delivery.notification.serial)
                }
                store.flush()
                effects = []
            }
        }
        #expect(losses(effects) == (count == 0 ? [] : [[UInt64(count), 5]]))
    }

    @Test("D4, E3: a loss of earlier numbers, as at the end of a channel, does not take back later numbers")
    func wordAboutEarlier() throws {
        let directory = try TemporaryDirectory()
        let (next, _) = try afterKill(in: directory) { center, store in
            var effects: [Effect] = []
            _ = try center.addObserver(
                of: ":1.1", name: "", object: "", options: ObserverOptions(), effects: &effects)
            for _ in 1...5 {
                _ = try center.post(
                    name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
            }
            center.sendAllReady(effects: &effects)
            carryOut(&effects, in: store)
            // The first three were written to the channel, and may lie unread there.
            store.countLoss(of: ":1.1", sequence: 3)
            store.flush()
        }
        var effects: [Effect] = []
        _ = try next.post(name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
        next.sendAllReady(effects: &effects)
        #expect(deliveries(effects).map(\.sequence) == [6])
    }

    @Test(
        "D6, E3: a kill between sending a held notification and recording that causes no duplicate and no silent loss")
    func betweenSendingAndNoting() throws {
        for isConfirmed in [false, true] {
            let directory = try TemporaryDirectory()
            let (_, effects) = try afterKill(in: directory) { center, store in
                var effects: [Effect] = []
                let hold = ObserverOptions(suspensionBehavior: .hold)
                _ = try center.addObserver(of: ":1.1", name: "", object: "", options: hold, effects: &effects)
                try center.setSuspended(true, of: ":1.1", effects: &effects)
                for name in ["A", "B", "C"] {
                    _ = try center.post(
                        name: name, object: "", userInfo: try userInfo(name), from: ":1.9", effects: &effects)
                }
                carryOut(&effects, in: store)
                try center.setSuspended(false, of: ":1.1", effects: &effects)
                let first = try #require(
                    effects.firstIndex { if case .deliver = $0 { true } else { false } })
                var before = Array(effects[..<first])
                carryOut(&before, in: store)
                guard case .deliver(let delivery) = effects[first] else { return }
                store.countDelivery(to: ":1.1", sequence: 1, serial: delivery.notification.serial)
                if isConfirmed { store.confirm(DeliveryReceipts.Sent(sequence: 1, delivered: 1), of: ":1.1") }
                store.flush()
            }
            #expect(losses(effects) == (isConfirmed ? [] : [[1, 1]]))
            #expect(deliveries(effects).map(\.notification.name) == ["B", "C"])
            #expect(deliveries(effects).map(\.sequence) == [2, 3])
        }
    }

    @Test(
        "Q7, E3: a post that leaves its poster's queue is recorded as due before it is sent",
        arguments: [PostingStyle.asap, .whenIdle])
    func fromPostersQueue(style: PostingStyle) throws {
        let directory = try TemporaryDirectory()
        var options = PostOptions()
        options.postingStyle = style
        let (_, effects) = try afterKill(in: directory) { center, store in
            var effects: [Effect] = []
            _ = try center.addObserver(
                of: ":1.1", name: "", object: "", options: ObserverOptions(), effects: &effects)
            for name in ["A", "B"] {
                _ = try center.post(
                    name: name, object: "", userInfo: try userInfo(name), options: options, from: ":1.9",
                    effects: &effects)
            }
            carryOut(&effects, in: store)
            center.postQueued(style, limit: 2, effects: &effects)
            // Killed before the first is sent.
            var before = Array(effects.prefix { if case .remember = $0 { true } else { false } })
            #expect(before.count == 4 && before.count < effects.count)
            carryOut(&before, in: store)
        }
        #expect(deliveries(effects).map(\.notification.name) == ["A", "B"])
        #expect(losses(effects).isEmpty)
    }
}

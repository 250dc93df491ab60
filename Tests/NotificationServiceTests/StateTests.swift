// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonService

/// What tests of the state's files share.
protocol StateTests {}

extension StateTests {
    /// Opens the store. A child that another test starts at this moment has all descriptors of this process until it
    /// runs its program, the one that held the lock before among them.
    func open(
        _ directory: TemporaryDirectory, busID: String = "b", address: String = "", limits: Limits = Limits(),
        report: @escaping (String) -> Void = { _ in }
    ) throws -> RecoveryStore {
        var wait = Wait(.event)
        while true {
            let result = Result { () throws(FileError) in
                try RecoveryStore(
                    directory: directory.path, busID: busID, address: address, limits: limits, report: report)
            }
            if case .failure(let failure) = result, failure.code == EWOULDBLOCK, wait.end() == nil { continue }
            return try result.get()
        }
    }

    func carryOut(_ effects: inout [Effect], in store: RecoveryStore) {
        for effect in effects {
            switch effect {
            case .remember(let change): store.remember(change)
            case .deliver(let delivery):
                store.countDelivery(
                    to: delivery.client, sequence: delivery.sequence, serial: delivery.notification.serial)
                store.confirm(
                    DeliveryReceipts.Sent(sequence: delivery.sequence, delivered: 1), of: delivery.client)
            case .deliverTogether(let client, let batch):
                let last = batch[batch.count - 1]
                store.countDelivery(to: client, sequence: last.sequence, serial: last.notification.serial)
                store.confirm(
                    DeliveryReceipts.Sent(sequence: last.sequence, delivered: UInt64(batch.count)), of: client)
            default: break
            }
        }
        store.flush()
        effects.removeAll()
    }

    func userInfo(_ name: String) throws -> WireUserInfo {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        writer.append(name)
        writer.append("")
        writer.array(of: "{sv}") { $0.entry("key", "value") }
        writer.array(of: "{sv}") { _ in }
        return try Post(message, limits: Limits()) { _, _ in }.userInfo
    }

    func deliveries(_ effects: [Effect]) -> [Delivery] {
        effects.compactMap { effect in
            guard case .deliver(let delivery) = effect else { return nil }
            return delivery
        }
    }

    /// A store that was killed: nothing more is written, and the next one may open it.
    func afterKill(
        in directory: TemporaryDirectory, limits: Limits = Limits(),
        _ body: (DistributedCenter, RecoveryStore) throws -> Void
    ) throws -> (DistributedCenter, [Effect]) {
        do {
            let center = DistributedCenter(limits: limits)
            let store = try open(directory)
            _ = store.restore(into: center)
            center.remembersChanges = true
            try body(center, store)
        }
        let center = DistributedCenter(limits: limits)
        let store = try open(directory)
        _ = store.restore(into: center)
        center.remembersChanges = true
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        center.sendAllReady(effects: &effects)
        var copy = effects
        carryOut(&copy, in: store)
        return (center, effects)
    }

    func losses(_ effects: [Effect]) -> [[UInt64]] {
        effects.compactMap { effect in
            guard case .dropped(_, let count, _, .serviceRestarted, let sequence) = effect else { return nil }
            return [count, sequence]
        }
    }

    func size(_ directory: TemporaryDirectory) throws -> Int {
        var status = stat()
        try #require(stat(directory.path + "/b.log", &status) == 0)
        return Int(status.st_size)
    }
}

import DBus
import Foundation
import NotificationCore
import NotificationWire
import TestSupport
import Testing

@testable import NotificationService

/// The state's files, damaged in every way that there is room for here.
@Suite("E3: state that was cut off or damaged", .timeLimit(.minutes(20)))
struct RecoveryStoreTests {
    @Test("E3: what was remembered comes back as it was")
    func comesBack() throws {
        let directory = try TemporaryDirectory()
        let written = try fill(directory)
        let center = DistributedCenter()
        let store = try open(directory)
        #expect(store.restore(into: center) == 2)
        #expect(state(of: center) == state(of: written))
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        #expect(deliveries(effects).isEmpty)
        try center.setSuspended(false, of: ":1.1", effects: &effects)
        #expect(deliveries(effects).map(\.notification.serial) == [1, 2, 3, 4, 5, 6, 7])
        #expect(deliveries(effects).map(\.sequence) == [1, 2, 3, 4, 5, 6, 7])
        effects = []
        // It had one before, and coalesces.
        try center.setSuspended(false, of: ":1.2", effects: &effects)
        #expect(deliveries(effects).map(\.notification.serial) == [4])
        #expect(deliveries(effects).map(\.sequence) == [2])
    }

    @Test("E3: a log that is cut off at any byte brings back what stood before, and never a crash")
    func cutOff() throws {
        let directory = try TemporaryDirectory()
        _ = try fill(directory)
        let log = directory.path + "/b.log"
        let bytes = try Data(contentsOf: URL(filePath: log))
        var observers = 0
        for length in 0...bytes.count {
            try bytes.prefix(length).write(to: URL(filePath: log))
            let center = DistributedCenter()
            var reports: [String] = []
            let store = try open(directory) { reports.append($0) }
            _ = store.restore(into: center)
            // Nothing is said of a log that ends between two records: that is how it ends.
            #expect(reports.count <= 1)
            let restored = Int(center.statistics.observers)
            // Four were registered; two of them, with a client, went again.
            #expect(restored >= min(observers, 2), "more of the log brings back no less")
            observers = restored
        }
        #expect(observers == 2)
    }

    @Test("E3: a log with any byte changed is read up to there, and never a crash")
    func changed() throws {
        let directory = try TemporaryDirectory()
        _ = try fill(directory)
        let log = directory.path + "/b.log"
        let bytes = try Data(contentsOf: URL(filePath: log))
        for offset in bytes.indices {
            for bit in [UInt8(0x01), 0x80] {
                var damaged = bytes
                damaged[offset] ^= bit
                try damaged.write(to: URL(filePath: log))
                let center = DistributedCenter()
                var reports: [String] = []
                let store = try open(directory) { reports.append($0) }
                _ = store.restore(into: center)
                #expect(reports.count == 1, "the damage at \(offset) is reported")
                #expect(center.statistics.observers <= 4)
            }
        }
    }

    /// Opens the store. A child that another test starts at this moment has all descriptors of this process until it
    /// runs its program, the one that held the lock before among them.
    private func open(
        _ directory: TemporaryDirectory, report: @escaping (String) -> Void = { _ in }
    ) throws -> RecoveryStore {
        let deadline = Deadline(after: .patience)
        while true {
            let result = Result { () throws(RecoveryLog.Failure) in
                try RecoveryStore(directory: directory.path, busID: "b", report: report)
            }
            if case .failure(let failure) = result, failure.code == EWOULDBLOCK, !deadline.hasPassed { continue }
            return try result.get()
        }
    }

    @Test("E3: records that are whole but make no sense are passed over, and never a crash")
    func nonsense() throws {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<2000 {
            let directory = try TemporaryDirectory()
            let log = try RecoveryLog(path: directory.path + "/b.log")
            for _ in 0..<8 {
                let count = Int.random(in: 0..<40, using: &generator)
                let kind = UInt8.random(in: 0..<20, using: &generator)
                let rest = (0..<count).map { _ in UInt8.random(in: 0...5, using: &generator) }
                try log.append([kind] + rest)
            }
            _ = consume log
            let center = DistributedCenter()
            let store = try open(directory) { _ in }
            _ = store.restore(into: center)
        }
    }

    @Test("E3: counts that were lost or damaged are taken as they are, and never a crash")
    func counts() throws {
        let directory = try TemporaryDirectory()
        _ = try fill(directory)
        for size in [0, 1, 31, 32, 4096, 5000] {
            try Data(repeating: 0xFF, count: size).write(to: URL(filePath: directory.path + "/b.counts"))
            let center = DistributedCenter()
            _ = try open(directory).restore(into: center)
            #expect(center.statistics.observers == 2)
        }
    }

    @Test("E3: a log grows no longer than what it has to hold, twice and a little")
    func tidy() throws {
        let directory = try TemporaryDirectory()
        let center = DistributedCenter()
        center.remembersChanges = true
        let store = try RecoveryStore(directory: directory.path, busID: "b")
        _ = store.restore(into: center)
        var effects: [Effect] = []
        _ = try center.addObserver(
            of: ":1.1", name: "", object: "", options: ObserverOptions(suspensionBehavior: .coalesce),
            effects: &effects)
        try center.setSuspended(true, of: ":1.1", effects: &effects)
        for _ in 0..<20_000 {
            _ = try center.post(
                name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
            carryOut(&effects, in: store)
            store.tidy(from: center)
        }
        var options = PostOptions()
        options.postingStyle = .whenIdle
        options.coalescing = [.name]
        for _ in 0..<20_000 {
            _ = try center.post(
                name: "Ding", object: "", userInfo: try userInfo("Ding"), options: options, from: ":1.9",
                effects: &effects)
            carryOut(&effects, in: store)
            store.tidy(from: center)
        }
        let size = try FileManager.default.attributesOfItem(atPath: directory.path + "/b.log")[.size] as? Int
        #expect(try #require(size) < 1_100_000)
        #expect(!store.hasFailed)
    }

    @Test("E3: two processes can't have the state of one bus")
    func locked() throws {
        let directory = try TemporaryDirectory()
        let first = try RecoveryStore(directory: directory.path, busID: "b")
        #expect(throws: RecoveryLog.Failure.self) { try RecoveryStore(directory: directory.path, busID: "b") }
        withExtendedLifetime(first) {}
    }

    @Test("E3: a full disk is an error of the log, not a crash")
    func fullDisk() throws {
        let log = try RecoveryLog(path: "/dev/full")
        let failure = #expect(throws: RecoveryLog.Failure.self) { try log.append([1, 2, 3]) }
        #expect(failure?.code == ENOSPC)
    }

    // MARK: A state to damage

    /// Two clients that stay, one that leaves; held, coalesced, popped and removed entries.
    private func fill(_ directory: TemporaryDirectory) throws -> DistributedCenter {
        let center = DistributedCenter()
        center.remembersChanges = true
        let store = try RecoveryStore(directory: directory.path, busID: "b")
        _ = store.restore(into: center)
        var effects: [Effect] = []
        func post(_ name: String) throws {
            _ = try center.post(name: name, object: "", userInfo: try userInfo(name), from: ":1.9", effects: &effects)
            carryOut(&effects, in: store)
        }
        let hold = ObserverOptions(suspensionBehavior: .hold)
        _ = try center.addObserver(of: ":1.1", name: "", object: "", options: hold, effects: &effects)
        _ = try center.addObserver(of: ":1.2", name: "Dong", object: "", options: ObserverOptions(), effects: &effects)
        _ = try center.addObserver(of: ":1.3", name: "Gone", object: "", options: hold, effects: &effects)
        try center.setSuspended(true, of: ":1.1", effects: &effects)
        try center.setSuspended(true, of: ":1.2", effects: &effects)
        for name in ["Ding", "Dong"] { try post(name) }
        let extra = try center.addObserver(of: ":1.1", name: "Bim", object: "", options: hold, effects: &effects)
        try center.removeObserver(extra, of: ":1.1", effects: &effects)
        center.clientDisappeared(":1.3", effects: &effects)
        carryOut(&effects, in: store)
        try center.setSuspended(false, of: ":1.2", effects: &effects)
        try center.setSuspended(true, of: ":1.2", effects: &effects)
        carryOut(&effects, in: store)
        for name in ["Dong", "Dong", "Bam"] { try post(name) }
        var options = PostOptions()
        func queue(_ name: String, _ style: PostingStyle, _ coalescing: Set<CoalescingKey>) throws {
            options.postingStyle = style
            options.coalescing = coalescing
            _ = try center.post(
                name: name, object: "", userInfo: try userInfo(name), options: options, from: ":1.9",
                effects: &effects)
            carryOut(&effects, in: store)
        }
        try queue("Ping", .whenIdle, [])
        try queue("Ping", .asap, [.name])
        try queue("Pong", .asap, [])
        center.postQueued(.asap, limit: 1, effects: &effects)
        carryOut(&effects, in: store)
        try queue("Pong", .now, [.name])
        options.deliverImmediately = true
        try queue("Pong", .whenIdle, [.name, .object])
        #expect(!store.hasFailed)
        return center
    }

    private func carryOut(_ effects: inout [Effect], in store: RecoveryStore) {
        for effect in effects {
            switch effect {
            case .remember(let change): store.remember(change)
            case .deliver(let delivery):
                store.countDelivery(
                    to: delivery.client, sequence: delivery.sequence, serial: delivery.notification.serial)
            default: break
            }
        }
        effects.removeAll()
    }

    private func userInfo(_ name: String) throws -> WireUserInfo {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        writer.append(name)
        writer.append("")
        writer.array(of: "{sv}") { $0.entry("key", "value") }
        writer.array(of: "{sv}") { _ in }
        var reader = MessageReader(message)
        _ = try reader.readString()
        _ = try reader.readString()
        return try WireUserInfo(of: message, at: &reader, limits: Limits())
    }

    private func deliveries(_ effects: [Effect]) -> [Delivery] {
        effects.compactMap { effect in
            guard case .deliver(let delivery) = effect else { return nil }
            return delivery
        }
    }

    private func state(of center: DistributedCenter) -> [String] {
        var changes: [String] = []
        center.forEachRememberedChange { change in
            switch change {
            case .held(let client, let notification, let observers, let coalescing):
                changes.append("held \(client) \(notification.serial) \(notification.name) \(observers) \(coalescing)")
            case .queuedDue(let client, let notification, let observers, let lane):
                changes.append("due \(client) \(notification.serial) \(observers) \(lane)")
            case .postQueued(let poster, let post, _):
                changes.append("queued \(poster) \(post.name) \(post.style) \(post.deliverImmediately)")
            default: changes.append("\(change)")
            }
        }
        return changes.sorted()
    }
}

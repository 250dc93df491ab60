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

/// The state's files, damaged in every way that there is room for here.
@Suite("E3: truncated or damaged state", .limited)
struct RecoveryStoreTests: StateTests {
    @Test("E3: the written state is restored unchanged")
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

    @Test("E3: a log that is truncated at any byte restores the records before, without a crash")
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

    @Test(
        "E3, S1: after a log with a damaged end, clients are informed of their suspension", arguments: [0, 3])
    func doubted(rubbish: Int) throws {
        let directory = try TemporaryDirectory()
        do {
            let before = DistributedCenter()
            before.remembersChanges = true
            let store = try open(directory)
            _ = store.restore(into: before)
            var effects: [Effect] = []
            try before.setSuspended(true, of: ":1.1", effects: &effects)
            // It confirms that: its window is full.
            for _ in 0..<64 { _ = before.mayAnswer(":1.1", byteCount: 100, effects: &effects) }
            for _ in 0..<2 { before.clientAnswered(":1.1", effects: &effects) }
            carryOut(&effects, in: store)
            try before.setSuspended(true, of: ":1.2", effects: &effects)
            carryOut(&effects, in: store)
        }
        let log = directory.path + "/b.log"
        let bytes = try Data(contentsOf: URL(filePath: log))
        // Of the last record so much is missing. For all that is known it was about the first client.
        try bytes.dropLast(rubbish).write(to: URL(filePath: log))
        let center = DistributedCenter()
        let next = try open(directory)
        _ = next.restore(into: center)
        var effects: [Effect] = []
        center.finishRestoring(effects: &effects)
        let told = effects.compactMap { effect in
            if case .suspensionChanged(":1.1", let isSuspended, _) = effect { isSuspended } else { nil }
        }
        #expect(told == (rubbish > 0 ? [true] : []))
    }

    @Test("D4: no number is reused after a log with a corrupt end", arguments: [0, 3])
    func passedOver(rubbish: Int) throws {
        let directory = try TemporaryDirectory()
        let before = try fill(directory)
        let log = directory.path + "/b.log"
        try Data(contentsOf: URL(filePath: log)).dropLast(rubbish).write(to: URL(filePath: log))
        let center = DistributedCenter()
        center.clock = Clock(time: { 1_700_000_000_000_000 }, uptime: { 0 })
        _ = try open(directory).restore(into: center)
        let last = center.lastNumbers
        if rubbish > 0 {
            #expect(last.serial == 1_700_000_000_000_000 && last.observer == last.serial)
        } else {
            #expect(last.serial >= before.lastNumbers.serial && last.serial < before.lastNumbers.serial + 10_000)
            #expect(last.observer >= before.lastNumbers.observer && last.observer < 10_000)
        }
    }

    @Test("E3: a log with one changed byte is restored without a crash, and the damage is reported")
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

    @Test("E3: valid records with nonsensical contents are skipped without a crash")
    func nonsense() throws {
        var generator = SplitMix.ofTest("RecoveryStoreTests.nonsense")
        // Each kind that there is, and some that there are not.
        let known = (0...UInt8.max).filter { RecordKind(rawValue: $0) != nil }
        let kinds = known + [0, known.max()! + 1, .max]
        var seen: Set<UInt8> = []
        for _ in 0..<2000 {
            let directory = try TemporaryDirectory()
            let log = try RecoveryLog(path: directory.path + "/b.log")
            for _ in 0..<8 {
                let count = Int.random(in: 0..<40, using: &generator)
                let kind = kinds.randomElement(using: &generator)!
                seen.insert(kind)
                let rest = (0..<count).map { _ in UInt8.random(in: 0...5, using: &generator) }
                var group = RecordGroup()
                group.beginRecord()
                for byte in [kind] + rest { group.append(byte) }
                group.endRecord()
                try log.append(group)
            }
            _ = consume log
            let center = DistributedCenter()
            let store = try open(directory) { _ in }
            _ = store.restore(into: center)
        }
        #expect(seen == Set(kinds))
    }

    @Test("E3: the log is restored without a crash even if the counts are lost or damaged")
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

    enum Telling: CaseIterable {
        case never
        case onTheWay
        case carried
    }

    @Test(
        "E3, E5: numbers that the bus refused do not count as delivered until the report of the loss is",
        arguments: Telling.allCases)
    func withheld(telling: Telling) throws {
        let directory = try TemporaryDirectory()
        var store: RecoveryStore? = try open(directory)
        let center = DistributedCenter()
        center.remembersChanges = true
        _ = store?.restore(into: center)
        var effects: [Effect] = []
        _ = try center.addObserver(of: ":1.1", name: "Ding", object: "", options: ObserverOptions(), effects: &effects)
        carryOut(&effects, in: try #require(store))
        func confirm(_ sequence: UInt64, dropped: UInt64 = 0) {
            let delivered: UInt64 = dropped == 0 ? 1 : 0
            store?.confirm(
                DeliveryReceipts.Sent(sequence: sequence, delivered: delivered, dropped: dropped), of: ":1.1")
        }
        for number: UInt64 in 1...5 { store?.countDelivery(to: ":1.1", sequence: number, serial: number) }
        // The bus has read them all, and had no room for two, of which one is known before that.
        store?.withhold(1, of: ":1.1")
        confirm(5)
        store?.withhold(2, of: ":1.1")
        if telling != .never {
            store?.withhold(0, of: ":1.1")
            store?.countLoss(of: ":1.1", sequence: 5)
        }
        if telling == .carried { confirm(5, dropped: 2) }
        store?.flush()
        store = nil

        let next = DistributedCenter()
        #expect(try open(directory).restore(into: next) == 1)
        next.finishRestoring(effects: &effects)
        let told = effects.compactMap { effect -> UInt64? in
            guard case .dropped(_, let count, _, .serviceRestarted, 5) = effect else { return nil }
            return count
        }
        #expect(told == (telling == .carried ? [] : [2]))
    }

    @Test("E3: only one process can open the state of a bus")
    func locked() throws {
        let directory = try TemporaryDirectory()
        let first = try RecoveryStore(directory: directory.path, busID: "b")
        #expect(throws: FileError.self) { try RecoveryStore(directory: directory.path, busID: "b") }
        withExtendedLifetime(first) {}
    }

    @Test("E3: special files at the paths of state files are not opened, and the state is saved again later")
    func noRegularFiles() throws {
        for make in Self.obstacles {
            let directory = try TemporaryDirectory()
            for name in ["b.log", "b.log.new", "b.counts"] {
                let path = directory.path + "/" + name
                try make(path)
                var time = Duration.zero
                var reports: [String] = []
                let center = DistributedCenter()
                center.remembersChanges = true
                do {
                    let store = try RecoveryStore(
                        directory: directory.path, busID: "b", now: { time }, report: { reports.append($0) })
                    #expect(store.restore(into: center) == 0)
                    var effects: [Effect] = []
                    _ = try center.addObserver(
                        of: ":1.1", name: "Ding", object: "", options: ObserverOptions(), effects: &effects)
                    carryOut(&effects, in: store)
                    store.tidy(from: center)
                    #expect(reports.count <= 1, "\(name): \(reports)")
                    rmdir(path)  // what else is there has to be got over without help
                    time += .seconds(3)
                    store.tidy(from: center)
                    #expect(!store.isSuspended, "\(name)")
                }
                let next = DistributedCenter()
                #expect(try open(directory).restore(into: next) == 1, "\(name)")
                try FileManager.default.removeItem(atPath: directory.path + "/b.log")
            }
        }
    }

    private static let obstacles: [@Sendable (String) throws -> Void] = [
        { path in
            unlink(path)
            #expect(mkfifo(path, 0o600) == 0)
        },
        { path in
            unlink(path)
            #expect(mkdir(path, 0o700) == 0)
        },
        { path in
            unlink(path)
            #expect(symlink("/dev/zero", path) == 0)
        },
        { path in
            unlink(path)
            #expect(symlink(path + ".elsewhere", path) == 0)
        },
    ]

    @Test("E3: the records of a log are restored, and gigabytes of zeros behind them are discarded")
    func tooLarge() throws {
        let directory = try TemporaryDirectory()
        let before = try fill(directory)
        #expect(truncate(directory.path + "/b.log", 3 << 30) == 0)
        var reports: [String] = []
        let center = DistributedCenter()
        let store = try open(directory) { reports.append($0) }
        #expect(store.restore(into: center) == before.clientStatuses.count)
        #expect(reports.count == 1 && reports[0].contains("discarded"), "\(reports)")
        #expect(!store.isSuspended)
        #expect(try size(directory) < 4096)
    }

    @Test("E3: a truncation of the counts by another program ends neither the service nor the restoration")
    func countsTruncated() throws {
        let directory = try TemporaryDirectory()
        let center = DistributedCenter()
        center.remembersChanges = true
        do {
            let store = try RecoveryStore(directory: directory.path, busID: "b")
            _ = store.restore(into: center)
            var effects: [Effect] = []
            _ = try center.addObserver(
                of: ":1.1", name: "", object: "", options: ObserverOptions(), effects: &effects)
            for number in 1...100 {
                if number == 50 { #expect(truncate(directory.path + "/b.counts", 3) == 0) }
                _ = try center.post(
                    name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
                center.sendAllReady(effects: &effects)
                carryOut(&effects, in: store)
            }
            #expect(!store.isSuspended)
        }
        let next = DistributedCenter()
        #expect(try open(directory).restore(into: next) == 1)
    }

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
        #expect(!store.isSuspended)
        return center
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

import DBus
import Foundation
import MainLoop
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
            let result = Result { () throws(FileError) in
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
                var group = RecordGroup()
                group.append([kind] + rest)
                try log.append(group)
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
        #expect(!store.isSuspended)
    }

    @Test("E3: two processes can't have the state of one bus")
    func locked() throws {
        let directory = try TemporaryDirectory()
        let first = try RecoveryStore(directory: directory.path, busID: "b")
        #expect(throws: FileError.self) { try RecoveryStore(directory: directory.path, busID: "b") }
        withExtendedLifetime(first) {}
    }

    @Test("E3: what is no regular file in the log's place is not opened, and the state comes back when it has gone")
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

    @Test("E3: a log that is larger than the state may be is not read")
    func tooLarge() throws {
        let directory = try TemporaryDirectory()
        _ = try fill(directory)
        #expect(truncate(directory.path + "/b.log", 3 << 30) == 0)
        var reports: [String] = []
        let center = DistributedCenter()
        let store = try open(directory) { reports.append($0) }
        #expect(store.restore(into: center) == 0)
        #expect(reports.count == 1 && reports[0].contains("larger than"), "\(reports)")
        #expect(!store.isSuspended)
        #expect(try size(directory) < 4096)
    }

    @Test("E3: a file of counts that somebody makes shorter, or writes into, ends nothing; what is there is checked")
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

    // MARK: What a kill leaves

    /// A store that was killed: nothing more is written, and the next one may open it.
    private func afterKill(
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

    private func losses(_ effects: [Effect]) -> [[UInt64]] {
        effects.compactMap { effect in
            guard case .dropped(_, let count, _, .serviceRestarted, let sequence) = effect else { return nil }
            return [count, sequence]
        }
    }

    @Test("D4, E3: no serial is given twice, whatever became of the posts that had them", arguments: [1, 5, 9000])
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

    @Test("D6, E3: what was numbered and may not have left is announced, and what surely left is not", arguments: 0...3)
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
                effects = []
            }
        }
        #expect(losses(effects) == (count == 0 ? [] : [[UInt64(count), 5]]))
    }

    @Test("D6, E3: killed between sending what had waited and noting that, it comes neither twice nor not at all")
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
            }
            #expect(losses(effects) == (isConfirmed ? [] : [[1, 1]]))
            #expect(deliveries(effects).map(\.notification.name) == ["B", "C"])
            #expect(deliveries(effects).map(\.sequence) == [2, 3])
        }
    }

    @Test(
        "Q7, E3: a post that leaves its poster's queue is due in the same breath",
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

    @Test("E4, E3: over state-bytes queues are not kept, registrations are, and what so is lost is announced")
    func stateBytes() throws {
        var limits = Limits()
        limits[.stateBytes] = 1 << 20
        let directory = try TemporaryDirectory()
        let count = 1500
        let (center, effects) = try afterKill(in: directory, limits: limits) { center, store in
            var effects: [Effect] = []
            let hold = ObserverOptions(suspensionBehavior: .hold)
            _ = try center.addObserver(of: ":1.1", name: "", object: "", options: hold, effects: &effects)
            try center.setSuspended(true, of: ":1.1", effects: &effects)
            for _ in 0..<count {
                _ = try center.post(
                    name: "Ding", object: "", userInfo: try userInfo(String(repeating: "x", count: 1000)),
                    from: ":1.9", effects: &effects)
                carryOut(&effects, in: store)
                store.tidy(from: center)
                #expect(try size(directory) <= 1 << 20)
            }
            #expect(!store.isSuspended)
        }
        #expect(center.statistics.observers == 1 && center.clientStatuses.first?.isSuspended == true)
        #expect(losses(effects) == [[UInt64(count), UInt64(count)]])
        #expect(deliveries(effects).isEmpty)
    }

    @Test("E4, E3: the log has a long list of observers once for each client, and not with each notification")
    func observerLists() throws {
        let directory = try TemporaryDirectory()
        let (center, _) = try afterKill(in: directory) { center, store in
            var effects: [Effect] = []
            let hold = ObserverOptions(suspensionBehavior: .hold)
            for _ in 0..<1000 {
                _ = try center.addObserver(of: ":1.1", name: "Ding", object: "", options: hold, effects: &effects)
            }
            try center.setSuspended(true, of: ":1.1", effects: &effects)
            carryOut(&effects, in: store)
            let before = try size(directory)
            for _ in 0..<1000 {
                _ = try center.post(
                    name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
                carryOut(&effects, in: store)
            }
            #expect(try size(directory) - before < 200_000)
        }
        #expect(center.statistics.queued == 1000)
    }

    @Test("E4: the log is written anew in proportion to what was written")
    func amortised() throws {
        let directory = try TemporaryDirectory()
        let center = DistributedCenter()
        for key in [Limits.Key.observerBytes, .observerBytesPerClient] { center.limits[key] = 1 << 30 }
        center.remembersChanges = true
        let store = try open(directory)
        _ = store.restore(into: center)
        var effects: [Effect] = []
        var (rewritten, last) = (0, try size(directory))
        for number in 0..<13_500 {
            _ = try center.addObserver(
                of: ":1.1", name: String(repeating: "n", count: 1000), object: "\(number)", options: ObserverOptions(),
                effects: &effects)
            carryOut(&effects, in: store)
            store.tidy(from: center)
            let size = try size(directory)
            if size < last { rewritten += 1 }
            last = size
        }
        #expect(rewritten <= 5)
    }

    private func size(_ directory: TemporaryDirectory) throws -> Int {
        var status = stat()
        try #require(stat(directory.path + "/b.log", &status) == 0)
        return Int(status.st_size)
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
        #expect(!store.isSuspended)
        return center
    }

    private func carryOut(_ effects: inout [Effect], in store: RecoveryStore) {
        for effect in effects {
            switch effect {
            case .remember(let change): store.remember(change)
            case .deliver(let delivery):
                store.countDelivery(
                    to: delivery.client, sequence: delivery.sequence, serial: delivery.notification.serial)
                store.confirm(
                    DeliveryReceipts.Sent(sequence: delivery.sequence, delivered: 1), of: delivery.client)
            default: break
            }
        }
        store.flush()
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

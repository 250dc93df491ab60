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

/// How much the files take, and what becomes of what there is no room for.
@Suite("E4: the size of state on disk", .limited)
struct StateSizeTests: StateTests {
    @Test("E3: the recovery log remains within about twice the size of the state that it holds")
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

    /// Has so many notifications of 1000 bytes be held for a client that is suspended.
    private func hold(
        _ count: Int, in center: DistributedCenter, _ store: RecoveryStore, afterEach: () throws -> Void
    ) throws {
        var effects: [Effect] = []
        let hold = ObserverOptions(suspensionBehavior: .hold)
        _ = try center.addObserver(of: ":1.1", name: "", object: "", options: hold, effects: &effects)
        try center.setSuspended(true, of: ":1.1", effects: &effects)
        for _ in 0..<count {
            _ = try center.post(
                name: "Ding", object: "", userInfo: try userInfo(String(repeating: "x", count: 1000)), from: ":1.9",
                effects: &effects)
            carryOut(&effects, in: store)
            store.tidy(from: center)
            try afterEach()
        }
    }

    @Test("E4, E3: above state-bytes the log keeps registrations but no queues, and their loss is reported")
    func stateBytes() throws {
        var limits = Limits()
        limits[.stateBytes] = 1 << 20
        let directory = try TemporaryDirectory()
        let count = 1500
        let (center, effects) = try afterKill(in: directory, limits: limits) { center, store in
            try hold(count, in: center, store) {
                // A quarter more, at most, while it is written anew part by part.
                try #expect(size(directory) <= 5 << 18)
            }
            #expect(!store.isSuspended)
        }
        #expect(center.statistics.observers == 1 && center.clientStatuses.first?.isSuspended == true)
        #expect(losses(effects) == [[UInt64(count), UInt64(count)]])
        #expect(deliveries(effects).isEmpty)
    }

    @Test("E3: an orderly end keeps all state that a kill keeps, even if the log can't be rewritten")
    func orderlyEnd() throws {
        var limits = Limits()
        limits[.stateBytes] = 1 << 20
        for isOrderly in [false, true] {
            let directory = try TemporaryDirectory()
            let count = 800
            let (center, effects) = try afterKill(in: directory, limits: limits) { center, store in
                try hold(count, in: center, store) {}
                try #expect(store.isWhole && size(directory) > 700_000)
                if isOrderly { store.finish(from: center) }
            }
            #expect(center.waiting(for: ":1.1") == count && losses(effects).isEmpty)
        }
    }

    @Test("E8, E3: recording of queues starts and stops in slices, and a kill at any time leaves no silent loss")
    func extents() throws {
        var limits = Limits()
        limits[.stateBytes] = 1 << 20
        let count = 1500
        for last in stride(from: 700, through: 2 * count, by: 127) {
            let directory = try TemporaryDirectory()
            var (waiting, isWhole) = (0, true)
            let (center, effects) = try afterKill(in: directory, limits: limits) { center, store in
                var effects: [Effect] = []
                let hold = ObserverOptions(suspensionBehavior: .hold)
                _ = try center.addObserver(of: ":1.1", name: "", object: "", options: hold, effects: &effects)
                try center.setSuspended(true, of: ":1.1", effects: &effects)
                for number in 0..<last {
                    if number == count {
                        // All of it goes, and from then on little waits.
                        try center.setSuspended(false, of: ":1.1", effects: &effects)
                        while center.waiting(for: ":1.1") > 0 {
                            center.sendAllReady(effects: &effects)
                            carryOut(&effects, in: store)
                            center.clientAnswered(":1.1", effects: &effects)
                        }
                        try center.setSuspended(true, of: ":1.1", effects: &effects)
                    }
                    if number >= count {
                        // Something else makes the log long.
                        let id = try center.addObserver(
                            of: ":1.1", name: String(repeating: "n", count: 900), object: "", options: hold,
                            effects: &effects)
                        try center.removeObserver(id, of: ":1.1", effects: &effects)
                    }
                    if number < count || number % 10 == 0 {
                        _ = try center.post(
                            name: "Ding", object: "", userInfo: try userInfo(String(repeating: "x", count: 1000)),
                            from: ":1.9", effects: &effects)
                    }
                    let (before, files) = (try size(directory), try files(in: directory).count)
                    carryOut(&effects, in: store)
                    store.tidy(from: center)
                    // Where it becomes shorter, another one was written for some time, or is little.
                    let after = try size(directory)
                    #expect(after >= before || files == 3 || after < 200_000, "\(number): \(after)")
                }
                (waiting, isWhole) = (Int(center.waiting(for: ":1.1")), store.isWhole)
            }
            let (left, lost) = (Int(center.waiting(for: ":1.1")), losses(effects).reduce(0) { $0 + Int($1[0]) })
            #expect(left == (isWhole ? waiting : 0), "\(last)")
            #expect(lost == (isWhole ? 0 : waiting), "\(last)")
            if last == 700 || last > 2 * count - 127 { #expect(isWhole, "\(last)") }
            if 1100...count ~= last { #expect(!isWhole) }
        }
    }

    @Test("E3: a state of many clients is restored without its counts file, even above the present size limit")
    func withoutCounts() throws {
        let directory = try TemporaryDirectory()
        let clients = (1...200).map { ClientName(rawValue: ":1.\($0)")! }
        do {
            let center = DistributedCenter()
            let store = try open(directory)
            _ = store.restore(into: center)
            center.remembersChanges = true
            var effects: [Effect] = []
            let hold = ObserverOptions(suspensionBehavior: .hold)
            for client in clients {
                _ = try center.addObserver(of: client, name: "", object: "", options: hold, effects: &effects)
                try center.setSuspended(true, of: client, effects: &effects)
            }
            for _ in 0..<8 {
                _ = try center.post(
                    name: "Ding", object: "", userInfo: try userInfo(String(repeating: "x", count: 1000)),
                    from: ":1.999",
                    effects: &effects)
            }
            carryOut(&effects, in: store)
            store.tidy(from: center)
        }
        try FileManager.default.removeItem(atPath: directory.path + "/b.counts")
        var limits = Limits()
        limits[.stateBytes] = 1 << 20
        let store = try open(directory, limits: limits)
        let center = DistributedCenter(limits: limits)
        #expect(store.restore(into: center) == clients.count)
        #expect(store.isWithoutQueues && center.clientStatuses.count == clients.count)
        #expect(clients.allSatisfy { center.waiting(for: $0) == 8 })
    }

    private func files(in directory: TemporaryDirectory) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory.path)
    }

    @Test("E4, E3: the log writes a long list of observers once per client, and not with each notification")
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

    @Test("E4: rewrites of the log are in proportion to the bytes written")
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

    @Test("E3: state above the standard limits is restored before a service has read its configuration")
    func lowered() throws {
        var limits = Limits()
        limits[.stateBytes] = 200 << 20
        limits[.queuedBytesPerClient] = 200 << 20
        limits[.queuedBytes] = 200 << 20
        let directory = try TemporaryDirectory()
        // The store begins with the standard limits.
        let (center, _) = try afterKill(in: directory, limits: limits) { center, store in
            var effects: [Effect] = []
            let hold = ObserverOptions(suspensionBehavior: .hold)
            for client in [":1.1", ":1.2"] as [ClientName] {
                _ = try center.addObserver(of: client, name: "Ding", object: "", options: hold, effects: &effects)
            }
            try center.setSuspended(true, of: ":1.1", effects: &effects)
            let large = try userInfo(String(repeating: "x", count: 1 << 20))
            for _ in 0..<70 {
                _ = try center.post(name: "Ding", object: "", userInfo: large, from: ":1.9", effects: &effects)
                carryOut(&effects, in: store)
                store.tidy(from: center)
            }
            #expect(try UInt64(size(directory)) > Limits()[.stateBytes])
        }
        #expect(Set(center.clientStatuses.map(\.name)) == [":1.1", ":1.2"])
        #expect(center.waiting(for: ":1.1") == 70)
    }

    @Test("E3, Q7: queued posts that were not recorded count as lost in the next process, once")
    func postsNotKept() throws {
        var limits = Limits()
        limits[.stateBytes] = 1 << 20
        let directory = try TemporaryDirectory()
        let (center, _) = try afterKill(in: directory, limits: limits) { center, store in
            var effects: [Effect] = []
            var options = PostOptions()
            options.postingStyle = .whenIdle
            for _ in 0..<1500 {
                _ = try center.post(
                    name: "Ding", object: "", userInfo: try userInfo(String(repeating: "x", count: 1000)),
                    options: options, from: ":1.9", effects: &effects)
                carryOut(&effects, in: store)
                store.tidy(from: center)
            }
            // Two have had their turn.
            center.postQueued(.whenIdle, limit: 2, effects: &effects)
            carryOut(&effects, in: store)
            store.tidy(from: center)
        }
        #expect(center.statistics.lostPosts == 1498)
        #expect(center.statistics.queuedPosts == 0)
        let (next, _) = try afterKill(in: directory, limits: limits) { _, _ in }
        #expect(next.statistics.lostPosts == 0, "the one before has said it")
    }
}

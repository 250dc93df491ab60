// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Synchronization
import Testing

/// Everything at once from many threads. `tools/test-threads` runs it under the thread sanitizer.
@Suite("Stress of centers by many threads that add, remove, post and receive (C9)", .serialized, .limited)
struct StressTests {
    private static let threads = 8
    /// What each thread does so often; bounded by work and not by time, so that every run does the same.
    private static let rounds = Int(ProcessInfo.processInfo.environment["CARILLON_STRESS"] ?? "") ?? 150

    @Test("A center used by eight threads has no deadlock, loss, reordering or leftover registration")
    func oneCenter() async throws {
        let desk = try Desk()
        let center = desk.center()
        let stayers = [Inbox<String>(), Inbox<String>()]
        let operations = OperationQueue()
        center.addObserver(forName: .init("kept"), object: nil, suspensionBehavior: .hold, queue: nil) { note in
            stayers[0].add(note.object as? String ?? "")
        }
        center.addObserver(forName: .init("kept"), object: nil, suspensionBehavior: .hold, queue: operations) { note in
            stayers[1].add(note.object as? String ?? "")
        }
        try await onOwnThread {
            try center.settle()
            let group = DispatchGroup()
            for number in 0..<Self.threads {
                group.enter()
                Thread {
                    var worker = Worker(center, number, operations)
                    for round in 0..<Self.rounds { worker.step(round) }
                    worker.end()
                    group.leave()
                }.start()
            }
            try group.wait(for: "the workers", within: .stress)
            center.suspended = false
            try center.settle(within: .stress)
            try eventually(
                """
                all of them: \(stayers.map(\.all.count)), \(center.statistics), \
                \((try? gdbusCall("ListClients", on: desk.bus)) ?? "")
                """
            ) { stayers.allSatisfy { $0.all.count >= Self.threads * Self.rounds } }
        }
        for inbox in stayers {
            #expect(inbox.all.count == Self.threads * Self.rounds)
            for number in 0..<Self.threads {
                let heard = inbox.all.filter { $0.hasPrefix("\(number) ") }
                #expect(heard == (0..<Self.rounds).map { "\(number) \($0)" })
            }
        }
        // The targets that nobody removed go when others come, or with a notification.
        for name in Worker.names { center.post(name, number: -1) }
        // Their readers need the threads of tasks to end.
        try await onOwnThread {
            try eventually("only what stays is registered: \((try? observerCounts(on: desk.bus)) ?? [])") {
                try observerCounts(on: desk.bus) == [1]
            }
        }
        #expect(center.statistics.failedPosts == 0 && center.statistics.refusedObservers == 0)
    }

    @Test("Short-lived centers on many threads lose no posts and leave no registrations")
    func manyCenters() async throws {
        let desk = try Desk()
        let ear = try Ear(desk)
        try ear.listen("kept", tag: "kept")
        let rounds = max(1, Self.rounds / 10)
        try await onOwnThread {
            let group = DispatchGroup()
            for number in 0..<Self.threads {
                group.enter()
                Thread {
                    for round in 0..<rounds {
                        let center = desk.center()
                        let token = center.addObserver(forName: .init("kept"), object: nil, queue: nil) { _ in }
                        center.post("kept", number: number * 1_000 + round)
                        if round.isMultiple(of: 2) { center.removeObserver(token) }
                        if round.isMultiple(of: 3) { center.flush(timeout: 90) }
                    }
                    group.leave()
                }.start()
            }
            try group.wait(for: "the threads", within: .stress)
            _ = try ear.heard.wait(for: Self.threads * rounds)
            try eventually("their registrations are gone") {
                try observerCounts(on: desk.bus) == [2]
            }
        }
        let expected = (0..<Self.threads).flatMap { number in (0..<rounds).map { "kept \(number * 1_000 + $0)" } }
        #expect(Set(ear.heard.all) == Set(expected) && ear.heard.all.count == expected.count)
    }
}

extension Patience {
    fileprivate static let stress = work(.seconds(600), because: "many threads on few processors")
}

/// What one thread does.
private struct Worker {
    static let names = ["a", "b", "c"]

    let center: DistributedNotificationCenter
    let number: Int
    let operations: OperationQueue
    private var random: SplitMix
    private var tokens: [any NSObjectProtocol] = []
    private var observations: [DistributedNotificationCenter.Observation] = []
    private var targets: [Target] = []
    private var readers: [Task<Void, Never>] = []

    init(_ center: DistributedNotificationCenter, _ number: Int, _ operations: OperationQueue) {
        self.center = center
        self.number = number
        self.operations = operations
        random = SplitMix(state: UInt64(number) &+ 1)
    }

    mutating func step(_ round: Int) {
        let center = center
        let name = Notification.Name(Self.names.randomElement(using: &random)!)
        switch Int.random(in: 0..<12, using: &random) {
        case 0, 1: tokens.append(center.addObserver(forName: name, object: nil, queue: nil) { _ in })
        case 2: tokens.append(center.addObserver(forName: name, object: "o", queue: operations) { _ in })
        case 3:
            // Adds, removes and posts inside.
            tokens.append(
                center.addObserver(forName: name, object: nil, queue: nil) { _ in
                    let token = center.addObserver(forName: nil, object: "inside", queue: nil) { _ in }
                    center.post(name: .init("nobody"), object: "elsewhere")
                    center.removeObserver(token)
                })
        case 4: observations.append(center.observe(name) { _ in })
        case 5:
            let target = Target(center)
            center.addObserver(target, method: Target.received, name: name)
            targets.append(target)
        case 6:
            let notifications = center.notifications(named: name, bufferLimit: 4)
            readers.append(Task.detached { for await _ in notifications {} })
        case 7: if !tokens.isEmpty { center.removeObserver(tokens.remove(at: tokens.count / 2)) }
        case 8: if !targets.isEmpty { targets.removeFirst() }
        case 9: if !observations.isEmpty { observations.removeFirst() }
        case 10: center.suspended.toggle()
        default: if let reader = readers.popLast() { reader.cancel() }
        }
        center.postNotificationName(name, object: "o", userInfo: ["round": round, "data": Data(count: 100)])
        center.post(name: .init("kept"), object: "\(number) \(round)")
        if round % 50 == 49 { center.flush(timeout: 90) }
    }

    mutating func end() {
        for token in tokens { center.removeObserver(token) }
        for reader in readers { reader.cancel() }
        observations = []
        targets = []
    }
}

/// A target, of which half remove themselves as they end.
private final class Target: Sendable {
    private let center: DistributedNotificationCenter
    private let count = Atomic(0)

    init(_ center: DistributedNotificationCenter) {
        self.center = center
    }

    deinit {
        if count.load(ordering: .relaxed).isMultiple(of: 2) { center.removeObserver(self) }
    }

    func received(_ note: Notification) {
        count.add(1, ordering: .relaxed)
    }
}

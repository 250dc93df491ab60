// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Testing

/// A center that is a plain list: what the rules say, without an index and without weak references.
private final class ModelCenter {
    struct Entry {
        let id: Int
        let target: Int?
        let name: String?
        /// The number of a sender, which no other ever has.
        let sender: Int?
    }

    var entries: [Entry] = []

    func matching(_ name: String, _ sender: Int?) -> [Int] {
        entries.filter { ($0.name ?? name) == name && ($0.sender == nil || $0.sender == sender) }.map(\.id)
    }
}

/// What an observer does when it is called, and both centers with it.
private enum Reaction {
    case nothing
    case remove(Int)
    case add(String?)
    case post(String)
}

@Suite("C: random sequences against a plain model", .limited)
struct CenterModelTests {
    private final class Target: Sendable {
        let called: @Sendable (Int) -> Void
        let ids = Locked<[Int: Int]>([:])

        init(called: @escaping @Sendable (Int) -> Void) { self.called = called }

        func handle(_ notification: Notification) {
            // The model knows which registrations of the target matched; here only that one did.
            called(-1)
        }
    }

    /// Runs one sequence on both and compares each post.
    private final class Run {
        let center = NotificationCenter()
        let model = ModelCenter()
        let calls = Recorder<Int>()
        var expected: [Int] = []
        var generator: SplitMix
        var tokens: [Int: NotificationCenter.Token] = [:]
        var removedTokens: [NotificationCenter.Token] = []
        var targets: [Int: Target] = [:]
        var senders: [Int: Sender] = [:]
        var next = 0
        let names = ["A", "B", "C"]
        /// Reactions of observers, played by both; they are for one call.
        let reactions = Locked<[Int: [Int]]>([:])

        init(seed: UInt64) { generator = SplitMix(state: seed) }

        func number() -> Int {
            next += 1
            return next
        }

        func name() -> String? {
            Int.random(in: 0..<4, using: &generator) == 0 ? nil : names.randomElement(using: &generator)
        }
        func sender() -> Int? {
            if senders.isEmpty || Bool.random(using: &generator) { return nil }
            return senders.keys.sorted().randomElement(using: &generator)
        }

        func step() {
            switch Int.random(in: 0..<14, using: &generator) {
            case 0, 1, 2: addBlock(name(), sender())
            case 3:
                let id = number()
                targets[id] = Target { [calls] in calls.add($0) }
                register(id)
            case 4: if let id = targets.keys.sorted().randomElement(using: &generator) { register(id) }
            case 5:
                // Twice: the second removes nothing.
                guard let id = tokens.keys.sorted().randomElement(using: &generator) else { return }
                removedTokens.append(tokens[id]!)
                center.removeObserver(tokens.removeValue(forKey: id)!)
                model.entries.removeAll { $0.id == id }
            case 6: if let token = removedTokens.randomElement(using: &generator) { center.removeObserver(token) }
            case 7:
                guard let id = targets.keys.sorted().randomElement(using: &generator) else { return }
                let (name, sender) = (name(), sender())
                center.removeObserver(
                    targets[id]!, name: name.map { Notification.Name($0) }, object: sender.map { senders[$0]! })
                model.entries.removeAll {
                    $0.target == id && (name == nil || $0.name == name) && (sender == nil || $0.sender == sender)
                }
            case 8:
                guard let id = targets.keys.sorted().randomElement(using: &generator) else { return }
                targets[id] = nil
                model.entries.removeAll { $0.target == id }
            case 9: senders[number()] = Sender()
            case 10:
                // Its address may come again; its number does not.
                if let id = senders.keys.sorted().randomElement(using: &generator) { senders[id] = nil }
            default: post(names.randomElement(using: &generator)!, sender())
            }
        }

        func addBlock(_ name: String?, _ sender: Int?) {
            let id = number()
            model.entries.append(.init(id: id, target: nil, name: name, sender: sender))
            tokens[id] = center.addObserver(
                forName: name.map { Notification.Name($0) }, object: sender.map { senders[$0]! }, queue: nil
            ) { [calls] _ in calls.add(id) }
        }

        func register(_ target: Int) {
            let (name, sender) = (name(), sender())
            model.entries.append(.init(id: -1, target: target, name: name, sender: sender))
            center.addObserver(
                targets[target]!, method: Target.handle, name: name.map { Notification.Name($0) },
                object: sender.map { senders[$0]! })
        }

        func post(_ name: String, _ sender: Int?) {
            expected += model.matching(name, sender)
            center.post(name: Notification.Name(name), object: sender.map { senders[$0]! })
        }
    }

    @Test(
        "Random registrations, removals, ends of targets and senders, and posts agree with the model", arguments: 0..<60
    )
    func sequences(seed: Int) {
        let run = Run(seed: UInt64(seed))
        for step in 0..<400 {
            run.step()
            guard run.calls.all == run.expected else {
                Issue.record("seed \(seed), step \(step): \(run.calls.all.suffix(9)), not \(run.expected.suffix(9))")
                return
            }
        }
        #expect(run.expected.count > 100, "the sequence tests next to nothing")
    }

    // MARK: Observers that change the center

    @Test("Observers that remove, add and post while they are called agree with the model", arguments: 0..<60)
    func reactions(seed: Int) {
        let played = Played(seed: UInt64(seed))
        played.start()
        for _ in 0..<40 { played.post("A", depth: 0) }
        #expect(played.calls == played.modelCalls, "seed \(seed)")
        #expect(played.calls.count > 40)
    }

    /// The same observers with the same reactions in the center and in a model that calls them itself.
    private final class Played: @unchecked Sendable {
        // Sendable: everything happens on the thread of the test.
        let center = NotificationCenter()
        var calls: [Int] = []
        var modelCalls: [Int] = []
        private var tokens: [Int: NotificationCenter.Token] = [:]
        private var entries: [(id: Int, name: String?)] = []
        private var reactions: [Int: (Int, Reaction)] = [:]
        private var generator: SplitMix
        /// What was done for a call, in the center and then in the model, has to be the same.
        private var uses: [Int: Int] = [:]
        private var modelUses: [Int: Int] = [:]
        private var depth = 0
        private var nextInCenter = 1_000
        private var nextInModel = 1_000

        init(seed: UInt64) { generator = SplitMix(state: seed) }

        func start() {
            for id in 0..<12 {
                let name = [nil, "A", "B"].randomElement(using: &generator)!
                let reaction: Reaction =
                    switch Int.random(in: 0..<5, using: &generator) {
                    case 0: .remove(Int.random(in: 0..<12, using: &generator))
                    case 1: .add([nil, "A", "B"].randomElement(using: &generator)!)
                    case 2: .post(["A", "B"].randomElement(using: &generator)!)
                    default: .nothing
                    }
                // In which of its calls it does so.
                reactions[id] = (Int.random(in: 1..<6, using: &generator), reaction)
                add(id, name)
                entries.append((id, name))
            }
        }

        private func add(_ id: Int, _ name: String?) {
            tokens[id] = center.addObserver(forName: name.map { Notification.Name($0) }, object: nil, queue: nil) {
                [unowned self] _ in called(id)
            }
        }

        func post(_ name: String, depth: Int) {
            center.post(name: Notification.Name(name), object: nil)
            postInModel(name)
        }

        private func called(_ id: Int) {
            calls.append(id)
            uses[id, default: 0] += 1
            guard let (use, reaction) = reactions[id], use == uses[id] else { return }
            switch reaction {
            case .nothing: break
            case .remove(let other): if let token = tokens[other] { center.removeObserver(token) }
            case .add(let name):
                add(nextInCenter, name)
                nextInCenter += 1
            case .post(let name): center.post(name: Notification.Name(name), object: nil)
            }
        }

        private func postInModel(_ name: String) {
            for entry in entries where (entry.name ?? name) == name {
                // Removed since the post began.
                guard entries.contains(where: { $0.id == entry.id }) else { continue }
                modelCalls.append(entry.id)
                modelUses[entry.id, default: 0] += 1
                guard let (use, reaction) = reactions[entry.id], use == modelUses[entry.id] else { continue }
                switch reaction {
                case .nothing: break
                case .remove(let other): entries.removeAll { $0.id == other }
                case .add(let name):
                    entries.append((nextInModel, name))
                    nextInModel += 1
                case .post(let name): postInModel(name)
                }
            }
        }
    }
}

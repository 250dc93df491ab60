// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@testable import CarillonClient

/// What waits counts as it is, and leaves as it has to, whatever was taken out, put back or given up before: at random,
/// against a list that counts anew each time.
@Suite("E1, F1: comparison of the outbox with a simple model", .limited)
struct OutboxModelTests {
    /// The same on every machine.
    private struct Random: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var value = state
            value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
            value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
            return value ^ (value >> 31)
        }
    }

    private struct Entry {
        let number: Int
        let kind: Outbox<Int>.Kind
        let byteCount: Int
    }

    private struct Model {
        let limits: Outbox<Int>.Limits
        var waiting: [Entry] = []
        var onTheWay = 0
        var urgentHead = 0

        var posts: Int { waiting.count(where: \.kind.isPost) }
        var bytes: Int { waiting.reduce(0) { $0 + $1.byteCount } }

        func hasRoom(_ byteCount: Int) -> Bool { posts < limits.count && bytes + byteCount <= limits.byteCount }

        /// Whether posts that go together wait for others: few are on their way otherwise.
        var accumulates: Bool {
            onTheWay >= 8 && urgentHead == 0 && waiting.allSatisfy(\.kind.mayBatch) && posts < 64 && bytes < 64 << 10
        }

        mutating func take(_ count: Int) {
            waiting.removeFirst(count)
            urgentHead = max(0, urgentHead - count)
        }

        /// As many posts as go together, of those that stand first.
        func together(most: Int, window: Int) -> Int {
            var (count, sum) = (0, 0)
            for entry in waiting {
                guard entry.kind.isPost, count < most, onTheWay + count < window,
                    count == 0 || sum + entry.byteCount <= 64 << 10
                else { break }
                sum += entry.byteCount
                count += 1
            }
            return count
        }
    }

    @Test(
        "E1, F1: the outbox has the model's free space, order, windows and batches in random sequences",
        arguments: 1...60 as ClosedRange<UInt64>)
    func random(seed: UInt64) {
        var generator = Random(state: seed)
        func number(_ range: ClosedRange<Int>) -> Int { .random(in: range, using: &generator) }
        let limits = Outbox<Int>.Limits(count: number(10...200), byteCount: number(10_000...400_000))
        var (outbox, model) = (Outbox<Int>(limits: limits), Model(limits: limits))
        var (last, taken) = (0, [Entry]())
        for step in 1...400 {
            switch number(0...21) {
            case 0...8:
                let byteCount = number(0...5) == 0 ? number(0...70_000) : number(0...300)
                // Posts that nobody waits for are all there is in half of the seeds: only those pile up.
                let kinds: [Outbox<Int>.Kind] =
                    seed % 2 == 0
                    ? [.post(wantsAnswer: false)]
                    : [
                        .post(wantsAnswer: false), .post(wantsAnswer: false), .post(wantsAnswer: true), .registration,
                        .other, .barrier,
                    ]
                let kind = kinds[number(0...kinds.count - 1)]
                guard !kind.isPost || outbox.hasRoom(byteCount: byteCount) else { break }
                last += 1
                let entry = Entry(number: last, kind: kind, byteCount: kind.isPost ? byteCount : 0)
                outbox.append(entry.number, entry.kind, byteCount: entry.byteCount)
                model.waiting.append(entry)
            case 9...11:
                let posting: Outbox<Int>.Posting = [.oneByOne, .together, .not][number(0...2)]
                var count = 0
                if let first = model.waiting.first {
                    switch first.kind {
                    case .other, .barrier: count = 1
                    case .registration: count = model.onTheWay < 256 ? 1 : 0
                    case .post:
                        if posting == .oneByOne { count = model.onTheWay < 256 ? 1 : 0 }
                        if posting == .together, !model.accumulates { count = model.together(most: 64, window: 256) }
                    }
                }
                let next = outbox.next(posting)
                #expect(next?.requests ?? [] == model.waiting.prefix(count).map(\.number), "seed \(seed), step \(step)")
                switch model.waiting.first?.kind {
                case .other?, .barrier?, nil: break
                case .post?, .registration?: model.onTheWay += count
                }
                taken += model.waiting.prefix(count)
                model.take(count)
            case 12, 13:
                let count = model.together(most: 256, window: 1024)
                #expect(
                    outbox.nextPosts() == model.waiting.prefix(count).map(\.number), "seed \(seed), step \(step)")
                model.onTheWay += count
                taken = Array(model.waiting.prefix(count))
                model.take(count)
            case 14, 15:
                // What was taken last and was not sent.
                let posts = taken.suffix(number(0...max(1, taken.count))).filter(\.kind.isPost)
                outbox.confirmed(posts.count)
                model.onTheWay = max(0, model.onTheWay - posts.count)
                outbox.putBack(posts.map { ($0.number, $0.kind.isAnswered, $0.byteCount) })
                if model.urgentHead > 0 { model.urgentHead += posts.count }
                model.waiting.insert(contentsOf: posts, at: 0)
                taken = []
            case 16:
                let count = number(0...80)
                outbox.confirmed(count)
                model.onTheWay = max(0, model.onTheWay - count)
            case 17, 20, 21:
                outbox.flushBatch()
                model.urgentHead = model.waiting.count
            case 18:
                guard number(0...3) == 0 else { break }
                let count = number(0...5)
                outbox.reset(keeping: count)
                model.onTheWay = count
            default:
                guard number(0...5) == 0 else { break }
                #expect(outbox.removeAll() == model.waiting.map(\.number), "seed \(seed), step \(step)")
                (model.waiting, model.urgentHead, taken) = ([], 0, [])
            }
            let left = limits.byteCount - model.bytes
            let sizes = [0, 1, left - 1, left, left + 1, left + 100_000].filter { $0 >= 0 }
            let isRight =
                sizes.allSatisfy { outbox.hasRoom(byteCount: $0) == model.hasRoom($0) }
                && outbox.isEmpty == model.waiting.isEmpty && outbox.isPostNext == model.waiting.first?.kind.isPost
                && outbox.count { _ in true } == model.waiting.count
            guard isRight else {
                Issue.record("seed \(seed), step \(step): what waits is not counted as it is")
                return
            }
        }
    }
}

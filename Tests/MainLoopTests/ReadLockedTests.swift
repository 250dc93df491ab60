// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Synchronization
import Testing

@Suite("A lock with shared readers", .limited)
struct ReadLockedTests {
    /// What the threads of a test share.
    private final class Shared: Sendable {
        let value = ReadLocked((left: 0, right: 0))
        let torn = Atomic(0)
        let inside = Atomic(0)
        let most = Atomic(0)
    }

    /// Runs `body` on so many threads of their own, until all have ended.
    private func onThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) async throws {
        try await onOwnThread {
            let group = DispatchGroup()
            for number in 0..<count {
                group.enter()
                Thread {
                    body(number)
                    group.leave()
                }.start()
            }
            try group.wait(for: "\(count) threads")
        }
    }

    @Test("Readers never see a partial change, and no change is lost")
    func exclusive() async throws {
        let shared = Shared()
        try await onThreads(6) { thread in
            for step in 0..<20_000 {
                if step.isMultiple(of: thread < 3 ? 50 : 2) {
                    shared.value.withLock {
                        $0.left += 1
                        $0.right += 1
                    }
                } else if !shared.value.read({ $0.left == $0.right }) {
                    shared.torn.add(1, ordering: .relaxed)
                }
            }
        }
        let (torn, left) = (shared.torn.load(ordering: .relaxed), shared.value.read { $0.left })
        #expect(torn == 0 && left == 31_200)
    }

    @Test("Several readers hold the lock at once")
    func together() async throws {
        let shared = Shared()
        // Several, as two may have the same of the few locks.
        try await onThreads(8) { _ in
            var wait = Wait(.event)
            while shared.most.load(ordering: .relaxed) < 2, wait.end() == nil {
                shared.value.read { _ in
                    let now = shared.inside.add(1, ordering: .relaxed).newValue
                    shared.most.max(now, ordering: .relaxed)
                    letPass(.milliseconds(1), because: "others are to come meanwhile")
                    shared.inside.subtract(1, ordering: .relaxed)
                }
            }
        }
        let most = shared.most.load(ordering: .relaxed)
        #expect(most >= 2)
    }
}

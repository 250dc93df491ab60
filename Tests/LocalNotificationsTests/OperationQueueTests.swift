// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Synchronization
import Testing

// Serialized: libdispatch has as many threads as the machine has processors, and adds one a second while they wait.
@Suite("C4: delivery on operation queues", .limited, .serialized)
struct OperationQueueTests {
    private let center = NotificationCenter()
    private let calls = Recorder<String>()

    private func serialQueue() -> OperationQueue {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 1
        return queue
    }

    /// Names where it is called.
    private func note(_ label: String, on queue: OperationQueue) {
        calls.add(OperationQueue.current === queue ? label : "\(label) elsewhere")
    }

    @Test("C4: the post returns after the block ran on its queue, in the order of registration")
    func waits() async throws {
        let queue = serialQueue()
        center.addObserver(forName: .a, object: nil, queue: nil) { [calls] _ in calls.add("first") }
        center.addObserver(forName: .a, object: nil, queue: queue) { [self] _ in note("second", on: queue) }
        center.addObserver(forName: .a, object: nil, queue: nil) { [calls] _ in calls.add("third") }
        try await onOwnThread { [center] in center.post(name: .a, object: nil) }
        #expect(calls.all == ["first", "second", "third"])
    }

    @Test("C4: a post waits for its own operation, not for other work in the queue")
    func ownOperation() async throws {
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 2
        let doorbell = Doorbell()
        queue.addOperation { try? doorbell.wait("the end of the post") }
        center.addObserver(forName: .a, object: nil, queue: queue) { [calls] _ in calls.add("A") }
        try await onOwnThread { [center] in center.post(name: .a, object: nil) }
        #expect(calls.all == ["A"])
        doorbell.ring()
        try await onOwnThread { queue.waitUntilAllOperationsAreFinished() }
    }

    @Test("C4: a post from the queue itself runs the block at once")
    func sameQueue() async throws {
        let queue = serialQueue()
        center.addObserver(forName: .a, object: nil, queue: queue) { [self] _ in note("A", on: queue) }
        try await onOwnThread { [self] in
            queue.addOperation { [self] in
                center.post(name: .a, object: nil)
                calls.add("returned")
            }
            queue.waitUntilAllOperationsAreFinished()
        }
        #expect(calls.all == ["A", "returned"])
    }

    @Test("C4: a chain of posts q→q2→q does not deadlock")
    func thereAndBack() async throws {
        let (queue, other) = (serialQueue(), serialQueue())
        center.addObserver(forName: .a, object: nil, queue: other) { [self] _ in
            note("there", on: other)
            center.post(name: .b, object: nil)
        }
        // By the thread of the queue, which waits.
        center.addObserver(forName: .b, object: nil, queue: queue) { [self] _ in note("back", on: queue) }
        try await onOwnThread { [self] in
            queue.addOperation { [self] in
                center.post(name: .a, object: nil)
                calls.add("returned")
            }
            queue.waitUntilAllOperationsAreFinished()
        }
        #expect(calls.all == ["there", "back", "returned"])
    }

    @Test("C4: a chain through four queues and back to the first completes, if a thread without a queue begins it")
    func longChain() async throws {
        let queues = (0..<4).map { _ in serialQueue() }
        for (number, queue) in queues.enumerated() {
            center.addObserver(forName: Notification.Name("\(number)"), object: nil, queue: queue) { [self] _ in
                note("\(number)", on: queue)
                center.post(name: Notification.Name("\(number + 1)"), object: nil)
            }
        }
        // Back to the first, from the last.
        center.addObserver(forName: Notification.Name("4"), object: nil, queue: queues[0]) { [self] _ in
            note("4", on: queues[0])
        }
        try await onOwnThread { [center] in center.post(name: Notification.Name("0"), object: nil) }
        #expect(calls.all == ["0", "1", "2", "3", "4"])
    }

    @Test("C4: two serial queues that post to each other at the same moment do not block each other")
    func crossing() async throws {
        let (left, right) = (serialQueue(), serialQueue())
        let toLeft = Notification.Name("to the left")
        let toRight = Notification.Name("to the right")
        let count = Atomic(0)
        center.addObserver(forName: toLeft, object: nil, queue: left) { _ in count.add(1, ordering: .relaxed) }
        center.addObserver(forName: toRight, object: nil, queue: right) { _ in count.add(1, ordering: .relaxed) }
        let rounds = 300
        try await onOwnThread { [center] in
            for _ in 0..<rounds {
                let (here, there) = (Doorbell(), Doorbell())
                left.addOperation {
                    there.ring()
                    try? here.wait()
                    center.post(name: toRight, object: nil)
                }
                right.addOperation {
                    here.ring()
                    try? there.wait()
                    center.post(name: toLeft, object: nil)
                }
                left.waitUntilAllOperationsAreFinished()
                right.waitUntilAllOperationsAreFinished()
            }
        }
        #expect(count.load(ordering: .relaxed) == 2 * rounds)
    }

    @Test("C4: a chain back through a concurrent queue ends on a thread of the serial queue")
    func throughConcurrentQueue() async throws {
        let (queue, wide) = (serialQueue(), OperationQueue())
        center.addObserver(forName: .a, object: nil, queue: wide) { [self] _ in
            note("there", on: wide)
            center.post(name: .b, object: nil)
        }
        center.addObserver(forName: .b, object: nil, queue: queue) { [self] _ in note("back", on: queue) }
        try await onOwnThread { [self] in
            queue.addOperation { [self] in center.post(name: .a, object: nil) }
            queue.waitUntilAllOperationsAreFinished()
        }
        #expect(calls.all == ["there", "back"])
    }

    @Test("C4: five queues that post to the next in a ring at once all run their blocks on their own queues")
    func ring() async throws {
        let queues = (0..<5).map { _ in serialQueue() }
        for (number, queue) in queues.enumerated() {
            center.addObserver(forName: Notification.Name("to \(number)"), object: nil, queue: queue) { [self] _ in
                note("x", on: queue)
            }
        }
        let rounds = 60
        try await onOwnThread { [center] in
            for _ in 0..<rounds {
                let gates = queues.map { _ in Doorbell() }
                let arrived = queues.map { _ in Doorbell() }
                for (number, queue) in queues.enumerated() {
                    queue.addOperation {
                        arrived[number].ring()
                        try? gates[number].wait("all queues")
                        center.post(name: Notification.Name("to \((number + 1) % 5)"), object: nil)
                    }
                }
                for bell in arrived { try bell.wait("an operation") }
                for gate in gates { gate.ring() }
                for queue in queues { queue.waitUntilAllOperationsAreFinished() }
            }
        }
        #expect(calls.all == Array(repeating: "x", count: 5 * rounds))
    }

    @Test("C4: random chains of posts between queues of several widths are complete, and each block runs on its queue")
    func randomChains() async throws {
        let queues = (0..<4).map { number in
            let queue = OperationQueue()
            queue.maxConcurrentOperationCount = number < 2 ? 1 : number
            return queue
        }
        let names = (0..<4).map { Notification.Name("\($0)") }
        for (number, queue) in queues.enumerated() {
            center.addObserver(forName: names[number], object: nil, queue: queue) { [self] notification in
                note("x", on: queue)
                let path = notification.userInfo!["path"] as! [Int]
                guard let next = path.first else { return }
                center.post(name: names[next], object: nil, userInfo: ["path": Array(path.dropFirst())])
            }
        }
        let count = 25
        try await withThrowingTaskGroup(of: Void.self) { group in
            for seed in 0..<4 {
                group.addTask { [center] in
                    try await onOwnThread {
                        var generator = SplitMix(state: UInt64(seed))
                        for _ in 0..<count {
                            let path = (0..<4).map { _ in Int.random(in: 0..<4, using: &generator) }
                            queues[path[0]].addOperation {
                                center.post(name: names[path[1]], object: nil, userInfo: ["path": Array(path[2...])])
                            }
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        try await onOwnThread { for queue in queues { queue.waitUntilAllOperationsAreFinished() } }
        #expect(calls.all == Array(repeating: "x", count: 3 * 4 * count))
    }

    @Test("C4: a center retains the operation queue of an observer, so the delivery is not lost")
    func heldQueue() async throws {
        weak var observed: OperationQueue?
        do {
            let queue = serialQueue()
            observed = queue
            center.addObserver(forName: .a, object: nil, queue: queue) { [calls] _ in calls.add("A") }
        }
        #expect(observed != nil)
        try await onOwnThread { [center] in center.post(name: .a, object: nil) }
        #expect(calls.all == ["A"])
    }

    @Test(
        "C4, C8: a block removed while its operation waits is not called; cancelled operations block no post")
    func removedWhileWaiting() async throws {
        let queue = serialQueue()
        /// Keeps the queue busy until the semaphore is signalled.
        @Sendable func occupy() -> DispatchSemaphore {
            let end = DispatchSemaphore(value: 0)
            queue.addOperation { end.wait() }
            return end
        }
        let token: NotificationCenter.Token = center.addObserver(forName: .a, object: nil, queue: queue) { [calls] _ in
            calls.add("A")
        }
        try await onOwnThread { [center] in
            let blocker = occupy()
            let hasReturned = Doorbell()
            Thread {
                center.post(name: .a, object: nil)
                hasReturned.ring()
            }.start()
            defer { blocker.signal() }
            try eventually("the operation") { queue.operationCount == 2 }
            center.removeObserver(token)
            blocker.signal()
            try hasReturned.wait("the end of the post")
        }
        #expect(calls.all == [])

        center.addObserver(forName: .b, object: nil, queue: queue) { [calls] _ in calls.add("B") }
        try await onOwnThread { [center] in
            queue.waitUntilAllOperationsAreFinished()
            let blocker = occupy()
            let hasReturned = Doorbell()
            Thread {
                center.post(name: .b, object: nil)
                hasReturned.ring()
            }.start()
            defer { blocker.signal() }
            try eventually("the operation") { queue.operationCount == 2 }
            queue.cancelAllOperations()
            // Also while the queue is busy with something else.
            try hasReturned.wait("the end of the post")
        }
        #expect(calls.all == [])
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import Carillon

@Suite("E10, B13: tasks that wait for the service", .limited)
struct PendingAnswerTests {
    private struct Level: Codable, Hashable, Sendable {
        var percent: Int
    }

    private let name = Notification.Name("a")

    private func expectCancelled(_ work: @escaping @Sendable () async throws -> Void) async {
        let task = Task { try await work() }
        // Whether it waits already does not matter.
        await Task.yield()
        task.cancel()
        await #expect(throws: DistributedNotificationError.cancelled) { try await task.value }
    }

    @Test("A cancelled task stops waiting at once, even if the service is stopped")
    func cancelled() async throws {
        let desk = try Desk()
        let center = desk.center()
        let value = DistributedValue<Level>(named: name, object: "o", center: center)
        let values = DistributedValues<Level>(named: name, center: center)
        try center.settle()
        try ProcessState.stop(desk.service.pid)
        defer { desk.service.signal(SIGCONT) }
        await expectCancelled { [name] in try await center.postAndWait(named: name) }
        await expectCancelled { [name] in _ = try await center.value(named: name) }
        let posted = center.statistics.posted
        let setting = Task { try await value.set(Level(percent: 1)) }
        // In a task that is cancelled before that nothing is posted.
        try await eventuallyInTask("it is on its way") { center.statistics.posted > posted }
        setting.cancel()
        await #expect(throws: DistributedNotificationError.cancelled) { try await setting.value }
        await expectCancelled { try await value.refresh() }
        await expectCancelled { try await values.refresh() }
        let flush = Task { await center.flush() }
        flush.cancel()
        #expect(await !flush.value)
        #expect(await !center.flush(within: .milliseconds(20)))
        desk.service.signal(SIGCONT)
        #expect(await center.flush(within: .seconds(60)))
        try eventually("what was set is so") { value.value?.percent == 1 }
        #expect(try await values.refresh() == ["o": Level(percent: 1)], "a later one finds it")
    }

    @Test("A task that is already cancelled does not post")
    func cancelledBefore() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", tag: "a")
        let task = Task { [name] in
            while !Task.isCancelled { await Task.yield() }
            try await poster.postAndWait(named: name)
        }
        task.cancel()
        await #expect(throws: DistributedNotificationError.cancelled) { try await task.value }
        #expect(try ear.everything(from: poster).isEmpty)
        #expect(poster.statistics.posted == 1, "the one that everything() ends with")
    }

    /// It compiles: userInfo stays with the caller.
    @Test("A userInfo of the main actor can be posted with a call that waits")
    @MainActor
    func isolation() async throws {
        final class Window {
            var state: [AnyHashable: Any] = ["title": "a", "size": [1, 2]]
        }
        let desk = try Desk()
        let center = desk.center()
        let window = Window()
        #expect(try await center.postAndWait(named: name, userInfo: window.state) == 0)
        let state = window.state
        try await center.postAndWait(named: name, userInfo: state, retention: .untilReplaced)
        #expect(try await center.value(named: name)?.notification.userInfo?["title"] as? String == "a")
        #expect(state.count == 2)
    }
}

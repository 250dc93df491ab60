// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// Observers that only look on. The model has them among all others; this says what that means.
@Suite("B3: monitors", .limited)
struct MonitorTests {
    /// A center, and who is registered in it by hand.
    private final class Stage {
        let center: DistributedCenter
        var effects: [Effect] = []

        init(_ limits: [Limits.Key: UInt64] = [:]) {
            center = DistributedCenter()
            for (key, value) in limits { center.limits[key] = value }
        }

        @discardableResult
        func observe(
            _ client: ClientName, _ name: String = "", _ options: ObserverOptions = ObserverOptions()
        ) throws -> ObserverID {
            try center.addObserver(of: client, name: name, object: "", options: options, effects: &effects)
        }

        @discardableResult
        func monitor(_ client: ClientName, _ name: String = "", mode: RunLoopMode = .default) throws -> ObserverID {
            try observe(client, name, ObserverOptions(runLoopMode: mode, isMonitor: true))
        }

        func post(_ name: String, immediately: Bool = false) throws -> Receipt {
            var options = PostOptions()
            options.deliverImmediately = immediately
            return try center.post(
                name: name, object: "", userInfo: Scenario.Payload(byteCount: 0, tag: 0), options: options,
                from: ":1.0", effects: &effects)
        }

        /// Sends what is ready, and answers all probes.
        func settle() {
            center.sendAllReady(effects: &effects)
            for effect in effects {
                if case .probe(let client) = effect { center.clientAnswered(client, effects: &effects) }
            }
            center.sendAllReady(effects: &effects)
        }

        func received(_ client: ClientName) -> [(name: String, observers: [ObserverID])] {
            effects.compactMap { effect in
                guard case .deliver(let delivery) = effect, delivery.client == client else { return nil }
                return (delivery.notification.name, delivery.observers.ids)
            }
        }
    }

    @Test("A monitor receives every matching post, also unmatched ones, and does not count as a receiver")
    func seesAll() throws {
        let stage = Stage()
        try stage.observe(one, "A")
        try stage.monitor(two)
        #expect(try stage.post("A").receivers == 1)
        #expect(try stage.post("B").receivers == 0)
        #expect(stage.center.statistics.unmatched == 1 && stage.center.statistics.posted == 2)
        stage.settle()
        #expect(stage.received(one).map(\.name) == ["A"])
        #expect(stage.received(two).map(\.name) == ["A", "B"])
    }

    @Test("A client with a monitor and an observer counts as one receiver and gets one notification for both")
    func both() throws {
        let stage = Stage()
        let (monitor, observer) = (try stage.monitor(one), try stage.observe(one, "A"))
        #expect(try stage.post("A").receivers == 1)
        #expect(try stage.post("B").receivers == 0)
        stage.settle()
        #expect(stage.received(one).map(\.observers) == [[monitor, observer], [monitor]])
    }

    @Test("A poster does not wait for deliveries to monitors")
    func turns() throws {
        let stage = Stage()
        try stage.monitor(one)
        #expect(try stage.post("A").mark == nil)
        try stage.observe(two, "A", ObserverOptions(runLoopMode: .eventTracking))
        let mark = try #require(try stage.post("A").mark)
        #expect(mark.lane == .eventTracking)
        try stage.monitor(two)
        #expect(try stage.post("B").mark == nil)
        stage.settle()
        #expect(stage.received(one).count == 3)
    }

    @Test("S3: a monitor is never suspended, and its deliveries include the held observers of its suspended client")
    func suspended() throws {
        let stage = Stage()
        try stage.monitor(one)
        let held = try stage.observe(one, "A", ObserverOptions(suspensionBehavior: .hold))
        try stage.observe(one, "A", ObserverOptions(suspensionBehavior: .drop))
        try stage.center.setSuspended(true, of: one, effects: &stage.effects)
        _ = try stage.post("B")
        _ = try stage.post("A")
        stage.settle()
        #expect(stage.received(one).map(\.name) == ["B", "A"])
        #expect(stage.received(one).last?.observers.contains(held) == true, "as with one that wants it at once")
        #expect(stage.center.waiting(for: one) == 0)
    }

    @Test("A4, E4: a slow monitor causes no backpressure, and notifications beyond its queue limit are lost")
    func slow() throws {
        let stage = Stage([.queuedPerClient: 100])
        try stage.observe(two, "A")
        let monitor = try stage.monitor(one)
        stage.settle()
        var dropped: UInt64 = 0
        func post(_ count: Int) throws {
            for _ in 0..<count {
                _ = try stage.post("A")
                stage.center.sendAllReady(effects: &stage.effects)
                for effect in stage.effects {
                    if case .probe(two) = effect { stage.center.clientAnswered(two, effects: &stage.effects) }
                    if case .dropped(one, let count, _, _, _) = effect { dropped += count }
                    if case .deliver = effect { continue }
                }
                let last = stage.effects.count
                #expect(last < 1000)
                stage.effects = []
                #expect(!stage.center.isUnderBackpressure)
            }
        }
        try post(128 + 300)
        let status = try #require(stage.center.clientStatuses.first { $0.name == one })
        #expect(status.queued <= 100 && status.dropped > 0 && status.flow != .open)
        #expect(stage.center.clientStatuses.first { $0.name == two }?.delivered == 428)
        // Without the monitor it is a client like others.
        try stage.observe(one, "A")
        try stage.center.removeObserver(monitor, of: one, effects: &stage.effects)
        stage.effects = []
        for _ in 0..<60 { _ = try stage.post("A") }
        #expect(stage.center.isUnderBackpressure)
        try stage.center.checkInvariants()
    }

    @Test("S4: lost posts are reported to a monitor, and count as unmatched if only monitors match")
    func lost() throws {
        let stage = Stage()
        try stage.monitor(one)
        stage.settle()
        stage.effects = []
        let reach = try #require(stage.center.reach(ofPost: "A", object: "", deliverImmediately: false))
        var lost = [LostPost(3, reaching: reach, from: ":1.0")]
        stage.center.losePosts(&lost, effects: &stage.effects)
        #expect(stage.center.statistics.unmatched == 3)
        #expect(stage.effects.contains { if case .dropped(one, 3, _, .overload, _) = $0 { true } else { false } })
    }

    @Test("E3: the monitor option and the run-loop mode of an observer survive a restart")
    func survives() throws {
        let stage = Stage()
        stage.center.remembersChanges = true
        try stage.monitor(one, "A", mode: .modalPanel)
        let after = DistributedCenter()
        stage.center.forEachRememberedChange { #expect(after.restore($0)) }
        let options = after.registrations(of: one)?.map(\.options)
        #expect(options == [ObserverOptions(runLoopMode: .modalPanel, isMonitor: true)])
        try after.checkInvariants()
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("R1: requests for retained values of newly wanted names", .limited)
struct ValueFetchTests {
    private final class Lab: BrokerStage {
        private(set) var fetch: ValueFetch!
        var wanted: Set<String> = []
        private(set) var received: Set<String> = []
        private(set) var ends = 0

        static let canary = "carillon/1/home/own/u/online"

        override init() throws {
            try super.init()
            link.canary = (Self.canary, "carillon/1/home/own/+/online")
            broker.retained[Self.canary] = Publication(topic: Self.canary, payload: [1], isRetained: true)
            fetch = ValueFetch(
                broker: link, context: context, wanted: { [unowned self] in wanted },
                byHost: { [unowned self] filter in
                    hosts.compactMap { BridgeTopic.filter(filter, of: Origin(host: $0, user: "u")!, in: "home") }
                }, done: { [unowned self] in ends += 1 })
            link.connect()
        }

        /// Those that are there.
        var hosts: [String] = []

        /// Wants a name, of which the broker has so many values.
        func want(_ name: String, values count: Int, of host: String = "lap") -> String {
            for number in 0..<count {
                let topic = "carillon/1/home/\(host)/u/v/\(name)/\(number)"
                broker.retained[topic] = Publication(topic: topic, payload: [1], isRetained: true)
            }
            let filter = "carillon/1/home/+/+/v/\(name)/+"
            wanted.insert(filter)
            return filter
        }

        override func brokerConnected(sessionPresent: Bool) { if link.isRenewed { fetch.connected() } }
        override func brokerDisconnected(because error: MQTTError?) { fetch.connectionEnded() }
        override func brokerSent(_ publication: Publication) {
            if publication.topic != Self.canary, received.insert(publication.topic).inserted { fetch.noteProgress() }
        }
    }

    @Test("All values arrive with one request, and no subscription is left")
    func all() throws {
        let lab = try Lab()
        lab.fetch.fetch([lab.want("A", values: 100), lab.want("B", values: 100)])
        lab.pass(seconds: 1)
        #expect(lab.received.count == 200 && lab.ends == 0)
        lab.pass(seconds: 100)
        #expect(lab.ends == 1 && lab.fetch.isDone && lab.broker.filters.isEmpty && !lab.clock.isAwaited)
    }

    @Test("Values beyond the capacity of the broker's queue are fetched in parts")
    func parts() throws {
        let lab = try Lab()
        lab.broker.room = 500
        let filters = (0..<100).map { lab.want("N\($0)", values: 10) }
        lab.fetch.fetch(Set(filters))
        lab.pass(seconds: 1)
        #expect(lab.received.count < 1_000)
        lab.pass(seconds: 10)
        let asked = lab.broker.asked.map(\.count)
        #expect(asked == [33, 33, 33, 5, 33, 33, 33, 5], "all together, as long as more comes each time")
        lab.pass(seconds: 240)
        #expect(lab.received.count == 1_000 && lab.fetch.isDone && lab.broker.filters.isEmpty && !lab.clock.isAwaited)
    }

    @Test("A broker that never shows all values is queried at growing intervals, and again after a reconnection")
    func never() throws {
        let lab = try Lab()
        lab.broker.room = 50
        lab.fetch.fetch([lab.want("A", values: 100)])
        lab.pass(seconds: 4_000)
        #expect((5...12).contains(lab.broker.asked.count) && !lab.fetch.isDone)
        lab.broker.end()
        lab.broker.room = .max
        lab.link.connect()
        lab.fetch.fetchBehindQueue(lab.wanted)
        lab.pass(seconds: 9)
        #expect(lab.received.count < 100)
        lab.pass(seconds: 10)
        #expect(lab.received.count == 100 && lab.fetch.isDone)
    }

    @Test("A name with more values than the broker's queue can hold does not block other names")
    func greedy() throws {
        let lab = try Lab()
        lab.broker.room = 50
        var filters: Set = [lab.want("A", values: 100), lab.want("Z", values: 100)]
        for number in 0..<40 { filters.insert(lab.want("N\(number)", values: 1)) }
        lab.fetch.fetch(filters)
        lab.pass(seconds: 4_000)
        #expect((0..<40).allSatisfy { lab.received.contains("carillon/1/home/lap/u/v/N\($0)/0") })
        #expect(!lab.fetch.isDone && lab.broker.asked.count < 120, "\(lab.broker.asked.count)")
    }

    @Test("A name whose values exceed the broker's queue over all hosts is requested host by host")
    func manyHosts() throws {
        let lab = try Lab()
        lab.broker.room = 500
        lab.hosts = (0..<50).map { "desk\($0)" }
        var filters: Set = [lab.want("Few", values: 1)]
        for host in lab.hosts { filters.insert(lab.want("A", values: 40, of: host)) }
        #expect(filters.count == 2)
        lab.fetch.fetch(filters)
        lab.pass(seconds: 120)
        #expect(lab.received.count == 2_001 && lab.fetch.isDone && lab.ends > 0, "\(lab.received.count)")
        lab.pass(seconds: 100)
        #expect(lab.broker.asked.count < 40 && lab.broker.filters.isEmpty && !lab.clock.isAwaited)
        #expect((2...10).contains(lab.broker.connections), "what it has dropped of other messages comes as well")
        // One of them that has more than there is room for holds up no other.
        _ = lab.want("B", values: 600, of: "desk7")
        for host in lab.hosts where host != "desk7" { _ = lab.want("B", values: 40, of: host) }
        lab.fetch.fetch([lab.want("B", values: 0)])
        lab.pass(seconds: 600)
        #expect(lab.received.filter { $0.contains("/B/") && !$0.contains("/desk7/") }.count == 49 * 40)
        #expect(!lab.fetch.isDone)
        lab.wanted = []
        lab.pass(seconds: 4_000)
        #expect(lab.fetch.isDone && !lab.clock.isAwaited)
    }

    @Test("A broker that refuses the query sends the values with the subscription")
    func refused() throws {
        let lab = try Lab()
        lab.broker.refuses = { $0.hasPrefix("carillon/+") }
        lab.fetch.fetch([lab.want("A", values: 100)])
        lab.pass(seconds: 10)
        #expect(lab.received.count == 100 && lab.fetch.isDone)
        #expect(lab.broker.filters.keys.sorted() == ["carillon/1/home/+/+/v/A/+"])
    }

    @Test("A repeated request during a query shows new values at once")
    func again() throws {
        let lab = try Lab()
        let filter = lab.want("A", values: 1)
        lab.fetch.fetch([filter])
        lab.pass(seconds: 1)
        let topic = "carillon/1/home/lap/u/v/A/new"
        lab.broker.retained[topic] = Publication(topic: topic, payload: [1], isRetained: true)
        lab.fetch.fetch([filter])
        lab.pass(seconds: 1)
        #expect(lab.received.contains(topic))
        lab.pass(seconds: 100)
        #expect(lab.fetch.isDone && lab.broker.filters.isEmpty && !lab.clock.isAwaited)
    }

    @Test("Values of a name that is no longer wanted are not requested again")
    func unwanted() throws {
        let lab = try Lab()
        lab.broker.room = 50
        lab.fetch.fetch([lab.want("A", values: 100)])
        lab.pass(seconds: 3)
        lab.wanted = []
        lab.pass(seconds: 100)
        #expect(lab.fetch.isDone && lab.broker.asked.count == 1 && !lab.clock.isAwaited)
    }
}

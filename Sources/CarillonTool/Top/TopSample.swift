// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The state of the service at one moment, as ``TopPoll`` collects it.
struct TopSample: Sendable {
    /// The time of the sample on a monotonic clock, in seconds.
    let moment: Double
    /// The wall-clock time of the sample, in microseconds since 1970 in UTC.
    let time: Int64
    /// The process of the service; nil if the bus does not report it, or the kernel hides it.
    let process: ProcessFacts?
    let properties: CenterProperties
    /// The clients, followed by programs that only post.
    let clients: [ListedClient]
    /// The retained values; nil if they were not requested, and an error if the service did not list them.
    let values: Result<[RetainedValueInfo], ValuesError>?
    /// The last status of the bridge to other machines; an error if it does not answer, and nil if there is none.
    let bridge: Result<BridgeSample, BusError>?

    /// The service's refusal to list the retained values.
    struct ValuesError: Error {
        let reason: String
    }
}

/// The rates of counters between two samples.
struct TopRates: Sendable {
    /// The elapsed time in seconds; nil without an earlier sample, and after a change of the service.
    private let elapsed: Double?
    /// The earlier sample, under the same conditions.
    private let before: TopSample?
    /// The clients of the earlier sample.
    private let clients: [UniqueName: ListedClient]
    private let sample: TopSample

    init(_ sample: TopSample, since before: TopSample?) {
        self.sample = sample
        // Another process or a smaller counter is a new service, whose counters begin at 0.
        guard let before, before.process?.id == sample.process?.id, before.process?.start == sample.process?.start,
            let posted = sample.properties.statistics[.posted],
            posted >= before.properties.statistics[.posted] ?? 0, sample.moment > before.moment
        else {
            (elapsed, self.before, clients) = (nil, nil, [:])
            return
        }
        elapsed = sample.moment - before.moment
        self.before = before
        clients = Dictionary(before.clients.map { ($0.name, $0) }) { $1 }
    }

    /// Returns the rate of a counter that only grows; nil if it is unknown.
    func perSecond(_ key: StatisticsKey) -> Double? { perSecond(named: key.rawValue) }

    /// Returns the rate of the counter with this key.
    func perSecond(named key: String) -> Double? {
        func value(_ sample: TopSample) -> UInt64? {
            StatisticsKey(rawValue: key).flatMap { sample.properties.statistics[$0] }
        }
        guard let elapsed, let before = before.flatMap(value), let now = value(sample), now >= before else {
            return nil
        }
        return Double(now - before) / elapsed
    }

    /// Returns the rate of a client's counter. A client that is new since the earlier sample had the count 0 then.
    func perSecond(_ count: KeyPath<ListedClient, UInt64>, of client: ListedClient) -> Double? {
        guard let elapsed else { return nil }
        let before = clients[client.name]?[keyPath: count] ?? 0
        return client[keyPath: count] >= before ? Double(client[keyPath: count] - before) / elapsed : nil
    }
}

extension ListedClient {
    /// Returns the clients, followed by the posters that are no clients. Each poster has its number of refused posts as
    /// an additional entry.
    static func adding(_ posters: [ListedPoster], to clients: [ListedClient]) -> [ListedClient] {
        let refused = Dictionary(posters.map { ($0.name, $0.refused) }) { $1 }
        let known = Set(clients.map(\.name))
        let all = clients + posters.filter { !known.contains($0.name) }.map(ListedClient.init)
        return all.map { client in
            var client = client
            if let count = refused[client.name] { client.others["refused"] = .uint64(count) }
            return client
        }
    }

    /// Creates a client without observers from a poster.
    private init(_ poster: ListedPoster) {
        self.init(
            name: poster.name, processID: poster.processID, process: poster.process, isSuspended: false, cause: "none",
            observers: 0, queued: 0, delivered: 0, dropped: 0, flow: "", unconfirmed: 0, posted: poster.posted,
            userID: poster.userID, application: poster.application)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// What the service was at one moment.
struct TopSample: Sendable {
    /// When, on a clock that nobody sets, in seconds.
    let moment: Double
    /// When, in microseconds since 1970 in UTC.
    let time: Int64
    /// Nil where the bus or the kernel does not tell.
    let process: ProcessFacts?
    let properties: CenterProperties
    /// With those that only post.
    let clients: [ListedClient]
    /// Nil when they were not asked for; an error where the service did not list them.
    let values: Result<[KeptValue], ValuesError>?
    /// What the bridge to other machines told last; an error where it does not answer, and nil where there is none.
    let bridge: Result<BridgeSample, BusError>?

    struct ValuesError: Error {
        let reason: String
    }
}

/// What happened between two moments.
struct TopRates: Sendable {
    /// In seconds; nil when there was no moment before, or the service is another one since.
    private let elapsed: Double?
    private let before: TopSample?
    private let clients: [UniqueName: ListedClient]
    private let sample: TopSample

    init(_ sample: TopSample, since before: TopSample?) {
        self.sample = sample
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

    /// Of a number that only grows. Nil where it is not known.
    func perSecond(_ key: StatisticsKey) -> Double? { perSecond(named: key.rawValue) }

    func perSecond(named key: String) -> Double? {
        func value(_ sample: TopSample) -> UInt64? {
            StatisticsKey(rawValue: key).flatMap { sample.properties.statistics[$0] }
        }
        guard let elapsed, let before = before.flatMap(value), let now = value(sample), now >= before else {
            return nil
        }
        return Double(now - before) / elapsed
    }

    /// Of a client. All of one that has come since happened since.
    func perSecond(_ count: KeyPath<ListedClient, UInt64>, of client: ListedClient) -> Double? {
        guard let elapsed else { return nil }
        let before = clients[client.name]?[keyPath: count] ?? 0
        return client[keyPath: count] >= before ? Double(client[keyPath: count] - before) / elapsed : nil
    }
}

extension ListedClient {
    /// Clients, and behind them those of the posters that are none. What was refused goes with each that posts.
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

    private init(_ poster: ListedPoster) {
        self.init(
            name: poster.name, processID: poster.processID, process: poster.process, isSuspended: false, cause: "none",
            observers: 0, queued: 0, delivered: 0, dropped: 0, flow: "", unconfirmed: 0, posted: poster.posted,
            userID: poster.userID, application: poster.application)
    }
}

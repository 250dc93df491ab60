// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonWire

/// The periodic questions to the service about its activity. An unanswered question is not repeated.
final class TopPoll: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// Whether the retained values, which may be many, are requested as well.
    var wantsValues = false
    /// Called with each sample, or with the reason why there is none.
    var told: (Result<TopSample, ServiceError>) -> Void = { _ in }
    /// Whether the first sample waits, for at most one second, until it is known whether there is a bridge. Output on
    /// paper can't be corrected later.
    var waitsForBridge = false
    private let inquirer = ServiceInquirer()
    private let bridge = TopBridge()
    private let interval: Double
    private var timer: EventSource?
    private var processID: UInt32?
    private var isProcessKnown = false
    private var isAsking = false
    /// Whether a sample is wanted sooner than the interval says.
    private var isHurried = false

    /// - Parameter seconds: the interval between two questions.
    init(every seconds: Double) {
        interval = seconds
    }

    func start() {
        inquirer.served = { [unowned self] in isProcessKnown = false }
        inquirer.start()
        ask()
        timer = .timer(milliseconds: UInt32(max(1, interval * 1000)), on: .default) { [unowned self] in
            ask()
            return .keep
        }
    }

    func stop() {
        timer = nil
        bridge.stop()
        inquirer.stop()
    }

    /// Asks now, or as soon as the pending question is answered.
    func hurry() {
        isHurried = isAsking
        ask()
    }

    private func ask() {
        // While the service does not answer, its absence is reported.
        guard !isAsking else { return inquirer.absence.map { told(.failure($0)) } ?? () }
        isAsking = true
        bridge.ask()
        inquirer.askProperties { [self] in
            guard let properties = take($0) else { return }
            inquirer.ask(ListClients()) { [self] in
                guard let clients = take($0) else { return }
                inquirer.ask(ListPosters()) { [self] in
                    guard let all = add($0, to: clients) else { return }
                    findProcess { [self] in askValues(properties, all) }
                }
            }
        }
    }

    /// Appends programs that only post to the clients, as clients without observers.
    private func add(_ posters: Result<[ListedPoster], ServiceError>, to clients: [ListedClient]) -> [ListedClient]? {
        switch posters {
        case .success(let posters): return ListedClient.adding(posters, to: clients)
        // An earlier service does not list posters.
        case .failure(.refused): return clients
        case .failure(let error):
            fail(error)
            return nil
        }
    }

    private func findProcess(_ goOn: @escaping () -> Void) {
        guard !isProcessKnown else { return goOn() }
        isProcessKnown = true
        inquirer.findServiceProcess { [weak self] in
            self?.processID = $0
            goOn()
        }
    }

    private func askValues(_ properties: CenterProperties, _ clients: [ListedClient]) {
        guard wantsValues else { return tell(properties, clients, nil) }
        inquirer.ask(Get(name: "")) { [self] in
            switch $0 {
            case .success(let values): tell(properties, clients, .success(values))
            // The values are too many for one answer, or not allowed; the rest of the sample is complete.
            case .failure(.refused(let error)): tell(properties, clients, .failure(.init(reason: error.message)))
            case .failure(let error): fail(error)
            }
        }
    }

    private func tell(
        _ properties: CenterProperties, _ clients: [ListedClient],
        _ values: Result<[KeptValue], TopSample.ValuesError>?
    ) {
        guard waitsForBridge else { return tellNow(properties, clients, values) }
        bridge.whenKnown { [weak self] in self?.tellNow(properties, clients, values) }
    }

    private func tellNow(
        _ properties: CenterProperties, _ clients: [ListedClient],
        _ values: Result<[KeptValue], TopSample.ValuesError>?
    ) {
        let sample = TopSample(
            moment: Double(SteadyClock.nanoseconds()) / 1e9, time: WallClock.microseconds(),
            process: processID.flatMap { ProcessFacts(of: $0) }, properties: properties, clients: clients,
            values: values, bridge: bridge.show())
        isAsking = false
        told(.success(sample))
        if isHurried {
            isHurried = false
            ask()
        }
    }

    private func take<Value>(_ result: Result<Value, ServiceError>) -> Value? {
        switch result {
        case .success(let value): return value
        case .failure(let error):
            fail(error)
            return nil
        }
    }

    private func fail(_ error: ServiceError) {
        isAsking = false
        told(.failure(error))
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonWire

/// Asks the service at an interval what it does. A question that is not answered yet is not asked again.
final class TopPoll: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// Whether the values that are kept are wanted too, which may be many.
    var wantsValues = false
    /// Gets each sample, or why there is none.
    var told: (Result<TopSample, ServiceError>) -> Void = { _ in }
    /// Whether the first sample waits, a second at most, until it is known whether there is a bridge: it can't be shown
    /// again then.
    var waitsForBridge = false
    private let inquirer = ServiceInquirer()
    private let bridge = TopBridge()
    private let interval: Double
    private var timer: EventSource?
    private var processID: UInt32?
    private var isProcessKnown = false
    private var isAsking = false
    /// Somebody wants it sooner than the interval says.
    private var isHurried = false

    /// - Parameter seconds: between two questions.
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

    /// Asks now, or as soon as what was asked is answered.
    func hurry() {
        isHurried = isAsking
        ask()
    }

    private func ask() {
        // While the service does not answer, somebody has to hear that.
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

    /// Those that only post come behind the clients, as such without observers.
    private func add(_ posters: Result<[ListedPoster], ServiceError>, to clients: [ListedClient]) -> [ListedClient]? {
        switch posters {
        case .success(let posters): return ListedClient.adding(posters, to: clients)
        // An earlier service does not tell.
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
            // Too many for one answer, or not for everybody: the rest is there.
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

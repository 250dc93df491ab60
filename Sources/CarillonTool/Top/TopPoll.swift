// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonWire

/// The periodic poll of the service by `carillon top`. Each poll is a sequence of calls, whose replies become one
/// ``TopSample``. A poll that is due while the one before is pending is skipped.
final class TopPoll: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// Whether the retained values, which may be many, are requested as well.
    var wantsValues = false
    /// Called with each sample, with the error of a poll, and with the reason at each interval without a service.
    var onResult: (Result<TopSample, ServiceError>) -> Void = { _ in }
    /// Whether the first sample waits, for at most one second, until it is known whether there is a bridge. It is set
    /// for `--batch` and `--json`, whose output can't be corrected later.
    var waitsForBridge = false
    private let inquirer = ServiceInquirer()
    private let bridge = TopBridge()
    /// The interval between two polls, in seconds.
    private let interval: Double
    private var timer: EventSource?
    /// The process ID of the service; nil if it is unknown.
    private var processID: UInt32?
    /// Whether the process ID was requested from the bus since the last change of the service. The reply may be
    /// pending.
    private var isProcessRequested = false
    /// Whether a poll is pending.
    private var isPollPending = false
    /// Whether the next poll follows the pending one at once.
    private var isRepeatDue = false

    /// - Parameter seconds: the interval between two polls.
    init(every seconds: Double) {
        interval = seconds
    }

    /// Makes the first poll, and starts the timer for the others.
    func start() {
        inquirer.onConnected = { [unowned self] in isProcessRequested = false }
        inquirer.start()
        ask()
        timer = .timer(milliseconds: UInt32(max(1, interval * 1000)), on: .default) { [unowned self] in
            ask()
            return .keep
        }
    }

    /// Ends the polls. A pending one yields no sample.
    func stop() {
        timer = nil
        bridge.stop()
        inquirer.stop()
    }

    /// Polls now, or as soon as the pending poll has ended. An error of the pending poll cancels the other one.
    func pollSoon() {
        isRepeatDue = isPollPending
        ask()
    }

    /// Starts a poll unless one is pending.
    private func ask() {
        // The poll may be pending because there is no service. Then the reason is reported.
        guard !isPollPending else { return inquirer.absence.map { onResult(.failure($0)) } ?? () }
        isPollPending = true
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

    /// Requests the process ID of the service if it is not known, and then calls `goOn`.
    private func findProcess(_ goOn: @escaping () -> Void) {
        guard !isProcessRequested else { return goOn() }
        isProcessRequested = true
        inquirer.findServiceProcess { [weak self] in
            self?.processID = $0
            goOn()
        }
    }

    /// Requests the retained values if they are wanted, and ends the poll.
    private func askValues(_ properties: CenterProperties, _ clients: [ListedClient]) {
        guard wantsValues else { return deliver(properties, clients, nil) }
        inquirer.ask(Get(name: "")) { [self] in
            switch $0 {
            case .success(let values): deliver(properties, clients, .success(values))
            // The values are too many for one reply, or the policy hides them. The sample has the reason in their
            // place.
            case .failure(.refused(let error)): deliver(properties, clients, .failure(.init(reason: error.message)))
            case .failure(let error): fail(error)
            }
        }
    }

    /// Ends the poll; before the first sample it may wait for the bridge.
    private func deliver(
        _ properties: CenterProperties, _ clients: [ListedClient],
        _ values: Result<[RetainedValueInfo], TopSample.ValuesError>?
    ) {
        guard waitsForBridge else { return deliverNow(properties, clients, values) }
        bridge.whenKnown { [weak self] in self?.deliverNow(properties, clients, values) }
    }

    /// Ends the poll: passes the sample on.
    private func deliverNow(
        _ properties: CenterProperties, _ clients: [ListedClient],
        _ values: Result<[RetainedValueInfo], TopSample.ValuesError>?
    ) {
        let sample = TopSample(
            moment: Double(SteadyClock.nanoseconds()) / 1e9, time: WallClock.microseconds(),
            process: processID.flatMap { ProcessFacts(of: $0) }, properties: properties, clients: clients,
            values: values, bridge: bridge.show())
        isPollPending = false
        onResult(.success(sample))
        if isRepeatDue {
            isRepeatDue = false
            ask()
        }
    }

    /// Returns the value of a successful reply. An error ends the poll, and the result is nil.
    private func take<Value>(_ result: Result<Value, ServiceError>) -> Value? {
        switch result {
        case .success(let value): return value
        case .failure(let error):
            fail(error)
            return nil
        }
    }

    /// Ends the poll with an error.
    private func fail(_ error: ServiceError) {
        (isPollPending, isRepeatDue) = (false, false)
        onResult(.failure(error))
    }
}

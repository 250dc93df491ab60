// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The status of the session's bridge to other machines, with its rates since the status in the sample before.
struct BridgeSample: Sendable {
    let status: BridgeStatus
    /// The time of the status, on a monotonic clock, in seconds.
    let moment: Double
    /// The exported notifications per second; nil without an earlier status, and after a restart of the bridge.
    let outPerSecond: Double?
    /// The imported notifications per second; nil in the same cases.
    let inPerSecond: Double?

    init(_ status: BridgeStatus, at moment: Double, since before: BridgeSample?) {
        func perSecond(_ count: KeyPath<BridgeStatus, UInt64>) -> Double? {
            guard let before, moment > before.moment else { return nil }
            let (old, new) = (before.status[keyPath: count], status[keyPath: count])
            return new >= old ? Double(new - old) / (moment - before.moment) : nil
        }
        self.status = status
        self.moment = moment
        // Both counters start at 0 with the bridge, so a smaller count of either one means a restart.
        let rates = (perSecond(\.exported), perSecond(\.imported))
        let isSame = rates.0 != nil && rates.1 != nil
        outPerSecond = isSame ? rates.0 : nil
        inPerSecond = isSame ? rates.1 : nil
    }
}

/// The poll of the bridge's status for `carillon top`, beside the poll of the service. A sample contains the last known
/// status, and does not wait for the bridge.
///
/// Threads: all on the thread that runs the default context.
final class TopBridge: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    /// The time limit for a reply, and for the wait of ``whenKnown(_:)``, in milliseconds.
    private static let maxMilliseconds: UInt32 = 1000

    private let inquirer = BridgeInquirer()
    /// Whether a request is pending.
    private var isAsking = false
    /// Whether the first request has ended, with or without a reply, or its time limit has passed.
    private var hasAnswered = false
    /// The closure of ``whenKnown(_:)``.
    private var waiting: (() -> Void)?
    private var timer: EventSource?
    /// The result of the last request; nil before the first one and without a bridge.
    private var known: Result<BridgeSample, BusError>?
    /// The status in the last sample of `carillon top`, from which rates are computed. A later status that was in no
    /// sample does not count.
    private var shown: BridgeSample?

    /// Requests the status, unless an earlier request is pending.
    func ask() {
        guard !isAsking else { return }
        isAsking = true
        inquirer.askStatus(within: .milliseconds(Int32(Self.maxMilliseconds))) { [weak self] in self?.take($0) }
    }

    /// Handles the result of a request.
    private func take(_ answer: Result<BridgeStatus?, BusError>) {
        isAsking = false
        switch answer {
        case .success(let status?):
            known = .success(BridgeSample(status, at: Double(SteadyClock.nanoseconds()) / 1e9, since: shown))
        case .success(nil): (shown, known) = (nil, nil)
        case .failure(let error): known = .failure(error)
        }
        goOn()
    }

    /// Returns the status for a sample.
    ///
    /// - Returns: the newest status; an error if the bridge did not reply, and nil if no bridge is known.
    func show() -> Result<BridgeSample, BusError>? {
        if case .success(let sample)? = known { shown = sample }
        return known
    }

    /// Runs `body` after the first request has ended, but after one second at the latest. Later calls run it at once.
    func whenKnown(_ body: @escaping () -> Void) {
        guard !hasAnswered, isAsking else { return body() }
        waiting = body
        timer = .once(milliseconds: Self.maxMilliseconds, on: .default) { [weak self] in self?.goOn() }
    }

    /// Runs the closure that waits for the first request.
    private func goOn() {
        hasAnswered = true
        timer = nil
        waiting.take()?()
    }

    /// Closes the connection. The result of a pending request is not delivered.
    func stop() {
        (timer, waiting) = (nil, nil)
        inquirer.stop()
    }
}

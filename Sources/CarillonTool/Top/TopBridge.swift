// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The status of the session's bridge to other machines, with the rates since the status that was shown before.
struct BridgeSample: Sendable {
    let status: BridgeStatus
    /// The time of the status, on a monotonic clock, in seconds.
    let moment: Double
    /// The rate of exports; nil without an earlier status, and after a change of the bridge.
    let outPerSecond: Double?
    let inPerSecond: Double?

    init(_ status: BridgeStatus, at moment: Double, since before: BridgeSample?) {
        func perSecond(_ count: KeyPath<BridgeStatus, UInt64>) -> Double? {
            guard let before, moment > before.moment else { return nil }
            let (old, new) = (before.status[keyPath: count], status[keyPath: count])
            return new >= old ? Double(new - old) / (moment - before.moment) : nil
        }
        self.status = status
        self.moment = moment
        // Both counters start with the bridge.
        let rates = (perSecond(\.exported), perSecond(\.imported))
        let isSame = rates.0 != nil && rates.1 != nil
        outPerSecond = isSame ? rates.0 : nil
        inPerSecond = isSame ? rates.1 : nil
    }
}

/// The questions to the bridge beside those to the service. The last status is available at once, and the display does
/// not wait for the next one.
///
/// Threads: all on the thread that runs the default context.
final class TopBridge: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    private static let maxMilliseconds: UInt32 = 1000

    private let inquirer = BridgeInquirer()
    private var isAsking = false
    private var hasAnswered = false
    private var waiting: (() -> Void)?
    private var timer: EventSource?
    private var known: Result<BridgeSample, BusError>?
    /// The last sample that was shown. Rates begin there, because of two answers between two pages only one is shown.
    private var shown: BridgeSample?

    /// Asks the bridge, unless an earlier question is unanswered.
    func ask() {
        guard !isAsking else { return }
        isAsking = true
        inquirer.askStatus(within: .milliseconds(Int32(Self.maxMilliseconds))) { [weak self] in self?.take($0) }
    }

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

    /// Returns the status to show.
    ///
    /// - Returns: the newest status; an error while the bridge does not answer, and nil if no bridge is known.
    func show() -> Result<BridgeSample, BusError>? {
        if case .success(let sample)? = known { shown = sample }
        return known
    }

    /// Runs `body` when it is known whether there is a bridge, after one second at the latest. Later calls run it at
    /// once.
    func whenKnown(_ body: @escaping () -> Void) {
        guard !hasAnswered, isAsking else { return body() }
        waiting = body
        timer = .once(milliseconds: Self.maxMilliseconds, on: .default) { [weak self] in self?.goOn() }
    }

    private func goOn() {
        hasAnswered = true
        timer = nil
        waiting.take()?()
    }

    /// Closes the connection. Pending questions are not answered any more.
    func stop() {
        (timer, waiting) = (nil, nil)
        inquirer.stop()
    }
}

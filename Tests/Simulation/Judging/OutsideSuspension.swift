// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonWire

/// What decides whether a client is suspended besides its own word, as far as it is certain: what others say of it (B3), and
/// the activity of its application (A1, A2).
struct OutsideSuspension {
    /// Said by others: nil takes it back.
    private var overrides: [(isSuspended: Bool?, asked: Int64, acknowledged: Int64?)] = []
    /// What a service was told of its application, and which service that was.
    private var report: (activity: Activity, time: Int64, service: UniqueName?)?
    private var wasInactive = false

    /// Until inactivity counts (A1), with some time for the timer.
    private static let delay: Int64 = 300_000

    /// Whether anything but its own word could have suspended it, ever.
    var isConcerned: Bool { wasInactive || overrides.contains { $0.isSuspended == true } }

    mutating func override(_ isSuspended: Bool?, at time: Int64) -> Int {
        overrides.append((isSuspended, time, nil))
        return overrides.count - 1
    }

    mutating func acknowledge(_ number: Int, at time: Int64) { overrides[number].acknowledged = time }

    /// The service knew no such client, so that nothing was said.
    mutating func refuse(_ number: Int) {
        overrides[number].acknowledged = overrides[number].asked
        overrides[number].isSuspended = number > 0 ? overrides[number - 1].isSuspended : nil
    }

    mutating func note(_ activity: Activity, at time: Int64, by service: UniqueName?) {
        report = (activity, time, service)
        if activity == .inactive { wasInactive = true }
    }

    /// Whether somebody may have had it told for this reason.
    func mayCause(_ cause: String) -> Bool {
        switch cause {
        case SuspensionCause.override.rawValue: !overrides.isEmpty
        case SuspensionCause.activity.rawValue: report != nil
        default: true
        }
    }

    /// Whether it has to be suspended when nothing happens any more; nil where that is not certain.
    ///
    /// - Parameters:
    ///   - word: its own; nil where it follows activity.
    ///   - service: its name on the bus: another one, also of the same process, knows of no activity.
    func isSuspended(word: Bool?, at now: Int64, by service: UniqueName?) -> Bool? {
        if let last = overrides.last {
            guard last.acknowledged != nil, overrides.allSatisfy({ $0.acknowledged != nil }) else { return nil }
            // Of two that were asked at the same time nobody knows which came first: one may wait for its connection.
            guard overrides.dropLast().allSatisfy({ $0.acknowledged! <= last.asked }) else { return nil }
            if let isSuspended = last.isSuspended { return isSuspended }
        }
        if let word { return word }
        guard let report, report.service == service else { return false }
        guard now - report.time > Self.delay else { return nil }
        return report.activity == .inactive
    }
}

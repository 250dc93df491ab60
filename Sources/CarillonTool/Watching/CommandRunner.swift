// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop
import CarillonWire

/// The output of `carillon observe --exec COMMAND`: runs a shell command for each notification, one at a time and in
/// order.
///
/// The command gets the fields in environment variables, and the notification as JSON on its standard input.
/// Notifications that arrive while a command runs are queued. A full queue drops the oldest ones, and the loss is
/// reported.
final class CommandRunner: NotificationOutput {
    /// A queued notification, as the environment variables and the standard input of its command.
    private struct Run {
        let variables: [(name: String, value: String)]
        let input: [UInt8]

        var byteCount: Int { variables.reduce(input.count) { $0 + $1.name.utf8.count + $1.value.utf8.count } }
    }

    /// The maximum number of queued notifications.
    private static let maxWaiting = 1000
    /// The maximum size of the queue, in bytes. A single notification may be larger.
    private static let maxBytes = 64 << 20
    /// The maximum size of each variable, and of all entries of userInfo together, in bytes. The kernel refuses a
    /// variable of 128 KiB, and a large environment.
    private static let largestVariable = 32 << 10

    private let command: String
    /// Called when a command has ended and no notification is queued.
    private let onIdle: () -> Void
    private var waiting = Deque<Run>()
    /// The size of `waiting`, in bytes.
    private var waitingBytes = 0
    /// The running command; nil if none runs.
    private var child: ChildProgram?
    /// The reason of the last failure; nil after a success. A failure with the same reason is not reported again.
    private var lastFailure: String?
    /// Whether a command has failed, or could not be started.
    private(set) var hasFailed = false
    /// The number of notifications that a full queue has dropped.
    private var lost = 0

    /// - Parameter onIdle: called when a command has ended and no notification is queued.
    init(_ command: String, onIdle: @escaping () -> Void) {
        self.command = command
        self.onIdle = onIdle
    }

    /// Whether a full queue has dropped notifications.
    var hasLost: Bool { lost > 0 }
    var isBusy: Bool { child != nil || !waiting.isEmpty }

    /// Queues the notification, drops the oldest ones while the queue is too long, and runs the command if none runs.
    func take(_ arrival: Arrival) {
        let run = Run(
            variables: Self.variables(of: arrival), input: Array((NotificationFormat.json(arrival) + "\n").utf8))
        waiting.append(run)
        waitingBytes += run.byteCount
        while waiting.count > Self.maxWaiting || (waitingBytes > Self.maxBytes && waiting.count > 1) {
            if let oldest = waiting.popFirst() { waitingBytes -= oldest.byteCount }
            if lost == 0 { printError("carillon: '\(command)' is too slow: notifications are lost, the oldest first") }
            lost += 1
        }
        next()
    }

    /// Discards the queue at the end of the run, and returns its length. A running command continues.
    func abandon() -> Int {
        let count = waiting.count
        waiting.removeAll()
        waitingBytes = 0
        return count
    }

    /// Runs the command for the first queued notification unless a command runs.
    private func next() {
        guard child == nil, let run = waiting.popFirst() else { return }
        waitingBytes -= run.byteCount
        do throws(ChildProgram.Failure) {
            child = try ChildProgram(
                ["/bin/sh", "-c", command], variables: run.variables, input: run.input, on: .default
            ) { [unowned self] ending in ended(ending) }
        } catch {
            // The command was not started. For the next notification it may start: that may be smaller, or the system
            // may have more resources then.
            fail("\(error)")
            next()
        }
    }

    /// Handles the end of the command: reports a failure, and runs the command for the next notification.
    private func ended(_ ending: ChildProgram.Ending) {
        child = nil
        switch ending {
        case .exited(0): lastFailure = nil
        case .exited(let status): fail("it ended with status \(status)")
        case .killed(let signal): fail("it was ended by signal \(signal)")
        }
        next()
        if !isBusy { onIdle() }
    }

    /// Reports a failure unless the failure before had the same reason.
    private func fail(_ reason: String) {
        hasFailed = true
        guard reason != lastFailure else { return }
        lastFailure = reason
        printError("carillon: '\(command)': \(reason)")
    }

    /// Returns the environment variables. An entry of userInfo has one if its key is valid in a name. Once the entries,
    /// in the order of their keys, exceed ``largestVariable`` together, no further one has a variable. A single
    /// variable larger than that is left out.
    private static func variables(of arrival: Arrival) -> [(name: String, value: String)] {
        let notification = arrival.notification
        var variables = [
            ("CARILLON_NAME", notification.name), ("CARILLON_OBJECT", notification.object),
            ("CARILLON_USER_INFO", PropertyListJSON.text(.dictionary(arrival.userInfo))),
            ("CARILLON_TIME", ISO8601Date.text(arrival.time)),
            ("CARILLON_POSTER", notification.poster.rawValue), ("CARILLON_SERIAL", String(notification.serial)),
            ("CARILLON_SEQUENCE", String(notification.sequence)),
        ]
        // The part of the maximum size that is left for entries; negative when an entry exceeded it.
        var room = largestVariable
        for (key, value) in arrival.userInfo.sorted(by: { $0.key < $1.key }) where isName(key) {
            let text = value.readable
            room -= key.utf8.count + text.utf8.count
            if room >= 0 { variables.append(("CARILLON_INFO_\(key)", text)) }
        }
        return variables.filter { $0.1.utf8.count <= largestVariable }
    }

    /// Whether `CARILLON_INFO_` and the key are a valid name of a shell variable.
    private static func isName(_ key: String) -> Bool {
        !key.isEmpty
            && key.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }
}

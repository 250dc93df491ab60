// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMainLoop
import CarillonWire

/// The runner of `--exec`: it runs a shell command for each notification, one after the other, in order.
///
/// The command has the fields in its environment, and the notification as JSON on its standard input. Notifications
/// that arrive while a command runs are queued. A full queue drops the oldest ones, and the loss is reported.
final class CommandRunner: NotificationOutput {
    private struct Run {
        let variables: [(name: String, value: String)]
        let input: [UInt8]

        var byteCount: Int { variables.reduce(input.count) { $0 + $1.name.utf8.count + $1.value.utf8.count } }
    }

    private static let maxWaiting = 1000
    private static let maxBytes = 64 << 20
    /// The maximum size of the variables, in bytes. The kernel refuses a variable of 128 KiB, and many large ones
    /// together.
    private static let largestVariable = 32 << 10

    private unowned let session: CommandSession
    private let command: String
    private let becameIdle: () -> Void
    private var waiting = Deque<Run>()
    private var waitingBytes = 0
    private var child: ChildProgram?
    /// The reason of the last failure, so that a repeated failure is reported once.
    private var lastFailure: String?
    private(set) var hasFailed = false
    private var lost = 0

    init(_ command: String, on session: CommandSession, becameIdle: @escaping () -> Void) {
        self.command = command
        self.session = session
        self.becameIdle = becameIdle
    }

    var hasLost: Bool { lost > 0 }
    var isBusy: Bool { child != nil || !waiting.isEmpty }

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

    func abandon() -> Int {
        let count = waiting.count
        waiting.removeAll()
        waitingBytes = 0
        return count
    }

    private func next() {
        guard child == nil, let run = waiting.popFirst() else { return }
        waitingBytes -= run.byteCount
        do throws(ChildProgram.Failure) {
            child = try ChildProgram(
                ["/bin/sh", "-c", command], variables: run.variables, input: run.input, on: .default
            ) { [unowned self] ending in ended(ending) }
        } catch {
            // The next notification may be smaller, or find more resources.
            fail("\(error)")
            next()
        }
    }

    private func ended(_ ending: ChildProgram.Ending) {
        child = nil
        switch ending {
        case .exited(0): lastFailure = nil
        case .exited(let status): fail("it ended with status \(status)")
        case .killed(let signal): fail("it was ended by signal \(signal)")
        }
        next()
        if !isBusy { becameIdle() }
    }

    private func fail(_ reason: String) {
        hasFailed = true
        guard reason != lastFailure else { return }
        lastFailure = reason
        printError("carillon: '\(command)': \(reason)")
    }

    private static func variables(of arrival: Arrival) -> [(name: String, value: String)] {
        let notification = arrival.notification
        var variables = [
            ("CARILLON_NAME", notification.name), ("CARILLON_OBJECT", notification.object),
            ("CARILLON_USER_INFO", PropertyListJSON.text(.dictionary(arrival.userInfo))),
            ("CARILLON_TIME", ISO8601Date.text(arrival.time)),
            ("CARILLON_POSTER", notification.poster.rawValue), ("CARILLON_SERIAL", String(notification.serial)),
            ("CARILLON_SEQUENCE", String(notification.sequence)),
        ]
        var room = largestVariable
        for (key, value) in arrival.userInfo.sorted(by: { $0.key < $1.key }) where isName(key) {
            let text = value.readable
            room -= key.utf8.count + text.utf8.count
            if room >= 0 { variables.append(("CARILLON_INFO_\(key)", text)) }
        }
        return variables.filter { $0.1.utf8.count <= largestVariable }
    }

    /// Whether a shell variable can have the key behind `CARILLON_INFO_`.
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

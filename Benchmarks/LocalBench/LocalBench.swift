// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Foundation
import LocalNotifications

/// Measures the center and the queue within a process beside Foundation's, on the same work and in turn, and prints a
/// table in Markdown. It judges nothing. `tools/bench` runs it; Benchmarks/README.md explains the rows.
///
///     carillon-local-bench [ROWS [ours | theirs]]
///
/// With ROWS only the rows whose names contain that; with `ours` or `theirs` only one of the two does the work, once,
/// and nothing is printed: for profiles.
@main
struct LocalBench {
    static let rounds = 9

    static func main() {
        let arguments = CommandLine.arguments.dropFirst()
        let wanted = Work.all.filter { arguments.isEmpty || $0.name.contains(arguments.first!) }
        if arguments.count > 1 {
            for work in wanted { (arguments.last == "ours" ? work.ours : work.theirs)()() }
            return
        }
        var lines = [
            "| in process, ns for each | Carillon | Foundation | Carillon / Foundation |", "|---|---|---|---|",
        ]
        for work in wanted {
            var ours: [Double] = []
            var theirs: [Double] = []
            let started = ContinuousClock.now
            // What takes long in one round gets few others.
            while ours.count < rounds, ours.count < 3 || ContinuousClock.now - started < .seconds(10) {
                ours.append(measure(work, work.ours))
                theirs.append(measure(work, work.theirs))
            }
            // Each beside what was measured at nearly the same time.
            let ratio = median(zip(ours, theirs).map { $0 / $1 })
            lines.append(
                "| \(work.name) | \(number(median(ours), 0)) | \(number(median(theirs), 0)) | \(number(ratio, 2)) |")
            FileHandle.standardError.write(Data("carillon-local-bench: \(lines.last!) \(ours.count) rounds\n".utf8))
        }
        print(lines.joined(separator: "\n"))
    }

    /// Nanoseconds for each. What `prepare` returns is the work; making it does not count.
    private static func measure(_ work: Work, _ prepare: () -> () -> Void) -> Double {
        let action = prepare()
        let clock: clockid_t
        switch work.time {
        case .processor: clock = CLOCK_PROCESS_CPUTIME_ID
        case .elapsed: clock = CLOCK_MONOTONIC
        }
        let began = nanoseconds(clock)
        action()
        return (nanoseconds(clock) - began) / Double(work.count)
    }

    private static func nanoseconds(_ clock: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(clock, &time)
        return Double(time.tv_sec) * 1e9 + Double(time.tv_nsec)
    }

    private static func median(_ values: [Double]) -> Double {
        values.sorted()[values.count / 2]
    }

    private static func number(_ value: Double, _ digits: Int) -> String {
        String(format: "%.\(digits)f", value)
    }
}

import Foundation
import LocalNotifications
import MainLoop

/// Measures the center and the queue within a process beside Foundation's, on the same work and in turn, and prints a
/// table in Markdown. It judges nothing. `tools/bench` runs it; Benchmarks/README.md explains the rows. With an argument
/// only the rows whose names contain it: for profiles.
@main
struct LocalBench {
    static let rounds = 7

    static func main() {
        var lines = [
            "| in process, ns for each | Carillon | Foundation | Carillon / Foundation |", "|---|---|---|---|",
        ]
        let wanted = CommandLine.arguments.dropFirst().first ?? ""
        for work in Work.all where wanted.isEmpty || work.name.contains(wanted) {
            var ours: [Double] = []
            var theirs: [Double] = []
            let started = ContinuousClock.now
            // What takes long in one round gets no other.
            while ours.count < rounds, ours.isEmpty || ContinuousClock.now - started < .seconds(10) {
                ours.append(measure(work.ours, work.count))
                theirs.append(measure(work.theirs, work.count))
            }
            let (our, their) = (median(ours), median(theirs))
            lines.append(
                "| \(work.name) | \(number(our, 0)) | \(number(their, 0)) | \(number(our / their, 2)) |")
            FileHandle.standardError.write(Data("local-bench: \(lines.last!) \(ours.count) rounds\n".utf8))
        }
        print(lines.joined(separator: "\n"))
    }

    /// Nanoseconds for each of `count`. What `prepare` returns is the work; making it does not count.
    private static func measure(_ prepare: () -> () -> Void, _ count: Int) -> Double {
        let work = prepare()
        let time = ContinuousClock().measure(work)
        return (Double(time.components.seconds) * 1e9 + Double(time.components.attoseconds) * 1e-9) / Double(count)
    }

    private static func median(_ values: [Double]) -> Double {
        values.sorted()[values.count / 2]
    }

    private static func number(_ value: Double, _ digits: Int) -> String {
        String(format: "%.\(digits)f", value)
    }
}

// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// One side of a load with the Swift library: for benchmarks, not installed. What it does, and what it prints, is what
/// the loads of `Benchmarks/peers` do and print.
///
///     carillon-library-load observe NAME [--others N] | post NAME [--count N] [--size BYTES] [--rate N]
@main
enum LibraryLoad {
    static func main() {
        guard let load = Load(CommandLine.arguments.dropFirst()) else {
            fail("expected observe|post NAME [--others N] [--count N] [--size BYTES] [--rate N]", status: 1)
        }
        // What a program is told, so that nothing is lost without a word.
        let events = center.observeEvents { event in
            if case .connectionStateChanged = event { return }
            FileHandle.standardError.write(Data("carillon-library-load: \(event)\n".utf8))
        }
        withExtendedLifetime(events) {
            if load.observes { observe(load) } else { post(load) }
        }
    }

    private static let center = DistributedNotificationCenter.default()

    private static func observe(_ load: Load) -> Never {
        for number in 0..<load.others {
            center.addObserver(forName: .init("\(load.name).other\(number)"), object: nil, queue: nil) { _ in }
        }
        let seen = Seen()
        center.addObserver(forName: .init(load.name), object: nil, queue: nil) { notification in
            seen.take(notification)
        }
        center.addObserver(forName: .init(load.name + ".end"), object: nil, queue: nil) { _ in seen.report() }
        // Behind the registrations.
        guard center.flush(timeout: 120) else { fail("the service did not answer", status: 2) }
        seen.begin()
        say("ready")
        dispatchMain()
    }

    private static func post(_ load: Load) {
        let name = Notification.Name(load.name)
        let data = Data(repeating: 0x42, count: load.size)
        let (processorTimeBefore, start) = (processorTime(), now())
        for number in 0..<load.count {
            if load.rate > 0 { wait(until: start + Int64(number) * 1_000_000_000 / Int64(load.rate)) }
            center.post(name: name, object: nil, userInfo: ["number": number, "time": Int(now()), "data": data])
        }
        center.post(name: .init(load.name + ".end"), object: nil)
        guard center.flush(timeout: 120) else { fail("the service did not answer", status: 2) }
        say(
            "posted=\(load.count) first-at=\(start) last-at=\(now()) cpu-us=\(processorTime() - processorTimeBefore) "
                + "failed=\(center.statistics.failedPosts)")
    }
}

/// The command line.
private struct Load {
    var observes: Bool
    var name: String
    /// Registrations for other names, before the one that counts.
    var others = 0
    var count = 1000
    var size = 100
    /// Posts in a second; 0 is as fast as it can.
    var rate = 0

    init?(_ arguments: ArraySlice<String>) {
        var arguments = Array(arguments)[...]
        guard let role = arguments.popFirst(), ["observe", "post"].contains(role), let name = arguments.popFirst()
        else { return nil }
        observes = role == "observe"
        self.name = name
        while let option = arguments.popFirst() {
            guard let value = arguments.popFirst().flatMap({ Int($0) }), value >= 0 else { return nil }
            switch option {
            case "--others": others = value
            case "--count": count = value
            case "--size": size = value
            case "--rate": rate = value
            default: return nil
            }
        }
    }
}

/// What an observer has seen since its last report.
// Sendable: it is made and used on the main thread only, where observers without a queue run.
private final class Seen: @unchecked Sendable {
    private var (received, missed, faults, next) = (0, 0, 0, 0)
    private var (first, last, processorTimeBefore) = (Int64(0), Int64(0), Int64(0))
    private var latencies: [Int64] = []

    func begin() { processorTimeBefore = processorTime() }

    /// What is out of order or comes twice is a fault.
    func take(_ notification: Notification) {
        last = now()
        if received == 0 { first = last }
        received += 1
        guard let userInfo = notification.userInfo, let number = userInfo["number"] as? Int,
            let posted = userInfo["time"] as? Int
        else { return faults += 1 }
        if number < next { faults += 1 }
        if number > next { missed += number - next }
        next = number + 1
        latencies.append(last - Int64(posted))
    }

    func report() {
        guard received > 0 else { return }
        latencies.sort()
        func percentile(_ percent: Int) -> Int64 {
            latencies.isEmpty ? 0 : latencies[latencies.count * percent / 100]
        }
        say(
            "received=\(received) missed=\(missed) faults=\(faults) first-at=\(first) last-at=\(last) "
                + "cpu-us=\(processorTime() - processorTimeBefore) p50=\(percentile(50)) p99=\(percentile(99))")
        (received, missed, faults, next) = (0, 0, 0, 0)
        latencies.removeAll(keepingCapacity: true)
        begin()
    }
}

/// Prints a line at once, also into a pipe.
private func say(_ line: String) {
    print(line)
    fflush(nil)
}

private func fail(_ reason: String, status: Int32) -> Never {
    FileHandle.standardError.write(Data("carillon-library-load: \(reason)\n".utf8))
    exit(status)
}

/// Nanoseconds of the clock that all processes of a machine share.
private func now() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
}

private func wait(until due: Int64) {
    var time = timespec(tv_sec: Int(due / 1_000_000_000), tv_nsec: Int(due % 1_000_000_000))
    _ = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nil)
}

/// Microseconds of processor time that this process has used.
private func processorTime() -> Int64 {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    func microseconds(_ time: timeval) -> Int64 { Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_usec) }
    return microseconds(usage.ru_utime) + microseconds(usage.ru_stime)
}

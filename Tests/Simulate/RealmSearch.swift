// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonSimulation

/// The same for realms: `simulate --realm`.
enum RealmSearch {
    /// - Returns: whether no rule was broken.
    static func show(_ seed: UInt64, keeping kept: [Int]?, isQuiet: Bool) -> Bool {
        let run = RealmRun(seed: seed)
        CrashNote.set("realm \(seed)", run.command)
        let outcome = run.make(keeping: kept, trace: isQuiet ? nil : { line in printLine(line) })
        printLine(
            "realm \(seed): \(outcome.seconds) virtual seconds, \(outcome.events) events, \(outcome.posts) posts, "
                + "\(outcome.received) received, \(outcome.announced) announced as lost")
        guard let violation = outcome.violation else { return true }
        printLine("realm \(seed) breaks \(violation)")
        return false
    }

    /// - Parameters:
    ///   - seeds: the first, and how many at most.
    ///   - seconds: the maximum.
    /// - Returns: whether no rule was broken.
    static func search(from first: UInt64, runs: Int, seconds: Double, maxFailures: Int, shrinks: Bool) -> Bool {
        let start = ContinuousClock.now
        var failures: [RealmRun] = []
        var (count, time, posts, received, announced) = (0, 0.0, 0, 0, 0)
        while count < runs, failures.count < maxFailures, ContinuousClock.now - start < .seconds(seconds) {
            let run = RealmRun(seed: first &+ UInt64(count))
            CrashNote.set("realm \(run.seed)", run.command, maxSeconds: 300)
            let outcome = run.make()
            CrashNote.limit(seconds: 0)
            count += 1
            time += outcome.seconds
            posts += outcome.posts
            received += outcome.received
            announced += outcome.announced
            guard let violation = outcome.violation else { continue }
            failures.append(run)
            printLine("realm \(run.seed) breaks \(violation)")
            printLine("  to see it: \(run.command)")
        }
        printLine(
            "\(count) realms, \(failures.count) that break a rule; \(Int(time)) virtual seconds in "
                + "\(ContinuousClock.now - start); \(posts) posts, \(received) received, \(announced) announced as lost"
        )
        if shrinks, let shrunk = failures.first?.shrink() {
            printLine("\(shrunk.violation)")
            for step in shrunk.steps { printLine("  \(step)") }
            printLine("to see it: \(failures[0].command) --keep \(shrunk.kept.map(String.init).joined(separator: ","))")
        }
        return failures.isEmpty
    }
}

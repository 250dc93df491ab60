// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonSimulation

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Searches for seeds that break a rule, and shows them. `tools/simulate` has its options explained.
@main
struct Simulate {
    private struct Options {
        var seed: UInt64?
        var minutes: Double?
        var runs: Int?
        var first: UInt64 = 1
        var seedsFile: String?
        var kept: [Int]?
        var isQuiet = false
        var isRealm = false
        var shrinks = true
        var dials = Dials()
        var maxFailures = 20
        var commit = "unknown"
    }

    static func main() {
        let options = parse(Array(CommandLine.arguments.dropFirst()))
        if options.isRealm { exit(searchRealms(options) ? 0 : 1) }
        if let seed = options.seed {
            exit(show(seed, options) ? 0 : 1)
        }
        exit(search(options) ? 0 : 1)
    }

    /// - Returns: whether each event costs as much as it may.
    private static func checkCosts() -> Bool {
        guard StepMeter.isCounting else {
            printError("simulate: this build counts no steps; -Xswiftc -DCARILLON_METER makes one that does")
            return false
        }
        do {
            return try EventCosts.check { printLine($0) }
        } catch {
            printError("simulate: \(error)")
            return false
        }
    }

    private static func searchRealms(_ options: Options) -> Bool {
        if let seed = options.seed {
            return RealmSearch.show(seed, keeping: options.kept, isQuiet: options.isQuiet)
        }
        return RealmSearch.search(
            from: options.first, runs: options.runs ?? (options.minutes == nil ? 20 : .max),
            seconds: (options.minutes ?? 1e6) * 60, maxFailures: options.maxFailures, shrinks: options.shrinks)
    }

    // MARK: One seed

    /// - Returns: whether no rule was broken.
    private static func show(_ seed: UInt64, _ options: Options) -> Bool {
        let run = SeededRun(seed: seed, dials: options.dials)
        CrashNote.set("seed \(seed)", run.command)
        let trace: ((String) -> Void)? = options.isQuiet ? nil : { line in printLine(line) }
        if let step = options.kept?.first(where: { !run.hasStep($0) }) { fail("seed \(seed) has no step \(step)") }
        let outcome = options.kept.map { run.make(keeping: $0, trace: trace) } ?? run.make(trace: trace)
        printLine(
            "seed \(seed): \(outcome.seconds) virtual seconds, \(outcome.events) events, \(outcome.posts) posts, "
                + "\(outcome.received) received, \(outcome.announced) announced as lost, \(outcome.services) services")
        guard let violation = outcome.violation else { return true }
        printLine("seed \(seed) breaks \(violation)")
        return false
    }

    // MARK: Many

    private static func search(_ options: Options) -> Bool {
        var failures: [SeededRun] = []
        var (runs, seconds, events, posts, received) = (0, 0.0, 0, 0, 0)
        let start = ContinuousClock.now
        func elapsed() -> Double {
            let time = (ContinuousClock.now - start).components
            return Double(time.seconds) + Double(time.attoseconds) / 1e18
        }
        func make(_ run: SeededRun) {
            CrashNote.set("seed \(run.seed)", run.command, maxSeconds: 300)
            let outcome = run.make()
            CrashNote.limit(seconds: 0)
            runs += 1
            seconds += outcome.seconds
            events += outcome.events
            posts += outcome.posts
            received += outcome.received
            guard let violation = outcome.violation else { return }
            failures.append(run)
            printLine("seed \(run.seed) breaks \(violation)")
            printLine("  to see it: \(run.command)")
        }
        for run in keptRuns(options) { make(run) }
        if options.minutes != nil || options.runs != nil {
            printLine("\(runs) kept seeds were tried; new ones from \(options.first) on")
            let limit = (options.minutes ?? 1e9) * 60
            let end = options.runs.map { runs + $0 } ?? .max
            var seed = options.first
            while elapsed() < limit, runs < end, failures.count < options.maxFailures {
                make(SeededRun(seed: seed, dials: options.dials))
                seed &+= 1
            }
        }
        let real = max(elapsed(), 1e-6)
        printLine(
            "\(runs) runs, \(failures.count) that break a rule; \(Int(seconds)) virtual seconds in \(Int(real * 1000)) ms, "
                + "\(Int(seconds / real)) in a second; \(events) events, \(posts) posts, \(received) received")
        if options.shrinks, let run = failures.first { explain(run, options) }
        return failures.isEmpty
    }

    /// Prints what somebody needs to see it again.
    private static func explain(_ run: SeededRun, _ options: Options) {
        printLine("shortening seed \(run.seed) …")
        // Hundreds of runs.
        CrashNote.limit(seconds: 3600)
        defer { CrashNote.limit(seconds: 0) }
        guard let shrunk = run.shrink() else { return }
        printLine("commit \(options.commit), seed \(run.seed)\(run.dials.options)")
        printLine("\(shrunk.violation)")
        printLine(
            "\(shrunk.steps.count) of \(shrunk.stepsBefore) steps are left, after \(shrunk.runs) runs"
                + (shrunk.isShortest ? "; each of them is needed:" : ":"))
        for step in shrunk.steps { printLine("  \(step)") }
        printLine("to see it: \(run.command) --keep " + shrunk.kept.map(String.init).joined(separator: ","))
    }

    /// Each line has a seed, the options that it was found with, and words about it.
    private static func keptRuns(_ options: Options) -> [SeededRun] {
        guard let path = options.seedsFile, let file = fopen(path, "r") else { return [] }
        defer { fclose(file) }
        var runs: [SeededRun] = []
        var line = [CChar](repeating: 0, count: 512)
        while fgets(&line, Int32(line.count), file) != nil {
            let text = line.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
            var words = text.split(whereSeparator: \.isWhitespace).map(String.init)[...]
            guard let seed = words.popFirst().flatMap({ UInt64($0) }) else { continue }
            var dials = options.dials
            while let option = words.popFirst(), option.hasPrefix("--") {
                guard let value = words.popFirst(), set(option, to: value, in: &dials) else {
                    printError("simulate: the line of seed \(seed) has options that mean nothing")
                    exit(2)
                }
            }
            runs.append(SeededRun(seed: seed, dials: dials))
        }
        return runs
    }

    /// - Returns: false when there is no such dial, or no such value of it.
    private static func set(_ option: String, to value: String, in dials: inout Dials) -> Bool {
        func read<Value>(_ value: Value?, _ dial: WritableKeyPath<Dials, Value>) -> Bool {
            guard let value else { return false }
            dials[keyPath: dial] = value
            return true
        }
        switch option {
        case "--clients": return read(Int(value), \.clients)
        case "--seconds": return read(Int(value), \.seconds)
        case "--faults": return read(Double(value), \.faults)
        case "--rate": return read(Int(value), \.rate)
        case "--sabotage": return read(Sabotage(rawValue: value).map(Optional.some), \.sabotage)
        default:
            guard let (_, dial) = Dials.shares.first(where: { "--" + $0.name == option }) else { return false }
            return read(Double(value), dial)
        }
    }

    // MARK: Options

    private static func parse(_ arguments: [String]) -> Options {
        var options = Options()
        var rest = arguments[...]
        while let option = rest.popFirst() {
            func value<Value>(_ read: (String) -> Value?) -> Value {
                guard let text = rest.popFirst() else { fail("\(option) needs a value") }
                guard let value = read(text) else { fail("\(option) can't be '\(text)'") }
                return value
            }
            func check(_ isValid: (String) -> Bool) {
                let _: String = value { text in isValid(text) ? text : nil }
            }
            switch option {
            case "--seed": options.seed = value(UInt64.init)
            case "--minutes": options.minutes = value(duration)
            case "--runs": options.runs = value(positive)
            case "--first": options.first = value(UInt64.init)
            case "--seeds": options.seedsFile = value { $0 }
            case "--keep": options.kept = value(numbers)
            case "--plant": check(PlantedFaults.plant)
            case "--list-planted":
                for name in PlantedFaults.all(ofRealms: options.isRealm) { printLine(name) }
                exit(0)
            case "--costs": exit(checkCosts() ? 0 : 1)
            case "--quiet": options.isQuiet = true
            case "--realm": options.isRealm = true
            case "--no-shrink": options.shrinks = false
            case "--max-failures": options.maxFailures = value(positive)
            case "--commit": options.commit = value { $0 }
            case _ where isDial(option): check { text in set(option, to: text, in: &options.dials) }
            default: fail("unknown option '\(option)'")
            }
        }
        return options
    }

    private static func duration(_ text: String) -> Double? {
        guard let number = Double(text), number >= 0 else { return nil }
        return number
    }

    private static func positive(_ text: String) -> Int? {
        guard let number = Int(text), number > 0 else { return nil }
        return number
    }

    /// - Returns: the numbers between commas; nil if anything else is there.
    private static func numbers(_ text: String) -> [Int]? {
        let parts = text.split(separator: ",", omittingEmptySubsequences: false)
        let numbers = parts.compactMap { Int($0) }
        return numbers.count == parts.count ? numbers : nil
    }

    private static func isDial(_ option: String) -> Bool {
        ["--clients", "--seconds", "--faults", "--rate", "--sabotage"].contains(option)
            || Dials.shares.contains { "--" + $0.name == option }
    }

    private static func fail(_ text: String) -> Never {
        printError("simulate: \(text); try tools/simulate --help")
        exit(2)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// What makes a test pass or fail by luck, or wait for long, as far as its text shows it (docs/testing.md).
@Suite("Waiting in tests", .limited)
struct WaitingRulesTests {
    /// A kind of line that no test has.
    struct Rule: Sendable, CustomTestStringConvertible {
        let what: String
        let instead: String
        /// One of them is in each such line: to look for these is quick.
        let marks: [String]
        let isMeant: @Sendable (Substring) -> Bool
        /// Files that may have it, with the reason beside it there.
        var exceptions: Set<String> = []

        var testDescription: String { what }

        func matches(_ line: Substring) -> Bool { marks.contains { line.contains($0) } && isMeant(line) }

        static let all = [
            Rule(
                what: "a sleep", instead: "`eventually` for a condition, `letPass` for time that has to go by",
                marks: ["Thread.sleep(", "Task.sleep(", "usleep(", " sleep("],
                isMeant: { _ in true },
                // What sleeps is what is tested.
                exceptions: ["TestLimitsTests/LimitTests.swift"]),
            Rule(
                what: "a time that something must not exceed",
                instead: "the bound of a wait; how long it took can be printed",
                marks: ["now - ", "elapsed", "longest", "duration"],
                isMeant: { line in
                    line.contains(/#(?:expect|require)\(/)
                        && line.contains(#/(?:now - \w+|(?:elapsed|longest|duration)(?:\.\w+)?) <=? /#)
                }),
            Rule(
                what: "a wait that counts by itself", instead: "`Doorbell`, `eventually` or `Wait`",
                marks: ["wait(timeout: ", "ContinuousClock.now < "],
                isMeant: { _ in true }),
            Rule(
                what: "a loop of a context that nothing ends", instead: "`MainContext.run`, or an `Alarm`",
                marks: ["iterate(mayBlock: true)"],
                isMeant: { $0.contains(/while (?!let).*\{ *(?:\w+\.)*iterate\(mayBlock: true\) *\}/) },
                // Loops of threads that serve until the test ends them.
                exceptions: [
                    "CarillonToolTests/ExecTests.swift", "CarillonToolTests/StrangerTests.swift",
                    "CarillonTests/FakeService.swift",
                ]),
            Rule(
                what: "chance without a seed", instead: "`SplitMix.ofTest`",
                marks: ["SystemRandomNumberGenerator", "random(in: ", "randomElement(", "shuffled("],
                isMeant: { !$0.contains("using: ") },
                // A display that nobody has, and a cookie.
                exceptions: [
                    "NotificationServiceTests/Desktop/Desktop.swift", "NotificationCoreTests/Model/ModelTests.swift",
                ]),
            Rule(
                what: "a test that returns where it can't run", instead: "`.enabled(if:)` or `Test.cancel`",
                marks: ["vailable", "isInstalled"],
                isMeant: { $0.hasPrefix("        guard ") && $0.hasSuffix(" else { return }") }),
        ]
    }

    /// What tests are written in; not what is tested, or runs by clocks of its own.
    private static let sources: [(path: String, text: String)] = {
        let root = Executables.packageRoot + "/Tests"
        let others = ["Simulation/", "Simulate/", "Fuzz/", "Mutation/", "MacOSSources/", "TestSupport/", "TestLimits/"]
        let paths = (FileManager.default.subpaths(atPath: root) ?? []).filter { path in
            path.hasSuffix(".swift") && !others.contains(where: path.hasPrefix)
                && !path.hasSuffix("/WaitingRulesTests.swift")
        }
        return paths.sorted().map { path in
            (path, (try? String(contentsOfFile: "\(root)/\(path)", encoding: .utf8)) ?? "")
        }
    }()

    @Test("No test contains a line of a forbidden kind", arguments: Rule.all)
    func lines(rule: Rule) {
        #expect(Self.sources.count > 200)
        for (path, text) in Self.sources where !rule.exceptions.contains(path) {
            guard rule.marks.contains(where: text.contains) else { continue }
            for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated()
            where rule.matches(line) && !line.drop(while: \.isWhitespace).hasPrefix("//") {
                Issue.record("Tests/\(path):\(number + 1) has \(rule.what): \(line). Instead: \(rule.instead)")
            }
        }
        for path in rule.exceptions {
            #expect(Self.sources.contains { $0.path == path }, "\(path) is an exception, and is not there")
        }
    }

    @Test(
        "The rules recognize every forbidden form of waiting, timing and randomness",
        arguments: [
            "        Thread.sleep(forTimeInterval: 0.6)", "    usleep(2000)", "try await Task.sleep(for: .seconds(1))",
            "        #expect(ContinuousClock.now - start < .seconds(15))", "        #expect(longest.bus < Self.bound)",
            "guard done.wait(timeout: .now() + 90) == .success else { return }",
            "while ContinuousClock.now < end {", "while !isOver { context.iterate(mayBlock: true) }",
            "var generator = SystemRandomNumberGenerator()", "let x = Int.random(in: 0..<5)",
            "        guard BusKind.available.contains(.dbusBroker) else { return }",
        ])
    func found(line: String) {
        #expect(Rule.all.contains { $0.matches(line[...]) })
    }

    // MARK: Programs

    /// The targets of Package.swift, with what each depends on, and the programs by their names.
    private struct Package {
        var dependencies: [String: [String]] = [:]
        var programs: [String: String] = [:]

        init() throws {
            let text = try String(contentsOfFile: Executables.packageRoot + "/Package.swift", encoding: .utf8)
            for target in text.matches(of: /\.(target|executableTarget|testTarget)\(\s*name: "([\w-]+)"/) {
                let name = String(target.2)
                // As far as the next one.
                let rest = text[target.range.upperBound...]
                let own = rest.prefix(upTo: rest.firstRange(of: #/arget\(\s*name: /#)?.lowerBound ?? rest.endIndex)
                let list = own.firstMatch(of: /dependencies: \[([^\]]*)\]/)?.1 ?? ""
                dependencies[name] = list.matches(of: /"([\w-]+)"/).map { String($0.1) }
                if target.1 == "executableTarget" { programs[name] = name }
            }
            for product in text.matches(of: /\.executable\(name: "([\w-]+)", targets: \["([\w-]+)"\]\)/) {
                programs[String(product.2)] = nil
                programs[String(product.1)] = String(product.2)
            }
        }

        func reachable(from target: String) -> Set<String> {
            var reached: Set<String> = []
            var pending = [target]
            while let next = pending.popLast() {
                if reached.insert(next).inserted { pending += dependencies[next] ?? [] }
            }
            return reached
        }
    }

    @Test("A test target depends on the programs that its tests run, so that `tools/test-only` builds them")
    func programs() throws {
        let package = try Package()
        #expect(
            package.programs["carillon"] == "CarillonTool"
                && package.programs["carillon-bus-load"] == "carillon-bus-load")
        let all = package.programs.filter { $0.key != "carillon" && !$0.key.hasPrefix("fuzz-") }
        var count = 0
        for (path, text) in Self.sources {
            let folder = String(path.prefix { $0 != "/" })
            guard folder.hasSuffix("Tests") else { continue }
            let reachable = package.reachable(from: folder)
            for (program, target) in all where text.contains("\"\(program)\"") && program.contains("-") {
                count += 1
                #expect(reachable.contains(target), "Tests/\(path) runs \(program), on which \(folder) does not depend")
            }
            guard text.contains("Executables.path(") || text.contains("ServiceProcess(") || text.contains(".service(")
            else { continue }
            for use in text.matches(of: /Executables\.path\(of: "([\w-]+)"\)/) {
                count += 1
                let target = try #require(package.programs[String(use.1)], "Tests/\(path): \(use.0)")
                #expect(reachable.contains(target), "Tests/\(path) runs \(use.1), on which \(folder) does not depend")
            }
            if text.contains("ServiceProcess(") || text.contains(".service(") {
                count += 1
                #expect(
                    reachable.contains("carillond"), "Tests/\(path) runs carillond, on which \(folder) does not depend")
            }
        }
        #expect(count > 50)
    }
}

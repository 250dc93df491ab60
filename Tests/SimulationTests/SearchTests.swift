// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The short form of the search, in a process of its own whose hash tables have the same order in every run, as a seed
/// means nothing without that. Continuous integration tries many more.
@Suite("Simulation", .limited)
struct SearchTests {
    private func simulate(_ arguments: String...) throws -> CommandResult { try simulate(arguments) }

    private func simulate(_ arguments: [String]) throws -> CommandResult {
        var environment = ProcessInfo.processInfo.environment
        environment["SWIFT_DETERMINISTIC_HASHING"] = "1"
        return try Command.run(
            try Executables.path(of: "carillon-simulate"), arguments, environment: environment,
            within: .work(.seconds(900), because: "it searches many seeds"))
    }

    @Test(
        "The seeds that once broke a rule break none now",
        .disabled(
            if: getenv("CARILLON_QUICK") != nil, "a debug build needs minutes for them; tools/simulate runs them, too"),
        arguments: 0..<parts)
    func kept(part: Int) throws {
        let all = try String(contentsOfFile: Executables.packageRoot + "/Tests/Simulation/seeds", encoding: .utf8)
            .split(separator: "\n").filter { !$0.hasPrefix("#") }
        let own = all.indices.filter { $0 % Self.parts == part }.map { all[$0] }
        let directory = try TemporaryDirectory()
        try own.joined(separator: "\n").write(toFile: directory.entry("seeds"), atomically: false, encoding: .utf8)
        let result = try simulate("--seeds", directory.entry("seeds"))
        #expect(result.exitCode == 0, "\(result)")
        #expect(result.standardOutput.hasPrefix("\(own.count) runs"), "\(result)")
    }

    /// So many that each is done within the limit of a test among all others.
    private static let parts = 8

    @Test("Other seeds, with all faults, break no rule")
    func faulty() throws {
        let result = try simulate("--runs", "4", "--first", "1", "--seconds", "8")
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("Runs with a siege, and a flood or accidents, break no rule")
    func hostile() throws {
        let result = try simulate("--runs", "2", "--first", "1001", "--seconds", "8", "--hostility", "2.5")
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("Runs without faults break no rule and lose no notification")
    func faultless() throws {
        let result = try simulate("--runs", "4", "--first", "1", "--seconds", "8", "--faults", "0")
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("F2: runs with channels break no rule")
    func channels() throws {
        let result = try simulate("--runs", "2", "--first", "2001", "--seconds", "8", "--channels", "2")
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("G3, G4, G5: runs with posts from outside the session break no rule")
    func outside() throws {
        let result = try simulate("--runs", "2", "--first", "3001", "--seconds", "8", "--outside", "2.5")
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test(
        "Runs with one of the newer kinds of events break no rule",
        arguments: ["batches", "policy", "probes", "expiry", "damage", "activity", "sessions", "moments"])
    func kinds(dial: String) throws {
        let result = try simulate("--runs", "1", "--first", "4001", "--seconds", "8", "--\(dial)", "2.5")
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("Runs without sieges, floods and channels, as for the older seeds, break no rule")
    func peaceful() throws {
        let result = try simulate(
            "--runs", "6", "--first", "1", "--seconds", "8", "--hostility", "0", "--channels", "0", "--batches", "0",
            "--policy", "0", "--probes", "0", "--expiry", "0", "--damage", "0", "--activity", "0",
            "--sessions", "0", "--moments", "0")
        #expect(result.exitCode == 0, "\(result)")
    }

    /// A bus that loses notifications stands for the fault, as a service without faults has none to show.
    @Test("A failure is reduced to its necessary steps, and the printed command repeats it")
    func shortened() throws {
        let arguments = ["--seconds", "5", "--faults", "0", "--hostility", "0", "--sabotage", "lost-signals"]
        let found = try simulate(["--runs", "1", "--first", "7"] + arguments)
        #expect(found.exitCode == 1, "\(found)")
        let lines = found.standardOutput.split(separator: "\n").map(String.init)
        let violation = try #require(lines.first { $0.hasPrefix("seed 7 breaks ") }, "\(found)")
        let rule = violation.dropFirst("seed 7 breaks ".count).prefix { $0 != ":" }

        let summary = try #require(lines.first { $0.contains(" steps are left") }, "\(found)")
        let numbers = summary.split(separator: " ").compactMap { Int($0) }
        #expect(numbers[0] * 5 < numbers[1], "\(summary)")
        #expect(summary.hasSuffix("each of them is needed:"), "\(summary)")

        let command = try #require(lines.last { $0.contains(" --keep ") }, "\(found)")
        let options = command.split(separator: " ").map(String.init).drop { $0 != "tools/simulate" }.dropFirst()
        let kept = try #require(options.last).split(separator: ",")
        #expect(kept.count == numbers[0])
        let again = try simulate(Array(options) + ["--quiet"])
        #expect(again.exitCode == 1, "\(again)")
        #expect(again.standardOutput.contains("seed 7 breaks \(rule): "), "\(again)")
        #expect(try simulate(Array(options) + ["--quiet"]).standardOutput == again.standardOutput)
        for left in kept.indices {
            let fewer = kept.indices.filter { $0 != left }.map { kept[$0] }.joined(separator: ",")
            let without = try simulate(Array(options.dropLast()) + [fewer, "--quiet"])
            #expect(!without.standardOutput.contains("breaks \(rule): "), "without \(kept[left]): \(without)")
        }
    }

    @Test("A seed has the same result in every process")
    func repeats() throws {
        let (first, second) = (
            try simulate("--seed", "7", "--seconds", "5"), try simulate("--seed", "7", "--seconds", "5")
        )
        #expect(first.exitCode == 0, "\(first)")
        #expect(first.standardOutput.count > 1000)
        #expect(first.standardOutput == second.standardOutput)
        let other = try simulate("--seed", "8", "--seconds", "5")
        #expect(other.standardOutput != first.standardOutput)
    }
}

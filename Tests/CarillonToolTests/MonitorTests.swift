// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Testing

@Suite("carillon monitor", .serialized, .limited)
struct MonitorTests {
    /// Starts `carillon monitor`, and returns when it does.
    private func monitor(
        on bell: Bell, _ arguments: String..., environment: [String: String] = [:]
    ) throws -> RunningCommand {
        let command = try RunningCommand(
            try Bell.path(), ["monitor"] + arguments, environment: bell.bus.environment.merging(environment) { $1 })
        _ = try command.nextErrorLine(within: .start) { $0.hasPrefix("monitoring") }
        return command
    }

    @Test(
        "B3: carillon monitor shows all posts with their posters, and does not count as a receiver",
        arguments: BusKind.available)
    func all(kind: BusKind) throws {
        let bell = try Bell(kind)
        let monitor = try monitor(on: bell, "--count", "3")
        let observer = try bell.observe("Ding", "--count", "1")
        for (name, receivers) in [("Ding", "1 client\n"), ("Dong", "0 clients\n")] {
            let result = try bell.run("post", name, "--object", "bell", "n=1", "--verbose")
            #expect(result.exitCode == 0 && result.standardOutput == receivers, "\(result)")
        }
        // What goes over a channel as well.
        let result = try bell.run("post", "Dang Dang", environment: ["CARILLON_TRANSPORT": "channel"])
        #expect(result.exitCode == 0, "\(result)")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(try monitor.waitForExit() == .exited(0), "\(monitor.transcript)")
        let lines = monitor.standardOutput.split(separator: "\n")
        let posts = lines.map { $0.replacing(#/^:1\.[0-9]+  /#, with: "") }
        #expect(posts == ["Ding  bell  {\"n\": 1}", "Dong  bell  {\"n\": 1}", "\"Dang Dang\""], "\(lines)")
        #expect(Set(lines.compactMap { $0.split(separator: " ").first }).count == 3, "each by another poster")
    }

    @Test("B3: monitor over a channel filters by names and object, and prints the same JSON as observe")
    func channel() throws {
        let bell = try Bell()
        let monitor = try monitor(
            on: bell, "Ding", "Dong", "--object", "bell", "--json", "--count", "2",
            environment: ["CARILLON_TRANSPORT": "channel"])
        for name in ["Ding", "Dang", "Dong"] { try bell.post(name, "--object", "bell") }
        try bell.post("Ding")
        #expect(try monitor.waitForExit() == .exited(0), "\(monitor.transcript)")
        let lines = try monitor.standardOutput.split(separator: "\n").map { try ObservedLine(String($0)) }
        #expect(lines.map { $0.members["name"] as? String } == ["Ding", "Dong"])
        #expect(
            Set(lines[0].members.keys) == ["name", "object", "userInfo", "observers", "poster", "serial", "sequence"])
    }

    @Test("B3: carillon observers lists a monitor as such, and monitor exits with 3 at its --timeout")
    func listed() throws {
        let bell = try Bell()
        let running = try monitor(on: bell)
        let observers = try bell.run("observers")
        #expect(observers.standardOutput.contains("monitor"), "\(observers)")
        running.terminate()
        let result = try bell.run("monitor", "Ding", "--timeout", "0.1")
        #expect(result.exitCode == 3 && result.standardOutput.isEmpty, "\(result)")
        let wrong = try bell.run("monitor", "")
        #expect(wrong.exitCode == 1, "\(wrong)")
    }

    @Test("E3: monitor reports the return of a killed service, and continues")
    func killed() throws {
        let bell = try Bell()
        let monitor = try monitor(on: bell)
        try bell.post("Ding")
        _ = try monitor.nextLine { $0.hasSuffix("  Ding") }
        try bell.service.kill()
        let next = try ServiceProcess(on: bell.bus)
        _ = try monitor.nextErrorLine { $0.contains("the service is back") }
        let result = try bell.run("post", "Dong", "--verbose")
        #expect(result.standardOutput == "0 clients\n", "\(result)")
        _ = try monitor.nextLine { $0.hasSuffix("  Dong") }
        #expect(next.isRunning)
    }
}

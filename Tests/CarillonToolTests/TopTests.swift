// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// `carillon top` on paper.
@Suite("B3: carillon top --batch and --json", .serialized, .limited)
struct TopTests {
    private func json(_ line: String) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any], "\(line)")
    }

    private func top(_ bell: Bell, _ arguments: String...) throws -> RunningCommand {
        try RunningCommand(try Bell.path(), ["top"] + arguments, environment: bell.bus.environment)
    }

    @Test("--json prints null rates in the first sample, and then the rates of each client")
    func rates() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding")
        let poster = try ChattyClient(on: bell.bus, observing: "Dong")
        try poster.post("Ding", times: 1)
        let top = try top(bell, "--json", "--interval", "0.1", "--view", "values")
        let first = try json(try top.nextLine())
        #expect(first["posted-per-second"] is NSNull)
        let service = try #require(first["service"] as? [String: Any])
        #expect(service["pid"] as? Int == Int(bell.service.pid))
        #expect(service["uptime"] is Double && (service["memory"] as? Int ?? 0) > 1_000_000)
        #expect(first["bus"] as? String == bell.bus.address.split(separator: ",").first.map(String.init))
        let statistics = try #require(first["statistics"] as? [String: Any])
        #expect(statistics["posted"] as? Int == 1 && statistics["observers"] as? Int == 2)
        #expect((first["limits"] as? [String: Any])?["name-length"] as? Int == 1024)
        #expect((first["values"] as? [Any])?.count == 0)

        try poster.post("Ding", times: 3)
        func clients(_ line: String) -> [[String: Any]] {
            (try? json(line))?["clients"] as? [[String: Any]] ?? []
        }
        let busy = try json(
            try top.nextLine { line in clients(line).contains { ($0["posted-per-second"] as? Double ?? 0) > 0 } })
        let noisy = try #require(
            (busy["clients"] as? [[String: Any]])?.first { ($0["posted-per-second"] as? Double ?? 0) > 0 })
        #expect(noisy["pid"] as? Int == Int(poster.pid) && noisy["process"] as? String == "python3")
        #expect((busy["posted-per-second"] as? Double ?? 0) > 0)
        // The observer gets what is posted, in this sample or the next.
        if !(busy["clients"] as? [[String: Any]] ?? []).contains(where: {
            ($0["delivered-per-second"] as? Double ?? 0) > 0
        }) {
            _ = try top.nextLine { clients($0).contains { ($0["delivered-per-second"] as? Double ?? 0) > 0 } }
        }
        _ = try top.nextLine { (try? json($0))?["posted-per-second"] as? Double == 0 }

        try bell.post("Battery", "--object", "BAT0", "--retain", "percent=80")
        let kept = try json(try top.nextLine { ((try? json($0))?["values"] as? [Any])?.isEmpty == false })
        let value = try #require((kept["values"] as? [[String: Any]])?.first)
        #expect(value["name"] as? String == "Battery" && value["object"] as? String == "BAT0")
        // "percent" with its length, a NUL, its signature and an integer, each aligned; and the two texts.
        #expect((30...64).contains(value["size"] as? Int ?? 0), "\(value)")
        top.signal(SIGINT)
        #expect(try top.waitForExit() == .exited(0))
        #expect(top.standardError == "")
        observer.terminate()
    }

    @Test("Programs that only post are listed among the clients, without observers and with their rate of posts")
    func posters() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding")
        let poster = try ChattyClient(on: bell.bus, observing: nil)
        try poster.post("Ding", times: 1)
        let top = try top(bell, "--json", "--interval", "0.1")
        func found(_ line: String) -> [String: Any]? {
            ((try? json(line))?["clients"] as? [[String: Any]])?.first { $0["pid"] as? Int == Int(poster.pid) }
        }
        let first = try #require(found(try top.nextLine()))
        #expect(first["observers"] as? Int == 0 && first["posted"] as? Int == 1 && first["refused"] as? Int == 0)
        #expect(first["process"] as? String == "python3" && first["posted-per-second"] is NSNull)
        try poster.post("Ding", times: 3)
        let busy = try top.nextLine { (found($0)?["posted-per-second"] as? Double ?? 0) > 0 }
        #expect((found(busy)?["posted"] as? Int ?? 0) > 1)
        _ = try top.nextLine { found($0)?["posted-per-second"] as? Double == 0 }
        top.terminate()

        let page = try bell.run("top", "--batch", "-n", "1", "--sort", "observers", "--reverse")
        let rows = page.standardOutput.split(separator: "\n").filter { $0.hasPrefix(":") }
        #expect(rows.count == 2 && rows[0].contains("python3") && rows[1].contains("carillon"), "\(page)")
        poster.end()
        try eventually("it is gone") {
            try !bell.run("top", "--batch", "-n", "1").standardOutput.contains("python3")
        }
        observer.terminate()
    }

    @Test("G2: top prints the state and rates of a bridge, reports one that does not respond, and omits a missing one")
    func bridge() throws {
        let bell = try Bell()
        let without = try bell.run("top", "--json", "-n", "1")
        #expect(without.exitCode == 0 && !without.standardOutput.contains("\"bridge"), "\(without)")
        let bridge = try StubBridge(on: bell.bus)
        try bridge.count(out: 12, in: 3)
        let page = try bell.run("top", "--batch", "-n", "1")
        let lines = page.standardOutput.split(separator: "\n", omittingEmptySubsequences: false)
        #expect(lines[4] == "bridge connected to tower:8883, 0 other hosts; 12 out, 3 in", "\(page)")
        #expect(lines[5].isEmpty && lines[6].hasPrefix("name "), "\(page)")

        let top = try top(bell, "--json", "--interval", "0.1")
        func shown(_ line: String) -> [String: Any] { (try? json(line))?["bridge"] as? [String: Any] ?? [:] }
        let first = shown(try top.nextLine())
        #expect(first["exported"] as? Int == 12 && first["state"] as? String == "connected")
        #expect(first["exported-per-second"] is NSNull && first["imported-per-second"] is NSNull)
        try bridge.count(out: 112, in: 3)
        let busy = shown(try top.nextLine { (shown($0)["exported-per-second"] as? Double ?? 0) > 0 })
        #expect(busy["exported"] as? Int == 112 && busy["imported-per-second"] as? Double == 0)
        _ = try top.nextLine { shown($0)["exported-per-second"] as? Double == 0 }

        // While it does not answer, the service does.
        try bridge.stop()
        _ = try top.nextLine { ((try? json($0))?["bridge-error"] as? String)?.isEmpty == false }
        let stopped = try bell.run("top", "--batch", "-n", "2", "--interval", "0.1")
        #expect(stopped.exitCode == 0 && stopped.standardOutput.contains("\nbridge does not answer\n"), "\(stopped)")
        bridge.signal(SIGCONT)
        _ = try top.nextLine { shown($0)["exported"] as? Int == 112 }
        bridge.end()
        _ = try top.nextLine { !$0.contains("\"bridge") }
        top.terminate()
    }

    @Test("--batch prints a header and the sorted, filtered table of a view, as often as requested")
    func pages() throws {
        let bell = try Bell()
        for (name, n) in [("org.b", "1"), ("org.a", "2"), ("other", "3")] {
            try bell.post(name, "--retain", "n=\(n)", "text=\(String(repeating: "x", count: 100 * Int(n)!))")
        }
        let result = try bell.run(
            "top", "--batch", "-n", "2", "--interval", "0.1", "--view", "values", "--filter", "ORG.")
        #expect(result.exitCode == 0 && result.standardError == "", "\(result)")
        let pages = result.standardOutput.split(separator: "carillon top  ")
        #expect(pages.count == 2, "\(result)")
        for page in pages {
            let lines = page.split(separator: "\n").map(String.init)
            #expect(lines[0].contains("process \(bell.service.pid), up "), "\(page)")
            #expect(lines[1].contains("values 3"), "\(page)")
            #expect(lines[4].hasPrefix("name↑"), "\(page)")
            #expect(lines.dropFirst(5).map { $0.split(separator: " ")[0] } == ["org.a", "org.b"], "\(page)")
        }
        func names(_ arguments: String...) throws -> [Substring] {
            let result = try Command.run(
                try Bell.path(), ["top", "-b", "-n", "1", "-w", "values"] + arguments,
                environment: bell.bus.environment)
            return result.standardOutput.split(separator: "\n").dropFirst(5).map { $0.split(separator: " ")[0] }
        }
        #expect(try names("--sort", "size") == ["other", "org.a", "org.b"])
        #expect(try names("--sort", "size", "--reverse") == ["org.b", "org.a", "other"])
        #expect(try names("--reverse") == ["other", "org.b", "org.a"])
        let limits = try bell.run("top", "--batch", "--view", "limits", "-n", "1", "--filter", "retained")
        let row = try #require(limits.standardOutput.split(separator: "\n").first { $0.hasPrefix("retained ") })
        #expect(row.split(separator: " ") == ["retained", "3", "-", "32768", "0.0%"])
    }

    @Test("top starts no service, and exits with code 2 without a service or a bus", arguments: ["--batch", "--json"])
    func notRunning(option: String) throws {
        let bus = try PrivateBus(.dbusDaemon, activations: [.service()])
        let result = try Command.run(try Bell.path(), ["top", option], environment: bus.environment)
        #expect(result.exitCode == 2 && result.standardError == "carillon: the service does not run\n", "\(result)")
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == nil)
        let nowhere = ["DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"]
        let noBus = try Command.run(try Bell.path(), ["top", option], environment: nowhere)
        #expect(noBus.exitCode == 2 && !noBus.standardError.isEmpty, "\(noBus)")
    }

    @Test("E3: top waits for a new service after a kill of the first, and starts none", arguments: BusKind.available)
    func restart(kind: BusKind) throws {
        let bell = try Bell(kind)
        let top = try top(bell, "--json", "--interval", "0.1")
        _ = try top.nextLine()
        try bell.service.kill()
        _ = try top.nextErrorLine { $0.hasPrefix("carillon: waiting for the service: ") }
        #expect(try bell.bus.processID(ofOwner: ServiceProcess.busName) == nil)
        let next = try ServiceProcess(on: bell.bus)
        let line = try top.nextLine { $0.contains("\"pid\": \(next.pid),") }
        #expect(line.contains("\"posted-per-second\": null"), "another service counts from its own beginning")
        #expect(top.standardError.split(separator: "\n").count == 1, "it is said once")
        top.terminate()
        #expect(try top.waitForExit() == .exited(0))
    }

    @Test("top exits with code 5 if its output can't be written")
    func output() throws {
        let bell = try Bell()
        let result = try Command.run(
            "sh", ["-c", "\"$0\" top --json --interval 0.1 >/dev/full", try Bell.path()],
            environment: bell.bus.environment)
        #expect(result.exitCode == 5, "\(result)")
    }

    @Test(
        "Wrong usage causes exit status 1 and a message with the cause",
        arguments: [
            (["x"], "'x'"), (["--interval", "0"], "'0'"), (["-n", "0"], "'0'"), (["-n", "many"], "'many'"),
            (["--view", "all"], "clients, values, limits"), (["--sort", "size"], "post/s"),
            (["--view", "values", "--sort", "post/s"], "size"), (["--color", "red"], "auto, always, never"),
            ([], "--batch"),
        ])
    func usage(arguments: [String], text: String) throws {
        let result = try Command.run(try Bell.path(), ["top"] + arguments, environment: ["PATH": "/usr/bin:/bin"])
        #expect(result.exitCode == 1 && result.standardError.contains(text), "\(result)")
    }
}

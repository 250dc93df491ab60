// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonTool

/// What `carillon status`, `clients` and `observers` show.
@Suite("B3: carillon status, clients and observers", .serialized, .limited)
struct StatusTests {
    private func lines(_ result: CommandResult) throws -> [String] {
        try #require(result.exitCode == 0, "\(result)")
        return result.standardOutput.split(separator: "\n").map(String.init)
    }

    /// The cells of a line, which two blanks and more part.
    private func words(_ line: String) -> [String] { line.split(separator: /\ {2,}/).map(String.init) }

    private func json(_ line: String) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
    }

    @Test(
        "status, clients and observers start no service, and exit with code 2 without one",
        arguments: ["status", "clients", "observers"])
    func notRunning(command: String) throws {
        let bus = try PrivateBus(.dbusDaemon, activations: [.service()])
        let result = try Command.run(try Bell.path(), [command], environment: bus.environment)
        #expect(result.exitCode == 2)
        #expect(result.standardError == "carillon: the service does not run\n")
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == nil)
    }

    @Test("status prints the service's statistics, for people and as JSON")
    func status() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding")
        try bell.post("Ding")
        try bell.post("Dong")
        let text = try lines(bell.run("status"))
        for words in [
            ["posted", "2"], ["delivered", "1"], ["clients", "1"], ["observers", "1"], ["queued-bytes", "0 B"],
        ] {
            let line = try #require(text.first { $0.hasPrefix("  \(words[0]) ") }, "\(text)")
            #expect(Array(self.words(line.trimmingCharacters(in: .whitespaces)).prefix(2)) == words, "\(text)")
        }
        let titles = text.filter { line in StatisticsText.Group.allCases.contains { $0.rawValue == line } }
        #expect(titles == ["Now", "Waiting now", "Since the service started", "Lost or refused since then"])
        for key in StatisticsKey.allCases {
            #expect(text.contains { $0.hasPrefix("  \(key.rawValue) ") && words($0).count == 3 }, "\(key): \(text)")
        }
        let object = try json(try #require(try lines(bell.run("status", "--json")).first))
        let statistics = try #require(object["Statistics"] as? [String: Any])
        #expect(statistics["posted"] as? Int == 2 && statistics["unmatched"] as? Int == 1)
        #expect(object["Version"] is String && object["Limits"] is [String: Any])
        observer.terminate()
    }

    @Test("clients --posters lists the connected posters, the busiest first, with or without observers")
    func posters() throws {
        let bell = try Bell()
        #expect(try lines(bell.run("clients", "--posters")).count == 1, "the titles")
        let observer = try bell.observe("Ding")
        let both = try ChattyClient(on: bell.bus, observing: "Dong")
        let poster = try ChattyClient(on: bell.bus, observing: nil)
        try both.post("Ding", times: 1)
        try poster.post("Ding", times: 2)
        let table = try lines(bell.run("clients", "--posters")).map(words)
        #expect(table.first == ["name", "pid", "process", "posted", "refused", "app"], "\(table)")
        #expect(
            table.dropFirst().map { Array($0[1...4]) }
                == [["\(poster.pid)", "python3", "2", "0"], ["\(both.pid)", "python3", "1", "0"]], "\(table)")
        let rows = try lines(bell.run("clients", "--posters", "--json")).map(json)
        #expect(rows.map { $0["posted"] as? Int } == [2, 1] && rows.map { $0["refused"] as? Int } == [0, 0])
        #expect(rows.map { $0["pid"] as? Int } == [Int(poster.pid), Int(both.pid)])
        #expect(try lines(bell.run("clients")).count == 3, "without those that only post")
        poster.end()
        try eventually("it is gone") { try lines(bell.run("clients", "--posters")).count == 2 }
        observer.terminate()
    }

    @Test("G1: post --all-sessions requires an export list, and status shows sessions only where one is configured")
    func sessions() throws {
        let bell = try Bell()
        #expect(try !lines(bell.run("status")).map(words).contains { $0.first == "sessions" })
        let refused = try Command.run(
            try Bell.path(), ["post", "Ding", "--all-sessions"], environment: bell.bus.environment)
        #expect(refused.exitCode != 0 && refused.standardError.contains("export in [Sessions]"), "\(refused)")
        try bell.bus.configure("[Sessions]\nexport=Ding\n")
        let reload = try Command.run(
            "gdbus",
            [
                "call", "--session", "-d", ServiceProcess.busName, "-o", ServiceProcess.objectPath, "-m",
                "\(ServiceProcess.busName).ReloadConfiguration",
            ], environment: bell.bus.environment)
        #expect(reload.exitCode == 0, "\(reload)")
        let posted = try Command.run(
            try Bell.path(), ["post", "Ding", "--all-sessions"], environment: bell.bus.environment)
        #expect(posted.exitCode == 0, "\(posted)")
        let line = try #require(try lines(bell.run("status")).map(words).first { $0.first == "sessions" })
        #expect(line.count == 2 && line[1].hasSuffix("0 refused"), "\(line)")
        let object = try json(try #require(try lines(bell.run("status", "--json")).first))
        #expect((object["Sessions"] as? [String: Any])?["export"] as? [String] == ["Ding"])
        let both = try Command.run(
            try Bell.path(), ["post", "Ding", "--all-sessions", "--while-connected"],
            environment: bell.bus.environment)
        #expect(both.exitCode == 0, "\(both)")
    }

    @Test("P2: status shows the policy in force")
    func policy() throws {
        let bell = try Bell()
        #expect(try lines(bell.run("status")).map(words).contains(["open names", "none"]))
        let directory = try #require(bell.bus.environment["XDG_CONFIG_HOME"]) + "/carillon"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let text = "[Policy]\nopen-names=Ding;org.x.*\nunidentified=refuse\n[Policy org.x.Y]\nobserve=*\npost=\n"
        try text.write(toFile: directory + "/carillon.conf", atomically: true, encoding: .utf8)
        let reload = try Command.run(
            "gdbus",
            [
                "call", "--session", "-d", ServiceProcess.busName, "-o", ServiceProcess.objectPath, "-m",
                "\(ServiceProcess.busName).ReloadConfiguration",
            ], environment: bell.bus.environment)
        #expect(reload.exitCode == 0, "\(reload)")
        let shown = try lines(bell.run("status")).map(words)
        for line in [
            ["sandboxes", "own and open names"], ["open names", "Ding; org.x.*"],
            ["unidentified", "refuse, open names only"], ["application", "org.x.Y observe: own and open names, *"],
            ["application", "org.x.Y post: own and open names, none"],
        ] {
            #expect(shown.contains(line), "\(shown)")
        }
        let object = try json(try #require(try lines(bell.run("status", "--json")).first))
        let policy = try #require(object["Policy"] as? [String: Any])
        #expect(policy["open-names"] as? [String] == ["Ding", "org.x.*"])
    }

    @Test("clients lists the connected clients, and observers their registrations")
    func lists() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "Dong", "--object", "the door\n")
        let clients = try lines(bell.run("clients", "--json")).map(json)
        #expect(clients.count == 1)
        #expect(clients.first?["pid"] as? Int == Int(observer.pid))
        #expect(clients.first?["process"] as? String == "carillon")
        #expect(clients.first?["suspended"] as? Bool == false)
        let name = try #require(clients.first?["name"] as? String)

        for arguments in [[], [name], ["carillon"], ["\(observer.pid)"]].map({ ["observers", "--json"] + $0 }) {
            let result = try Command.run(try Bell.path(), arguments, environment: bell.bus.environment)
            let observers = try lines(result).map(json)
            #expect(observers.map { $0["name"] as? String } == ["Ding", "Dong"])
            #expect(observers.allSatisfy { $0["object"] as? String == "the door\n" })
            #expect(observers.allSatisfy { $0["suspension-behavior"] as? String == "coalesce" })
        }
        // A table has a line for each, whatever is in a name.
        let table = try lines(bell.run("observers"))
        #expect(table.count == 3 && table[1].contains("\"the door\\n\""), "\(table)")
        #expect(try lines(bell.run("clients")).count == 2)
        #expect(try lines(bell.run("observers", ":1.999", "--json")).isEmpty)
        let nobody = try bell.run("observers", "nobody")
        #expect(nobody.exitCode == 6 && nobody.standardError.contains("there is no client 'nobody'"), "\(nobody)")
        observer.terminate()
    }

    @Test(
        "Invalid arguments cause exit status 1",
        arguments: [["status", "x"], ["clients", "x"], ["observers", "x", "y"], ["status", "--no-such-option"]])
    func usage(arguments: [String]) throws {
        let result = try Command.run(try Bell.path(), arguments, environment: ["PATH": "/usr/bin:/bin"])
        #expect(result.exitCode == 1, "\(result)")
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// `data/carillon.conf` has every key that the service knows, with what the source says of it.
@Suite("The sample configuration", .limited)
struct SampleConfigurationTests {
    /// A key that is a comment, with the paragraph of comments before it.
    private struct Entry {
        let group: String
        let key: String
        let value: String
        let comment: String
    }

    private let entries: [Entry]

    init() throws {
        var entries: [Entry] = []
        var group = ""
        var comment: [String] = []
        for line in try Document("data/carillon.conf").lines {
            if let match = line.wholeMatch(of: /\[([\w .]+)\]/) {
                group = String(match.1)
            } else if let match = line.wholeMatch(of: /#([a-z-]+)=(\S*)/) {
                entries.append(
                    Entry(
                        group: group, key: String(match.1), value: String(match.2),
                        comment: comment.joined(separator: " ")))
                comment = []
            } else if line.hasPrefix("# ") {
                comment.append(String(line.dropFirst(2)))
            } else {
                try #require(line.isEmpty || line == "#", "a line that is neither a comment nor a key: \(line)")
                comment = []
            }
        }
        self.entries = entries
    }

    @Test("docs/configuration.md has every key, and each limit with its default and its maximum")
    func document() throws {
        let rows = try Document("docs/configuration.md").lines.filter { $0.hasPrefix("| `") }
        let limits = Limits.table.map { row in
            (row.key.rawValue, Self.shown(row.standard, of: row.key), Self.shown(row.hardMaximum, of: row.key))
        }
        for (key, standard, maximum) in limits {
            let row = try #require(rows.first { $0.hasPrefix("| `\(key)` |") }, "\(key)")
            #expect(row.hasSuffix(" | \(standard) | \(maximum) |"), "\(row)")
        }
        let documented = rows.flatMap { row in row.matches(of: /`([a-z]+(?:-[a-z]+)*)`/).map { String($0.1) } }
        for entry in entries { #expect(documented.contains(entry.key), "\(entry.key)") }
    }

    /// A limit as people write it.
    private static func shown(_ value: UInt64, of key: Limits.Key) -> String {
        let isInBytes = key.rawValue.contains("bytes") || key.rawValue.hasSuffix("length")
        if isInBytes, value >= 1 << 30, value.isMultiple(of: 1 << 30) { return "\(value >> 30) GiB" }
        if isInBytes, value >= 1 << 20, value.isMultiple(of: 1 << 20) { return "\(value >> 20) MiB" }
        let digits = String(value).replacing(/(\d)(?=(?:\d{3})+$)/) { "\($0.1)," }
        return isInBytes ? "\(digits) bytes" : digits
    }

    @Test("The sample has every limit with its default, its maximum and its reason")
    func limits() {
        let limits = entries.filter { $0.group == "Limits" }
        #expect(limits.map(\.key) == Limits.table.map(\.key.rawValue))
        for (entry, row) in zip(limits, Limits.table) {
            #expect(entry.value == String(row.standard), "\(entry.key)")
            #expect(entry.comment.contains("At most \(row.hardMaximum)"), "\(entry.key): \(row.hardMaximum)")
            #expect(entry.comment.hasSuffix("Why: \(row.reason)."), "\(entry.key): \(row.reason)")
        }
    }

    @Test("The service accepts exactly the groups and keys of the sample")
    func keys() throws {
        var groups: [String] = []
        for entry in entries where groups.last != entry.group { groups.append(entry.group) }
        // Every application has a group of its own; the sample has one for an example.
        let names = groups.map { group in
            group.firstIndex(of: " ").map { "[\(group[..<$0]) ID]" } ?? "[\(group)]"
        }
        #expect(Set(try known("[None]", "key=1")) == Set(names))
        for group in groups {
            let keys = entries.filter { $0.group == group }.map(\.key)
            #expect(try known("[\(group)]", "none=1").sorted() == keys.sorted(), "[\(group)]")
        }
    }

    @Test("The sample lists the activity sources and the choices of the other activity keys")
    func activity() throws {
        let source = try #require(entries.first { $0.key == "source" })
        let choices = try known("[Activity]", "source=none-such")
        try #require(choices.contains(source.value) && choices.count > 2)
        // In the text, they stand behind the colon.
        let listed = source.comment.split(separator: ":").last!.replacing(/\([^)]*\)/, with: "")
            .matches(of: /[a-z0-9]+(?:-[a-z0-9]+)*/).map { String($0.0) }
        #expect(Set(listed).subtracting(["or", "one", "of"]) == Set(choices))

        let automatic = try #require(entries.first { $0.key == "automatic-suspension" })
        #expect(["true", "false"].contains(automatic.value) && automatic.comment.contains("true or false"))
        #expect(try known("[Activity]", "automatic-suspension=perhaps") == ["true", "false"])

        for entry in entries where entry.key == "inactive-when" {
            let choices = try known("[\(entry.group)]", "inactive-when=perhaps")
            #expect(choices == ["unfocused", "hidden"] && choices.first == entry.value)
        }
        let general = try #require(entries.first { $0.group == "Activity" && $0.key == "inactive-when" })
        #expect(general.comment.contains("unfocused (") && general.comment.contains("hidden ("))
    }

    @Test("The sample lists the choices for calls of unidentified clients")
    func unidentified() throws {
        let entry = try #require(entries.first { $0.key == "unidentified" })
        let choices = try known("[Policy]", "unidentified=perhaps")
        #expect(choices.contains(entry.value) && choices.allSatisfy(entry.comment.contains))
    }

    @Test("The service with the sample's keys in force has the default limits and logs no mistake")
    func standardValues() throws {
        let all = try Document("data/carillon.conf").text.replacing(/(?m)^#([a-z-]+=)/) { "\($0.1)" }
        #expect(all.matches(of: /(?m)^[a-z-]+=/).count == entries.count)
        let (bus, service) = try serve(configuration: all)
        defer { withExtendedLifetime(bus) {} }
        #expect(!service.log.contains("carillon.conf"), "\(service.transcript)")
        #expect(try reload(bus).exitCode == 0)
        let limits = try Command.run(
            "gdbus",
            [
                "call", "--session", "-d", ServiceProcess.busName, "-o", ServiceProcess.objectPath, "-m",
                "org.freedesktop.DBus.Properties.Get", ServiceProcess.busName, "Limits",
            ], environment: bus.environment)
        for row in Limits.table {
            #expect(limits.standardOutput.contains("'\(row.key.rawValue)': <uint64 \(row.standard)>"), "\(limits)")
        }
        #expect(try service.terminate() == .exited(0))
    }

    // MARK: The service's word

    /// What the service says that there is instead of what this configuration has.
    private func known(_ group: String, _ line: String) throws -> [String] {
        let (bus, service) = try serve(configuration: "\(group)\n\(line)\n")
        let refusal = try reload(bus)
        try #require(refusal.exitCode != 0, "\(refusal)")
        #expect(try service.terminate() == .exited(0))
        let message = refusal.standardError.trimmingCharacters(in: .whitespacesAndNewlines)
        let list = try #require(
            message.firstMatch(of: /(?:only:?|there are:|neither) (.*?)(?: for \S+)?$/), "\(message)")
        let words = list.1.matches(of: /\[[A-Za-z ]+\]|[A-Za-z0-9-]+/).map { String($0.0) }
        return words.filter { !["and", "nor"].contains($0) }
    }

    private func serve(configuration: String) throws -> (PrivateBus, ServiceProcess) {
        let bus = try PrivateBus()
        let directory = try #require(bus.environment["XDG_CONFIG_HOME"]) + "/carillon"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        try configuration.write(toFile: directory + "/carillon.conf", atomically: true, encoding: .utf8)
        return (bus, try ServiceProcess(on: bus))
    }

    private func reload(_ bus: PrivateBus) throws -> CommandResult {
        try Command.run(
            "gdbus",
            [
                "call", "--session", "-d", ServiceProcess.busName, "-o", ServiceProcess.objectPath, "-m",
                "\(ServiceProcess.busName).ReloadConfiguration",
            ], environment: bus.environment)
    }
}

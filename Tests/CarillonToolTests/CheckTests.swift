// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// `carillon check` and `carillon reload`.
@Suite("E9: carillon check and carillon reload", .serialized, .limited)
struct CheckTests {
    private func check(_ files: [String], home: TemporaryDirectory) throws -> CommandResult {
        try Command.run(
            try Bell.path(), ["check"] + files,
            environment: [
                "PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": home.path, "XDG_CONFIG_DIRS": "/nonexistent",
                "LD_LIBRARY_PATH": ProcessInfo.processInfo.environment["LD_LIBRARY_PATH"] ?? "",
            ])
    }

    @Test("check reports every file, and every mistake with its file and line")
    func files() throws {
        let home = try TemporaryDirectory()
        try home.write("[Limits]\nname-length=10\n", to: "good.conf")
        try home.write("[Limits]\nname-lenght=10\n\n[Policy]\nunidentified=perhaps\n", to: "bad.conf")
        let good = try check([home.entry("good.conf")], home: home)
        #expect(good.exitCode == 0 && good.standardOutput == "\(home.entry("good.conf")): no mistakes\n", "\(good)")
        let both = try check([home.entry("good.conf"), home.entry("bad.conf"), home.entry("none.conf")], home: home)
        #expect(both.exitCode == 1 && both.standardOutput == good.standardOutput, "\(both)")
        let lines = both.standardError.split(separator: "\n")
        #expect(lines.count == 3, "\(both)")
        #expect(
            lines.first?.hasPrefix("\(home.entry("bad.conf")):2: there is no limit 'name-lenght'") == true, "\(both)")
        #expect(lines.dropFirst().first?.hasPrefix("\(home.entry("bad.conf")):5: 'perhaps'") == true, "\(both)")
        #expect(lines.last == "\(home.entry("none.conf")): there is no such file", "\(both)")
    }

    @Test("check without arguments examines the configuration files that the service would read")
    func machine() throws {
        let home = try TemporaryDirectory()
        let none = try check([], home: home)
        #expect(none.exitCode == 0 && none.standardOutput.contains("the defaults are in force"), "\(none)")
        try FileManager.default.createDirectory(
            atPath: home.entry("carillon"), withIntermediateDirectories: true)
        try home.write("[Limits\n", to: "carillon/carillon.conf")
        let wrong = try check([], home: home)
        #expect(wrong.exitCode == 1 && wrong.standardError.contains("/carillon.conf:1: '[Limits'"), "\(wrong)")
    }

    @Test(
        "reload applies a correct configuration, and rejects a faulty one with file, line and reason",
        arguments: BusKind.available)
    func reload(kind: BusKind) throws {
        let bell = try Bell(kind)
        try bell.bus.configure("[Limits]\nname-length=4\n")
        let reloaded = try bell.run("reload")
        #expect(reloaded.exitCode == 0 && reloaded.standardOutput.isEmpty && reloaded.standardError.isEmpty)
        #expect(try bell.run("post", "Dings").exitCode == 1)
        try bell.bus.configure("[Limits]\nname-length=none\n")
        let refused = try bell.run("reload")
        #expect(refused.exitCode == 1, "\(refused)")
        #expect(refused.standardError.contains("carillon.conf:2: 'none' is not a number"), "\(refused)")
        #expect(try bell.run("post", "Dings").exitCode == 1, "what was in force stays")
        let status = try bell.run("status")
        #expect(status.standardOutput.contains("carillon.conf:2: 'none' is not a number"), "\(status)")
        try bell.service.kill()
        let none = try bell.run("reload")
        #expect(none.exitCode == 2 && none.standardError.contains("the service does not run"), "\(none)")
    }
}

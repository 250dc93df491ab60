// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// `carillon complete`, which the completions of all shells ask.
@Suite("B3: carillon complete", .serialized, .limited)
struct CompleteTests {
    private func complete(_ words: String..., environment: [String: String]) throws -> [String] {
        let result = try Command.run(try Bell.path(), ["complete", "--"] + words, environment: environment)
        try #require(result.exitCode == 0 && result.standardError.isEmpty, "\(result)")
        return result.standardOutput.split(separator: "\n").map(String.init)
    }

    @Test("complete offers the names, objects and clients that the running service knows", arguments: BusKind.available)
    func known(kind: BusKind) throws {
        let bell = try Bell(kind)
        let environment = bell.bus.environment
        let observer = try bell.observe("org.x.Ding", "--object", "the door")
        let other = try bell.observe("org.y.Dong")
        try bell.post("org.x.Battery", "--retain", "--object", "BAT0", "percent=80")
        try bell.post("org.x.Battery", "--retain", "percent=80")
        try bell.post("org.x.\tTab", "--retain")
        #expect(
            try complete("get", "", environment: environment) == [
                "words", "org.x.Battery\thas a value", "org.x.Ding\tobserved", "org.y.Dong\tobserved",
            ])
        #expect(try complete("get", "org.y", environment: environment) == ["words", "org.y.Dong\tobserved"])
        for words in [["post", "org.x.Ding", "--object"], ["get", "-o"], ["observe", "a", "org.x.Ding", "-o"]] {
            let offered = try Command.run(
                try Bell.path(), ["complete", "--"] + words + ["the"], environment: environment)
            let all = words[0] == "observe" ? "words\n" : "words\nthe door\torg.x.Ding\n"
            #expect(offered.standardOutput == all, "\(words)")
        }
        #expect(
            try complete("get", "org.x.Battery", "--object=", environment: environment) == [
                "words", "--object=BAT0\torg.x.Battery",
            ])
        #expect(try complete("get", "org.x.Battery", "", environment: environment) == ["words"], "it takes one")
        #expect(try complete("observe", "a", "org.y", environment: environment) == ["words", "org.y.Dong\tobserved"])
        let clients = try complete("why", "", environment: environment)
        #expect(clients.count == 4 && clients.contains("carillon\tprogram"), "\(clients)")
        #expect(clients.filter { $0.hasPrefix(":") && $0.hasSuffix("\tcarillon") }.count == 2, "\(clients)")
        observer.terminate()
        other.terminate()
    }

    @Test("complete starts no service, and reports no error if the service or the bus is missing")
    func none() throws {
        let bus = try PrivateBus(.dbusDaemon, activations: [.service()])
        #expect(try complete("get", "", environment: bus.environment) == ["words"])
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == nil)
        let nowhere = ["DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"]
        #expect(try complete("get", "", environment: nowhere) == ["words"])
        #expect(
            try complete("forg", environment: nowhere) == ["words", "forget\tRemove the retained values of a name"])
    }

    @Test("complete returns without names if the service does not respond")
    func stopped() throws {
        let bell = try Bell()
        try bell.post("Ding", "--retain")
        try bell.service.stop()
        defer { bell.service.goOn() }
        // It would not answer for ever.
        #expect(try complete("get", "", environment: bell.bus.environment) == ["words"])
    }

    @Test("complete exits with code 1 unless its arguments are '-- WORD'", arguments: [[], ["--"], ["get", ""]])
    func usage(arguments: [String]) throws {
        let result = try Command.run(
            try Bell.path(), ["complete"] + arguments, environment: ["PATH": "/usr/bin:/bin"])
        #expect(result.exitCode == 1 && result.standardError.contains("complete -- WORD"), "\(result)")
    }
}

/// Real shells on a real terminal.
@Suite(
    "B3: completion in shells", .serialized, .enabled(if: TmuxScreen.isInstalled, "tmux is not installed"),
    .limited)
struct ShellCompletionTests {
    @Test("bash completes commands, options, option values, names, clients and objects")
    func bash() throws {
        try check("bash --norc --noprofile", setUp: "source \(Self.folder)/carillon")
    }

    @Test(
        "zsh completes commands, options, option values, names, clients and objects",
        .enabled(if: Command.find("zsh") != nil, "zsh is not installed"))
    func zsh() throws {
        try check("zsh -f", setUp: "fpath=(\(Self.folder) $fpath); autoload -U compinit; compinit -u -D")
    }

    @Test(
        "fish completes commands, options, option values, names, clients and objects",
        .enabled(if: Command.find("fish") != nil, "fish is not installed"))
    func fish() throws {
        // What it suggests while nobody asks would be on the screen, too.
        try check(
            "fish --no-config", setUp: "set -g fish_autosuggestion_enabled 0; source \(Self.folder)/carillon.fish")
    }

    private static let folder = Executables.packageRoot + "/data/completions"

    private func check(_ shell: String, setUp: String) throws {
        let bell = try Bell()
        try bell.post("org.x.Ding", "--retain", "--object", "the door", "n=42")
        let observer = try bell.observe("org.y.Dong")
        let commands = try bell.bus.directory.createSubdirectory("home/commands")
        try FileManager.default.createSymbolicLink(
            atPath: commands + "/carillon", withDestinationPath: try Bell.path())
        var environment = bell.bus.environment
        environment["PATH"] = "\(commands):/usr/bin:/bin"
        let screen = try TmuxScreen(environment: environment)
        try screen.run("exec \(shell)")
        try screen.run("\(setUp); clear; echo RE''ADY")
        try screen.wait("the shell is ready") { lines in lines.contains { $0.hasPrefix("READY") } }

        /// Types something, presses Tab, waits for what it becomes, and takes it back.
        func expect(_ typed: String, becomes completed: String) throws {
            try screen.type(typed)
            try screen.press("Tab")
            try screen.wait("'\(typed)' becomes '\(completed)'") { lines in
                lines.contains { $0.hasSuffix(completed) || $0.contains(completed + " ") }
            }
            // Control-C would throw away what is typed behind it.
            try screen.press("C-u")
            try screen.run("clear; echo AGA''IN")
            try screen.wait("the line is taken back") { lines in
                lines.contains { $0.hasPrefix("AGAIN") } && !lines.contains { $0.contains(completed) }
            }
        }
        try expect("carillon forg", becomes: "carillon forget")
        try expect("carillon post --deliver", becomes: "carillon post --deliver-immediately")
        try expect("carillon post --posting-style wh", becomes: "carillon post --posting-style when-idle")
        try expect("carillon post --posting-style=wh", becomes: "carillon post --posting-style=when-idle")
        try expect("carillon post -c name,", becomes: "carillon post -c name,object")
        try expect("carillon observe org.y", becomes: "carillon observe org.y.Dong")
        let client = try bell.run("clients", "--json").standardOutput.firstMatch(of: /"name": "(:1\.[0-9]+)"/)
        let name = try #require(client).1
        try expect("carillon why :1", becomes: "carillon why \(name)")
        // What needs quotes gets them: the command finds it.
        try screen.type("carillon get org.x.Ding --object the")
        try screen.press("Tab")
        try screen.wait("the object is completed") { lines in lines.contains { $0.contains("door") } }
        try screen.press("Enter")
        try screen.wait(for: "{\"n\": 42}")
        observer.terminate()
    }
}

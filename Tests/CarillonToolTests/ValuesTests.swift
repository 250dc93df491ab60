// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Values that stay (R1 to R3), from the command line.
@Suite("carillon get, forget, retained", .serialized, .limited)
struct ValuesTests {
    @Test("R3: a value retained by one command can be read, listed and removed by others", arguments: BusKind.available)
    func leftAndRead(kind: BusKind) throws {
        let bell = try Bell(kind)
        try bell.post("--retain", "Battery", "percent=80", "--object", "BAT0")
        try bell.post("--retain", "Battery", "percent=81", "--object", "BAT1")
        try bell.post("--retain", "Battery", "percent=79", "--object", "BAT0")
        try bell.post("Battery", "percent=1", "--object", "BAT0")
        let all = try bell.run("get", "Battery")
        #expect(all.exitCode == 0)
        #expect(all.standardOutput == "Battery  BAT1  {\"percent\": 81}\nBattery  BAT0  {\"percent\": 79}\n")
        #expect(try bell.run("get", "Battery", "-o", "BAT1").standardOutput == "Battery  BAT1  {\"percent\": 81}\n")
        let json = try ObservedLine(try bell.run("get", "--json", "-o", "BAT0", "Battery").standardOutput)
        #expect(Set(json.members.keys) == ["name", "object", "userInfo", "details"])
        let details = try #require(json.members["details"] as? [String: Any])
        #expect(details["serial"] as? Int == 3 && details["uid"] as? UInt32 == getuid())
        let list = try bell.run("retained").standardOutput.split(separator: "\n")
        #expect(list.count == 3 && list[0].hasPrefix("name") && list[2].hasPrefix("Battery  BAT0"))
        #expect(try bell.run("retained", "--json").standardOutput.split(separator: "\n").count == 2)

        let forgotten = try bell.run("forget", "Battery", "--object", "BAT0")
        #expect(forgotten.exitCode == 0 && forgotten.standardError == "forgot 1 value\n")
        #expect(try bell.run("get", "Battery", "-o", "BAT0").exitCode == 6)
        #expect(try bell.run("forget", "Battery", "-o", "BAT0").exitCode == 6)
        #expect(try bell.run("forget", "Battery").exitCode == 0)
        #expect(try bell.run("get", "Battery").standardOutput == "")
    }

    @Test("G3: retained lists values from other hosts and users with their origin")
    func origins() throws {
        let bell = try Bell()
        try bell.post("--retain", "Volume", "n=1")
        #expect(try !bell.run("retained").standardOutput.contains("from"))
        for (n, options) in [
            (2, "'host': <'alpha'>, 'user': <'anna'>"), (3, "'host': <'alpha'>"), (4, "'user': <'o k'>"),
        ] {
            let made = try Command.run(
                "gdbus",
                [
                    "call", "-e", "-d", ServiceProcess.busName, "-o", ServiceProcess.objectPath, "-m",
                    ServiceProcess.busName + ".Post", "Volume", "", "{'n': <\(n)>}", "{'retain': <true>, \(options)}",
                ], environment: bell.bus.environment)
            try #require(made.exitCode == 0, "\(made)")
        }
        let expected = (1...4).map { "Volume  {\"n\": \($0)}\n" }.joined()
        #expect(try bell.run("get", "Volume").standardOutput == expected)
        let list = try bell.run("retained").standardOutput.split(separator: "\n")
        #expect(
            zip(list, ["from", "-", "anna@alpha", "@alpha", "o k"]).allSatisfy { $0.hasSuffix("  " + $1) }, "\(list)")
        #expect(try bell.run("forget", "Volume").standardError == "forgot 4 values\n")
    }

    @Test("R2: --retained prints the existing values before newer notifications")
    func observed() throws {
        let bell = try Bell()
        for n in 1...3 { try bell.post("--retain", "Ding", "n=\(n)", "--object", "\(n % 2)") }
        let observer = try bell.observe("--retained", "Ding", "--count", "3")
        try bell.post("Ding", "n=4")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == "Ding  0  {\"n\": 2}\nDing  1  {\"n\": 3}\nDing  {\"n\": 4}\n")
    }

    @Test("R4: a post with --posting-style at-exit is made when its command exits or is killed")
    func lastWill() throws {
        let bell = try Bell()
        let observer = try bell.observe("Gone", "--count", "3")
        let program = try RunningCommand(
            try Bell.path(), ["post", "Gone", "--posting-style", "at-exit", "--coalesce-on", "name", "--lines", "-v"],
            environment: bell.bus.environment)
        program.write("n=1\nn=2\n")
        for _ in 1...2 { _ = try program.nextLine { $0 == "queued" } }
        try bell.post("Gone", "--posting-style", "at-exit", "n=0")
        try bell.post("Gone", "n=9")
        _ = try observer.nextLine { $0.contains("9") }
        program.kill()
        _ = try program.waitForExit()
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == "Gone  {\"n\": 0}\nGone  {\"n\": 9}\nGone  {\"n\": 2}\n")
    }

    @Test("R1: a --while-connected value ends with its command, and an --expires value at its time")
    func ends() throws {
        let bell = try Bell()
        let present = try RunningCommand(
            try Bell.path(), ["post", "Here", "--while-connected", "--lines"], environment: bell.bus.environment)
        present.write("who=me\n")
        try eventually("it is there") { try bell.run("get", "Here").exitCode == 0 }
        present.kill()
        _ = try present.waitForExit()
        try eventually("it is gone") { try bell.run("get", "Here").exitCode == 6 }
        // Its time may be over before it is looked at, where much else runs.
        try eventually("it is kept") {
            try bell.post("Soon", "--retain", "--expires", "1")
            return try bell.run("get", "Soon").exitCode == 0
        }
        try eventually("its time is over") { try bell.run("get", "Soon").exitCode == 6 }
    }

    @Test(
        "A usage error names the wrong or missing argument",
        arguments: [
            (["get"], "NAME"), (["get", "a", "b"], "one NAME"), (["forget"], "NAME"), (["retained", "x"], "'x'"),
            (["post", "a", "--expires", "0"], "--expires"), (["post", "a", "--expires", "soon"], "'soon'"),
        ])
    func usage(arguments: [String], word: String) throws {
        let result = try Command.run(try Bell.path(), arguments, environment: [:])
        #expect(result.exitCode == 1 && result.standardError.contains(word), "\(result)")
    }
}

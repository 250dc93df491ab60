// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Why something arrives or not, and programs that are suspended to test them, from the command line.
@Suite("carillon why, suspend, resume, follow", .serialized, .limited)
struct WhyTests {
    /// What `clients --json` says of a process.
    private func client(_ process: pid_t, of bell: Bell) throws -> [String: Any] {
        for line in try bell.run("clients", "--json").standardOutput.split(separator: "\n") {
            let members = try ObservedLine(String(line)).members
            if members["pid"] as? Int == Int(process) { return members }
        }
        throw NotInTime("the client \(process)")
    }

    @Test("B3: a program is suspended and released by its process id, its program name or its unique name")
    func override() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--suspension-behavior", "hold", "--count", "3")
        let name = try #require(try client(observer.pid, of: bell)["name"] as? String)
        for (n, chosen) in ["\(observer.pid)", "carillon", name].enumerated() {
            let suspended = try bell.run("suspend", chosen)
            #expect(suspended.exitCode == 0, "\(suspended)")
            #expect(suspended.standardOutput == "suspended  \(name)  carillon  \(observer.pid)\n")
            try bell.post("Ding", "n=\(n)")
            #expect(try client(observer.pid, of: bell)["queued"] as? Int == 1)
            let why = try bell.run("why", chosen, "Ding")
            #expect(why.exitCode == 0 && why.standardOutput.contains("suspended it for a test"), "\(why)")
            #expect(why.standardOutput.contains("1 until it is resumed."), "\(why)")
            if n == 1 {
                #expect(try bell.run("resume", chosen).standardOutput.hasPrefix("resumed  \(name)"))
                #expect(try bell.run("why", chosen).standardOutput.contains("It counts as active in any case"))
            }
            #expect(try bell.run("follow", chosen).standardOutput.hasPrefix("override revoked  \(name)"))
        }
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == "Ding  {\"n\": 0}\nDing  {\"n\": 1}\nDing  {\"n\": 2}\n")
    }

    @Test("B3: a program is found by its full name or the 15 bytes that the kernel keeps, not by a shorter prefix")
    func longName() throws {
        let bell = try Bell()
        let directory = try TemporaryDirectory()
        let program = directory.entry("bell-of-the-cathedral")
        try FileManager.default.createSymbolicLink(atPath: program, withDestinationPath: try Bell.path())
        let observer = try RunningCommand(program, ["observe", "Ding"], environment: bell.bus.environment)
        _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        #expect(try client(observer.pid, of: bell)["process"] as? String == "bell-of-the-cat")
        for chosen in ["bell-of-the-cathedral", "bell-of-the-cat"] {
            let why = try bell.run("why", chosen, "Ding")
            #expect(why.exitCode == 0 && why.standardOutput.contains("would get 'Ding'"), "\(why)")
        }
        for chosen in ["bell-of-the-ca", "bell"] { #expect(try bell.run("why", chosen).exitCode == 6) }
        observer.terminate()
    }

    @Test("B3: why explains a name and an object, as text or JSON, for every connection of a program")
    func why() throws {
        let bell = try Bell()
        let one = try bell.observe("com.example.*")
        let other = try bell.observe("Ding", "--object", "door")
        let pattern = try bell.run("why", "\(one.pid)", "com.example.Ding")
        #expect(pattern.standardOutput.contains("none of its 1 observer matches"), "\(pattern)")
        #expect(pattern.standardOutput.contains("this one looks like a pattern"), "\(pattern)")
        let none = try bell.run("why", "\(other.pid)", "Ding")
        #expect(none.standardOutput.contains("it requires an object, and the notification has none"), "\(none)")
        let json = try bell.run("why", "--json", "carillon", "Ding", "-o", "door")
        let lines = try json.standardOutput.split(separator: "\n").map { try ObservedLine(String($0)).members }
        #expect(lines.count == 2, "\(json)")
        for line in lines {
            #expect(Set(line.keys) == ["client", "reasons"])
            #expect((line["reasons"] as? [String])?.isEmpty == false)
        }
        #expect(json.standardOutput.contains("would get 'Ding' of 'door' now."), "\(json)")
        one.terminate()
        other.terminate()
    }

    @Test("B3: why, suspend, resume and follow exit with 6 for an unknown client, and with 2 without a service")
    func nobody() throws {
        let bell = try Bell()
        for command in ["why", "suspend", "resume", "follow"] {
            for chosen in ["4711471", "no-such-program", ":1.9999"] {
                let result = try bell.run(command, chosen)
                #expect(result.exitCode == 6, "\(result)")
                #expect(
                    result.standardError
                        == "carillon: there is no client '\(chosen)'; 'carillon clients' lists all clients\n")
                #expect(result.standardOutput.isEmpty)
            }
        }
        _ = try bell.service.terminate()
        for command in ["why", "suspend", "resume", "follow"] { #expect(try bell.run(command, "1").exitCode == 2) }
    }
}

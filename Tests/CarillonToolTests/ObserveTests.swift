// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("carillon observe", .serialized, .limited)
struct ObserveTests {
    @Test(
        "B3: --json prints name, object, userInfo, observers, poster, serial and sequence", arguments: BusKind.available
    )
    func json(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe("--json", "--count", "2")
        try bell.post("Ding", "--object", "bell", "a=1")
        try bell.post("Dong")
        let first = try ObservedLine(try observer.nextLine())
        #expect(
            Set(first.members.keys) == ["name", "object", "userInfo", "observers", "poster", "serial", "sequence"])
        #expect(first.members["name"] as? String == "Ding")
        #expect(first.members["object"] as? String == "bell")
        #expect(first.userInfoText == #"{"a": 1}"#)
        #expect((first.members["observers"] as? [Int])?.count == 1)
        #expect((first.members["poster"] as? String)?.hasPrefix(":1.") == true)
        #expect(first.members["sequence"] as? Int == 1)
        let second = try ObservedLine(try observer.nextLine())
        #expect(second.members["object"] as? String == "")
        #expect(second.userInfoText == "{}")
        #expect(second.members["sequence"] as? Int == 2)
        let serials = [first, second].compactMap { $0.members["serial"] as? Int }
        #expect(serials.count == 2 && serials[1] == serials[0] + 1)
        #expect(try observer.waitForExit() == .exited(0))
    }

    @Test(
        "P1: --details prints the poster's identity and the time, also of a poster that has ended",
        arguments: ["observe", "monitor"])
    func details(word: String) throws {
        let bell = try Bell()
        func start(_ arguments: String...) throws -> RunningCommand {
            let command = try RunningCommand(
                try Bell.path(), [word, "--details"] + arguments, environment: bell.bus.environment)
            _ = try command.nextErrorLine(within: .start) { $0.hasPrefix("observing") || $0.hasPrefix("monitoring") }
            return command
        }
        let (people, json) = (try start("Ding"), try start("Ding", "--json"))
        let post = try RunningCommand(try Bell.path(), ["post", "Ding", "a=1"], environment: bell.bus.environment)
        #expect(try post.waitForExit() == .exited(0))
        let line = try ObservedLine(try json.nextLine())
        let details = try #require(line.members["details"] as? [String: Any])
        #expect(details["uid"] as? UInt32 == getuid() && details["pid"] as? Int32 == post.pid)
        #expect(details["process"] as? String == "carillon" && details["time"] is Int)
        #expect(Set(details.keys).isSubset(of: ["uid", "pid", "process", "app", "unit", "time"]))
        let text = try people.nextLine()
        #expect(text.contains("Ding  {\"a\": 1}  [uid \(getuid()), pid \(post.pid), process carillon, "), "\(text)")
        #expect(text.hasSuffix("Z]") && text.contains(", time \(Calendar.current.component(.year, from: Date()))-"))
    }

    @Test("R5: --interval prints the first notification, and then the newest of each interval")
    func interval() throws {
        let bell = try Bell()
        // Longer each time, until all posts fall into one interval.
        var shown: [[Substring]] = []
        for interval in ["1.5", "6", "24"] {
            let observer = try bell.observe("Ding", "--interval", interval, "--count", "3")
            for number in 1...5 { try bell.post("Ding", "n=\(number)") }
            try bell.post("Ding", "--object", "x", "n=6")
            #expect(try observer.waitForExit() == .exited(0))
            let lines = observer.standardOutput.split(separator: "\n")
            #expect(lines.first == "Ding  {\"n\": 1}")
            shown.append(lines)
            if lines.sorted() == ["Ding  x  {\"n\": 6}", "Ding  {\"n\": 1}", "Ding  {\"n\": 5}"] { break }
        }
        #expect(shown.last?.contains("Ding  {\"n\": 5}") == true, "what came meanwhile is one: \(shown)")
        for text in ["0", "-1", "x", "1e9"] {
            #expect(try bell.run("observe", "--interval", text).exitCode == 1)
        }
    }

    @Test("C1: observe without names prints all names, and with names only these")
    func names() throws {
        let bell = try Bell()
        let all = try bell.observe("--count", "4")
        let two = try bell.observe("Ding", "Dong", "--count", "2")
        for name in ["Ding", "Dang", "Dong", "Ding Dong"] { try bell.post(name) }
        #expect(try all.waitForExit() == .exited(0))
        #expect(try two.waitForExit() == .exited(0))
        #expect(all.standardOutput == "Ding\nDang\nDong\n\"Ding Dong\"\n")
        #expect(two.standardOutput == "Ding\nDong\n")
    }

    @Test("D6: a name given twice makes one observer, and each notification arrives once")
    func sameNameTwice() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "Ding", "--json", "--count", "2")
        try bell.post("Ding")
        try bell.post("Ding")
        let first = try ObservedLine(try observer.nextLine())
        #expect((first.members["observers"] as? [Int])?.count == 1)
        #expect(first.members["sequence"] as? Int == 1)
        #expect(try ObservedLine(try observer.nextLine()).members["sequence"] as? Int == 2)
    }

    @Test("C1: --object matches only posts of that object, and no post without an object")
    func object() throws {
        let bell = try Bell()
        let observer = try bell.observe("--object", "bell", "--count", "2")
        let named = try bell.observe("Ding", "-o", "bell", "-n", "1")
        try bell.post("Ding")
        try bell.post("Ding", "--object", "tower")
        try bell.post("Dong", "--object", "bell")
        try bell.post("Ding", "--object", "bell")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(try named.waitForExit() == .exited(0))
        #expect(observer.standardOutput == "Dong  bell\nDing  bell\n")
        #expect(named.standardOutput == "Ding  bell\n")
    }

    @Test("D4: posts of consecutive commands arrive in order, and none is missing")
    func order() throws {
        let bell = try Bell()
        let observer = try bell.observe("--count", "100")
        let script = "i=0; while [ $i -lt 100 ]; do \"$0\" post Ding n=$i || exit; i=$((i+1)); done"
        let result = try Command.run("sh", ["-c", script, try Bell.path()], environment: bell.bus.environment)
        #expect(result.exitCode == 0, "\(result)")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == (0..<100).map { "Ding  {\"n\": \($0)}\n" }.joined())
    }

    @Test("B3: observe exits with 0 when its --count is reached before its --timeout")
    func count() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--count", "1", "--timeout", "60")
        try bell.post("Ding", "a=1")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == "Ding  {\"a\": 1}\n")
    }

    @Test("B3: observe exits with 3 at its --timeout, even after notifications")
    func timeout() throws {
        let bell = try Bell()
        let silent = try bell.run("observe", "Ding", "--timeout", "0.1")
        #expect(silent.exitCode == 3 && silent.standardOutput.isEmpty, "\(silent)")
        // Longer each time, until there is time enough for something to come before.
        for seconds in ["1", "4", "16", "64"] {
            let counting = try RunningCommand(
                try Bell.path(), ["observe", "Ding", "--count", "2", "--timeout", seconds],
                environment: bell.bus.environment)
            let line = try? counting.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
            if line != nil { try bell.post("Ding") }
            #expect(try counting.waitForExit(within: .start) == .exited(3), "\(counting.transcript)")
            if counting.standardOutput == "Ding\n" { return }
            #expect(counting.standardOutput.isEmpty)
        }
        Issue.record("nothing came within a minute")
    }

    @Test(
        "B3: observe announces the observed names on standard error, and prints only notifications on standard output")
    func announcement() throws {
        let bell = try Bell()
        func announced(_ arguments: String...) throws -> String {
            let result = try Command.run(
                try Bell.path(), ["observe", "--timeout", "0.01"] + arguments, environment: bell.bus.environment)
            #expect(result.standardOutput.isEmpty, "\(result)")
            return result.standardError
        }
        // A tenth of a second may be over before the service answered; then nothing was announced.
        #expect(["", "observing all names\n"].contains(try announced()))
        let observer = try RunningCommand(
            try Bell.path(), ["observe", "Ding", "Dong", "--object", "bell"], environment: bell.bus.environment)
        #expect(try observer.nextErrorLine() == "observing Ding, Dong about bell")
    }

    @Test("Control characters in names, objects and userInfo are printed as escapes")
    func escapes() throws {
        let bell = try Bell()
        let observer = try bell.observe("--count", "4")
        try bell.post("Ding\u{1B}[2J", "--object", "a\nb", "key\u{7}=\u{1B}]0;x\u{7}")
        try bell.post("Ding\u{9B}31m")
        try bell.post("two words", "--object", "tab\there")
        try bell.post("Größe🔔", "--object", "/tmp/ä")
        #expect(try observer.waitForExit() == .exited(0))
        #expect(
            observer.standardOutput == #"""
                "Ding\u001b[2J"  "a\nb"  {"key\u0007": "\u001b]0;x\u0007"}
                "Ding\u009b31m"
                "two words"  "tab\there"
                Größe🔔  /tmp/ä

                """#)
    }

    @Test("Characters that reverse the direction of text are never printed raw")
    func bidirectional() throws {
        let bell = try Bell()
        let observer = try bell.observe("--count", "1")
        try bell.post("Ding\u{202E}gnoD", "a=\u{2066}x")
        _ = try observer.nextLine()
        #expect(!observer.standardOutput.unicodeScalars.contains("\u{202E}"), "\(observer.transcript)")
    }

    @Test("Arguments and output are UTF-8 in every locale", arguments: ["C", "POSIX", "de_DE.ISO-8859-1"])
    func locale(name: String) throws {
        let bell = try Bell()
        let observer = try bell.observe(
            "Größe", "--object", "Ärger", "--count", "1", environment: ["LC_ALL": name])
        let result = try bell.run(
            "post", "Größe", "--object", "Ärger", "Schlüssel=übergroß", "--string", "ß=🔔",
            environment: ["LC_ALL": name])
        #expect(result.exitCode == 0, "\(result)")
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(observer.standardOutput == "Größe  Ärger  {\"Schlüssel\": \"übergroß\", \"ß\": \"🔔\"}\n")
        let json = try bell.observe("--json", "-n", "1", environment: ["LC_ALL": name])
        let jsonPost = try bell.run("post", "Größe", "--json", #"{"ü": "ß"}"#, environment: ["LC_ALL": name])
        #expect(jsonPost.exitCode == 0, "\(jsonPost)")
        #expect(try ObservedLine(try json.nextLine()).userInfoText == #"{"ü": "ß"}"#)
    }

    @Test("Arguments of post behind -- are never options")
    func doubleDash() throws {
        let bell = try Bell()
        let observer = try bell.observe("--count", "4")
        try bell.post("--", "--Ding")
        try bell.post("--object", "bell", "--", "-Ding", "-a=1")
        try bell.post("Ding", "--", "--a=1")
        try bell.post("--", "--", "a=1")
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(
            observer.standardOutput == "--Ding\n-Ding  bell  {\"-a\": 1}\nDing  {\"--a\": 1}\n--  {\"a\": 1}\n")
    }

    @Test("post prints no output by default, and the number of matching clients with --verbose")
    func verbose() throws {
        let bell = try Bell()
        let silent = try bell.run("post", "Ding")
        #expect(silent.standardOutput.isEmpty && silent.standardError.isEmpty, "\(silent)")
        #expect(try bell.run("post", "Ding", "--verbose").standardOutput == "0 clients\n")
        let first = try bell.observe()
        #expect(try bell.run("post", "Ding", "-v").standardOutput == "1 client\n")
        let second = try bell.observe("Ding")
        #expect(try bell.run("post", "Ding", "-v").standardOutput == "2 clients\n")
        withExtendedLifetime((first, second)) {}
    }
}

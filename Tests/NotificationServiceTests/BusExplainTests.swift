// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Why something arrives or not, and what is said of others to test them (B3), on real buses.
@Suite("B3: OverrideSuspension and Explain, on the bus", .serialized, .limited)
struct BusExplainTests {
    private func why(_ name: String = "", _ object: String = "", of client: Client, from asker: Client) throws
        -> [String]
    {
        try asker.call(Explain(client.name, name: name, object: object))
    }

    /// How `ListClients` shows a client.
    private func shown(_ client: Client, to asker: Client) throws -> ListedClient {
        try #require(try asker.call(ListClients()).first { $0.name.rawValue == client.name })
    }

    @Test(
        "An override precedes the client's own call, survives a SIGKILL of the service, and ends when withdrawn",
        arguments: BusKind.available)
    func override(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (tester, subject) = (try Client(on: bus), try Client(on: bus))
        try subject.addObserver("Ding", behavior: .hold)
        try tester.call(OverrideSuspension(of: subject.name, true))
        try subject.setSuspended(false)
        #expect(try tester.post("Ding", number: 1) == 1)
        var shown = try shown(subject, to: tester)
        #expect(shown.isSuspended && shown.cause == "override" && shown.queued == 1, "\(shown)")

        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        #expect(try tester.post("Ding", number: 2) == 1)
        shown = try self.shown(subject, to: tester)
        #expect(shown.isSuspended && shown.cause == "override" && shown.queued == 2, "\(shown)")
        let reasons = try why("Ding", of: subject, from: tester)
        #expect(reasons.contains { $0.contains("somebody suspended it for a test") }, "\(reasons)")
        #expect(subject.signals.isEmpty)

        // What it said itself counts again: that it is active.
        try tester.call(OverrideSuspension(of: subject.name, nil))
        try subject.run("what was held: \(second.transcript)") { subject.numbers == [1, 2] }
        #expect(try self.shown(subject, to: tester).cause == "explicit")
        try subject.setSuspended(true)
        try tester.call(OverrideSuspension(of: subject.name, false))
        #expect(try tester.post("Ding", number: 3) == 1)
        try subject.run("the third") { subject.numbers == [1, 2, 3] }
        #expect(subject.holes.isEmpty)
    }

    @Test("OverrideSuspension fails for a connection that is no client, and Explain states this")
    func strangers() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (tester, silent) = (try Client(on: bus), try Client(on: bus))
        for (name, error) in [
            (":1.4711", BusError.nameHasNoOwnerName), (silent.name, BusError.nameHasNoOwnerName),
            ("", BusError.invalidArgsName), (Wire.busName.rawValue, BusError.invalidArgsName),
        ] {
            for word in [true, false, nil] {
                let refusal = #expect(throws: BusError.self) { try tester.call(OverrideSuspension(of: name, word)) }
                #expect(refusal?.name == error, "'\(name)': \(String(describing: refusal))")
            }
        }
        let wrong = Wire.methodCall(OverrideSuspension.member)
        var writer = MessageWriter(wrong)
        writer.append(tester.name)
        writer.append("asleep")
        #expect(#expect(throws: BusError.self) { try tester.send(wrong) }?.name == BusError.invalidArgsName)

        for name in [":1.4711", silent.name] {
            let reasons = try tester.call(Explain(name))
            #expect(reasons.count == 1 && reasons[0].hasPrefix("\(name) is not a client: "), "\(reasons)")
        }
        for (client, name, error) in [("", "", BusError.invalidArgsName), ("x", "Ding", BusError.invalidArgsName)] {
            let refusal = #expect(throws: BusError.self) { try tester.call(Explain(client, name: name)) }
            #expect(refusal?.name == error)
        }
        #expect(service.isRunning)
    }

    @Test("Explain gives each reason as a sentence that names the remedy")
    func sentences() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (asker, client) = (try Client(on: bus), try Client(on: bus))
        func expect(_ parts: String..., of name: String = "Ding", object: String = "") throws {
            let reasons = try why(name, object, of: client, from: asker)
            for part in parts { #expect(reasons.contains { $0.contains(part) }, "\(part): \(reasons)") }
        }
        try client.addObserver("Ding", behavior: .drop)
        try client.addObserver("ding", behavior: .hold)
        try client.addObserver("com.example.*", behavior: .hold)
        try client.addObserver("Of", "one", behavior: .hold)
        try expect(
            "process \(getpid())) would get 'Ding' without an object now.", "Observer 1, of 'Ding' from any object")
        try expect("would not get 'DING'", "the name differs in case", of: "DING")
        try expect("names are compared whole, and this one looks like a pattern", of: "com.example.Ding")
        try expect("it requires an object, and the notification has none", of: "Of")
        try expect("it observes another object", of: "Of", object: "two")
        try expect("the object differs in case or white space", of: "Of", object: "One ")
        try expect("would get 'Of' of 'one' now.", of: "Of", object: "one")
        try expect("has 4 observers.", "Observer 4, of 'Of' from 'one', gets matching notifications now.", of: "")

        try client.setSuspended(true)
        try expect(
            "would not get 'Ding' without an object: it is suspended.", "its suspension behavior is drop",
            "it requested this. It is resumed when it calls SetSuspended with false")
        for n in 1...3 { _ = try asker.post("ding", number: Int64(n)) }
        try expect(
            "would get 'ding' without an object when it is resumed.",
            "behavior is hold, so all notifications are queued",
            "3 notifications of this name and object wait for it: 3 until it is resumed.", of: "ding")
        try expect("3 notifications wait for it", of: "")
        try client.addObserver("State", behavior: .coalesce)
        for n in 1...3 { _ = try asker.post("State", number: Int64(n)) }
        try expect(
            "only the newest of each name and object is queued", "1 notification of this name and object waits for it",
            "replaced 2 notifications in its queue, counted over all names", of: "State")
        try asker.call(OverrideSuspension(of: client.name, true))
        let author = "process \(getpid()), suspended it for a test. 'carillon follow \(client.name)' ends the override."
        try expect(author)
        try asker.call(OverrideSuspension(of: client.name, false))
        try expect("It counts as active in any case", "'carillon follow \(client.name)'", "now.")
        try asker.call(OverrideSuspension(of: client.name, nil))
        try client.setSuspended(false)

        try client.call(
            AddObserver(name: "Rate", object: "", options: ObserverOptions(minimumInterval: 60_000)))
        _ = try asker.post("Rate", number: 1)
        _ = try asker.post("Rate", number: 2)
        try expect(
            "or a newer one, at the end of an interval.", "it has a minimum interval of 60000 ms",
            "1 notification of this name and object waits for it: 1 for the end of an interval.", of: "Rate")
        try asker.postQueued("Later", number: 1, style: .atExit)
        try client.addObserver("Later", behavior: .hold)
        try expect(
            "1 post of this name and object still waits in the queues of their posters: 1 at-exit", of: "Later")
        #expect(service.isRunning)
    }

    @Test("Explain answers for observed names that would take very long to match as patterns")
    func patterns() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (asker, client) = (try Client(on: bus), try Client(on: bus))
        let pattern = String(repeating: "*a", count: 100)
        for n in 0..<200 { try client.addObserver("\(pattern)*\(n)", behavior: .drop) }
        let reasons = try why(String(repeating: "a", count: 200), of: client, from: asker)
        #expect(reasons.count == 17 && reasons.dropFirst().allSatisfy { $0.contains("this one looks like a pattern") })
        #expect(service.isRunning)
    }

    @Test("Explain describes a client that does not read, and its losses", arguments: BusKind.available)
    func silent(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        try bus.configure("[Limits]\nqueued-per-client=50\n")
        let service = try ServiceProcess(on: bus)
        let (asker, client) = (try Client(on: bus), try Client(on: bus))
        // It does not wait for the answer: what it reads it dispatches, and answers.
        client.connection.send(AddObserver(name: "Ding", object: "", options: .init(suspensionBehavior: .hold)))
        try eventually("its observer: \(service.transcript)") {
            try asker.call(ListClients()).contains { $0.name.rawValue == client.name }
        }
        var posted = 0
        for flow in ["It has never answered org.freedesktop.DBus.Peer.Ping", "does not dispatch its connection"] {
            let parts = [
                "would get 'Ding' without an object when it reads.", flow, "were lost, last for queue-full",
                "50 notifications of this name and object wait for it", "Dropped will report this when it reads",
            ]
            // A connection that stands unread beside another of its process is sent a window now and then, in case that
            // it is the one that reads: on a busy machine that comes in between.
            var reasons: [String] = []
            try eventually("\(parts) in \(reasons)") {
                for n in posted + 1...posted + 500 { _ = try asker.post("Ding", number: Int64(n)) }
                posted += 500
                reasons = try why("Ding", of: client, from: asker)
                return parts.allSatisfy { part in reasons.contains { $0.contains(part) } }
            }
            try client.run("the last: \(service.transcript)") { client.numbers.last == Int64(posted) }
            try client.run("what it lost") { Int(client.lost) + client.signals.count == posted }
            try eventually("that it answered") {
                client.turn()
                return try shown(client, to: asker).flow == "open"
            }
        }
        let later = try why("Ding", of: client, from: asker)
        #expect(later.contains { $0.contains("The signal Dropped reported this") }, "\(later)")
    }

    @Test("Explain names the active window that the desktop reports")
    func byWindow() throws {
        let bus = try PrivateBus()
        let shell = try ReportTests.Shell("org.gnome.Shell", on: bus)
        let service = try ServiceProcess(
            on: bus, environment: ["XDG_SESSION_TYPE": "wayland", "XDG_CURRENT_DESKTOP": "GNOME"])
        let other = try RunningCommand("sleep", ["1000"], environment: bus.environment)
        let observer = try RunningCommand(
            try Executables.path(of: "carillon"), ["observe", "Ding"], environment: bus.environment)
        try shell.run(until: "ReportRequested")
        let asker = try Client(on: bus)
        var known: ListedClient?
        try eventually("the observer: \(service.transcript)") {
            known = try asker.call(ListClients()).first { $0.processID == UInt32(observer.pid) }
            return known != nil
        }
        let client = try #require(known)
        try shell.focus("1", pid: observer.pid)
        try shell.focus("2", pid: other.pid)
        var reasons: [String] = []
        try eventually("that it is suspended: \(service.transcript)") {
            reasons = try asker.call(Explain(client.name.rawValue, name: "Ding"))
            return reasons.contains { $0.contains("its application is not active") }
        }
        #expect(
            reasons.contains { $0.contains("the active window is that of sleep, process \(other.pid)") }, "\(reasons)")
        #expect(reasons.contains { $0.hasPrefix("It has been suspended for ") }, "\(reasons)")
        try shell.close("2")
        reasons = try asker.call(Explain(client.name.rawValue, name: "Ding"))
        #expect(reasons.contains { $0.contains("no window is active") }, "\(reasons)")
        try asker.call(OverrideSuspension(of: client.name.rawValue, false))
        reasons = try asker.call(Explain(client.name.rawValue, name: "Ding"))
        #expect(reasons.first?.hasSuffix("would get 'Ding' without an object now.") == true, "\(reasons)")
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// What sessions say to each other.
@Suite("G1: messages between sessions", .limited)
struct SessionsWireTests {
    private let other: UniqueName = ":1.7"

    @Test("Every signal between sessions decodes to its original value")
    func signals() throws {
        let here = HereSignal().message(to: nil)
        #expect(here.isSignal(SessionsWire.interface, "Here") && here.destination == nil)
        #expect(HereSignal().message(to: other).destination == ":1.7")
        for names in [[], ["Ding", "org.é.*"]] {
            #expect(try WantsSignal(WantsSignal(names).message(to: other)).names == names)
        }
        #expect(try TakenSignal(TakenSignal(upTo: .max).message(to: other)).number == .max)
        let features = UnderstandsSignal(["values", "later"])
        #expect(try UnderstandsSignal(features.message(to: other)) == features)
        let removed = RemovedSignal(.max, name: "org.é", object: "x")
        #expect(try RemovedSignal(removed.message(to: other)) == removed)
        for isBeginning in [true, false] {
            let values = ValuesSignal(3, isBeginning: isBeginning)
            #expect(try ValuesSignal(values.message(to: other)) == values)
        }
        let lost = LostSignal(4, [.init(name: "Ding", object: "", count: .max), .init(name: "", object: "", count: 1)])
        #expect(try LostSignal(lost.message(to: other)) == lost)
        // More than may be told is told from what may.
        let many = Array(repeating: lost.entries[0], count: 1000)
        #expect(try LostSignal(LostSignal(5, many).message(to: other)).entries.count == LostSignal.maxEntries + 1)
        #expect(throws: BusError.self) { try TakenSignal(here) }
        #expect(throws: BusError.self) { try WantsSignal(TakenSignal(upTo: 1).message(to: other)) }
        #expect(SessionsWire.table.name == SessionsWire.interface)
    }

    @Test("The signals in the code equal those of org.carillon.Sessions1.xml")
    func documentation() throws {
        let file = Executables.packageRoot + "/dbus-interfaces/org.carillon.Sessions1.xml"
        let text = try String(contentsOfFile: file, encoding: .utf8).replacing(/<!--(.|\n)*?-->/, with: "")
        let documented = text.matches(of: /<(?:signal|method|property|arg) [^>]*>/).map { match in
            String(match.0).matches(of: /(?:name|type)="([^"]*)"/).map { String($0.1) }.sorted()
        }
        let table = SessionsWire.table
        #expect(table.methods.isEmpty && table.properties.isEmpty)
        let actual = table.signals.flatMap { signal in
            [[signal.name.rawValue]] + signal.arguments.map { [$0.name, $0.signature.rawValue].sorted() }
        }
        #expect(actual == documented)
        #expect(text.contains("<interface name=\"\(table.name)\">"))
    }

    private func userInfo(_ entries: [String: PropertyList]) throws -> WireUserInfo {
        let call = try PostCall.marshalled(name: "Ding", object: "x", userInfo: entries)
        return try Post(call, limits: Limits()) { _, _ in }.userInfo
    }

    private func read(_ message: Message, _ limits: Limits = Limits()) throws -> SessionNotification {
        try SessionNotification(message, limits: limits) { _, _ in }
    }

    @Test("A notification between sessions decodes to its content, with every combination of options")
    func notification() throws {
        let content = try userInfo(["n": .int64(-1), "d": .data([1, 2, 3])])
        for bits in 0..<64 {
            var options = SessionNotification.Options()
            options.number = UInt64.max - UInt64(bits)
            if bits & 1 != 0 { options.lost = 1 << 40 }
            if bits & 2 != 0 { options.deliverImmediately = true }
            if bits & 4 != 0 { options.isRetained = true }
            if bits & 8 != 0 { options.expiresAfter = .max }
            if bits & 16 != 0 { options.whileConnected = true }
            if bits & 32 != 0 { options.isKept = true }
            let message = Message(SessionNotification.message(to: other, content, options, serial: 5))
            #expect(message.isSignal(SessionsWire.interface, "Notification") && message.destination == ":1.7")
            let back = try read(message)
            #expect(back.name == "Ding" && back.object == "x" && back.options == options)
            #expect(back.userInfo.commonBody == content.commonBody)
        }
    }

    @Test("The number of a notification is read without its content, also beside options of a later version")
    func place() throws {
        let content = try userInfo(["n": .int64(-1), "d": .data([1, 2, 3])])
        for lost in [0, 1 << 40] as [UInt64] {
            var options = SessionNotification.Options()
            (options.number, options.lost) = (7, lost)
            options.isRetained = true
            let message = Message(SessionNotification.message(to: other, content, options, serial: 5))
            let place = try SessionNotification.place(of: message)
            #expect(place.number == 7 && place.lost == lost)
        }
        func message(_ options: [String: PropertyList]) throws -> Message {
            let message = Message.signal(
                to: other, path: SessionsWire.path, interface: SessionsWire.interface, member: "Notification")
            var writer = MessageWriter(message)
            writer.append("Ding")
            writer.append("")
            try UserInfoCoding.append(["number": .uint64(9)], to: &writer)
            try UserInfoCoding.append(options, to: &writer)
            return message
        }
        let later = try message(["number": .uint64(1), "color": .string("red")])
        #expect(try SessionNotification.place(of: later).number == 1)
        for options: [String: PropertyList] in [[:], ["number": .uint64(0)], ["number": .int32(-1)]] {
            let error = #expect(throws: BusError.self) { try SessionNotification.place(of: message(options)) }
            #expect(error?.centerError == .invalidOption, "\(options)")
        }
        #expect(throws: BusError.self) { try SessionNotification.place(of: HereSignal().message(to: other)) }
    }

    @Test("E2: a malformed notification from another session is refused")
    func refused() throws {
        func message(_ options: [String: PropertyList], name: String = "Ding") throws -> Message {
            let message = Message.signal(
                to: other, path: SessionsWire.path, interface: SessionsWire.interface, member: "Notification")
            var writer = MessageWriter(message)
            writer.append(name)
            writer.append("")
            try UserInfoCoding.append(["n": .int64(1)], to: &writer)
            try UserInfoCoding.append(options, to: &writer)
            return message
        }
        #expect(try read(message(["number": .uint64(1)])).options.number == 1)
        for options: [String: PropertyList] in [
            [:], ["number": .uint64(0)], ["number": .int32(-1)], ["number": .uint64(1), "color": .string("red")],
            ["number": .uint64(1), "expires-after": .uint32(0)], ["number": .uint64(1), "retain": .string("yes")],
        ] {
            #expect(throws: BusError.self, "\(options)") { try read(message(options)) }
        }
        #expect(throws: BusError.self) { try read(HereSignal().message(to: other)) }
        let refusal = #expect(throws: BusError.self) {
            _ = try SessionNotification(message(["number": .uint64(1)], name: ""), limits: Limits()) {
                name, _ throws(CenterError) in if name.isEmpty { throw .invalidName }
            }
        }
        #expect(refusal?.centerError == .invalidName)
        var limits = Limits()
        limits[.userInfoBytes] = 8
        #expect(throws: BusError.self) { try read(message(["number": .uint64(1)]), limits) }
    }

    @Test("all-sessions is a boolean, and is refused together with an origin")
    func option() throws {
        var options = PostOptions()
        options.goesToAllSessions = true
        for retention in [nil, Retention(), Retention(whileConnected: true)] {
            options.retention = retention
            let call = try PostCall.marshalled(name: "Ding", options: options)
            #expect(try Post(call, limits: Limits()) { _, _ in }.options == options)
        }
        options.origin = try OutsideOrigin(host: "alpha", user: nil)
        let call = try PostCall.marshalled(name: "Ding", options: options)
        let error = #expect(throws: BusError.self) { _ = try Post(call, limits: Limits()) { _, _ in } }
        #expect(error?.centerError == .invalidOption && error?.message.contains("all-sessions") == true)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@Suite("Errors on the wire", .limited)
struct ErrorTests {
    @Test("Every error of the center has its D-Bus name, and its description as the message")
    func names() {
        let errors: [(CenterError, InterfaceName)] = [
            (.invalidName, "org.carillon.Error.InvalidName"),
            (.invalidUserInfo(path: "userInfo.a", reason: "bad"), "org.carillon.Error.InvalidUserInfo"),
            (.invalidOption("key", reason: "bad"), "org.carillon.Error.InvalidOption"),
            (.unknownObserver(ObserverID(rawValue: 7)), "org.carillon.Error.UnknownObserver"),
            (.limitExceeded(.observers, value: 5), "org.carillon.Error.LimitExceeded"),
        ]
        for (error, name) in errors {
            let busError = BusError(error)
            #expect(busError.centerError?.rawValue == name.rawValue && busError.isRefusal)
            #expect(busError.name == name)
            #expect(busError.message == error.description)
            #expect(!busError.message.isEmpty)
            #expect(!busError.meansNoService)
        }
    }

    @Test(
        "E1: the message of LimitExceeded contains the key and the value of the limit", arguments: Limits.Key.allCases)
    func limits(key: Limits.Key) {
        let error = BusError(CenterError.limitExceeded(key, value: 123))
        #expect(error.message.contains(key.rawValue))
        #expect(error.message.contains("123"))
        #expect(error.exceededLimit == key && BusError(.shareExceeded(key, value: 123)).exceededLimit == key)
        #expect(BusError(.limitExceeded, message: "too fast: \(error.message)").exceededLimit == key)
    }

    @Test("E1: a LimitExceeded without a key, and any other error, names no exceeded limit")
    func noLimit() {
        for message in ["", "limit", "over the limit", "over the limit of the service", "observers = 5"] {
            #expect(BusError(.limitExceeded, message: message).exceededLimit == nil)
        }
        #expect(BusError(.notAllowed, message: "over the limit observers = 5").exceededLimit == nil)
    }

    @Test("F1: the outcome of a post in a batch has a distinct message for each error, derived from the error's name")
    func outcomes() throws {
        func error(_ name: String) throws -> BusError {
            try #require(PostOutcome(receivers: 0, errorName: name).error)
        }
        var seen: Set<String> = []
        for name in CenterErrorName.allCases {
            let error = try error(name.rawValue)
            #expect(error.centerError == name && error.message == "the post was refused: \(name.words)")
            #expect(seen.insert(name.words).inserted && !name.words.contains(name.rawValue))
        }
        let arguments = try error(BusError.invalidArgsName.rawValue)
        #expect(arguments.name == BusError.invalidArgsName && arguments.isRefusal)
        #expect(arguments.message == "the post was refused: it is malformed")
        // Of a later service.
        let later = try error("org.carillon.Error.Later")
        #expect(later.name == "org.carillon.Error.Later" && later.message.hasSuffix(": org.carillon.Error.Later"))
    }

    @Test("P2: NotAllowed is an error of the center and counts as a refusal")
    func notAllowed() {
        let error = BusError(.notAllowed, message: "no")
        #expect(error.name == "org.carillon.Error.NotAllowed" && error.centerError == .notAllowed && error.isRefusal)
    }

    @Test("An error of the core leaves a method handler as its D-Bus error")
    func mapping() throws {
        #expect(throws: BusError(CenterError.invalidName)) {
            try mappingCenterErrors { () throws(CenterError) in throw .invalidName }
        }
        #expect(try mappingCenterErrors { () throws(CenterError) in 7 } == 7)
    }

    @Test("Only errors for an unknown object, interface or method, or NotSupported, mean another owner of the name")
    func anotherProgram() {
        for name in ["UnknownMethod", "UnknownInterface", "UnknownObject", "NotSupported"] {
            let error = BusError(name: InterfaceName(rawValue: "org.freedesktop.DBus.Error." + name)!, message: "")
            #expect(error.meansAnotherProgram && error.meansNotServed, "\(name)")
        }
        let others: [(InterfaceName, isServed: Bool)] = [
            ("org.freedesktop.DBus.Error.AccessDenied", false), ("org.freedesktop.DBus.Error.InvalidArgs", false),
            ("org.carillon.Error.NotAllowed", false), ("org.freedesktop.DBus.Error.NoReply", true),
            ("org.freedesktop.DBus.Error.ServiceUnknown", true),
        ]
        for (name, isServed) in others {
            let error = BusError(name: name, message: "")
            #expect(!error.meansAnotherProgram && error.meansNotServed == !isServed, "\(name)")
        }
    }

    @Test("Only errors for a missing owner, a failed start or a lost connection mean that there is no service")
    func noService() {
        let names: [(InterfaceName, Bool)] = [
            ("org.freedesktop.DBus.Error.ServiceUnknown", true),
            ("org.freedesktop.DBus.Error.NameHasNoOwner", true),
            ("org.freedesktop.DBus.Error.Disconnected", true),
            ("org.freedesktop.DBus.Error.Spawn.ChildExited", true),
            ("org.freedesktop.DBus.Error.InvalidArgs", false),
            ("org.freedesktop.DBus.Error.AccessDenied", false),
        ]
        for (name, means) in names { #expect(BusError(name: name, message: "").meansNoService == means, "\(name)") }
    }
}

@Suite("The signal Notification", .limited)
struct SignalTests {
    @Test("D6: a client decodes userInfo, observers, poster, serial and sequence as the service sent them")
    func roundTrip() throws {
        final class Box {
            var effects: [Effect] = []
        }
        let box = Box()
        let center = DistributedCenter()
        let first = try center.addObserver(
            of: ":1.7", name: "Ding", object: "", options: ObserverOptions(), effects: &box.effects)
        let second = try center.addObserver(
            of: ":1.7", name: "", object: "Glocke", options: ObserverOptions(), effects: &box.effects)
        let post = Wire.methodCall("Post")
        var writer = MessageWriter(post)
        writer.append("Ding")
        writer.append("Glocke")
        let userInfo: [String: PropertyList] = ["größe": .array([.int64(1), .double(2)]), "b": .boolean(true)]
        try UserInfoCoding.append(userInfo, to: &writer)
        writer.array(of: "{sv}") { $0.entry("deliver-immediately", true) }
        let call = try Post(post, limits: Limits()) { _, _ in }
        let wire = call.userInfo
        #expect(call.options.deliverImmediately)
        _ = try center.post(name: "Ding", object: "Glocke", userInfo: wire, from: ":1.8", effects: &box.effects)
        center.sendAllReady(effects: &box.effects)
        let deliveries = box.effects.compactMap { effect -> Delivery? in
            if case .deliver(let delivery) = effect { delivery } else { nil }
        }
        let delivery = try #require(deliveries.first)
        let message = Message(NotificationSignal.message(for: delivery, userInfo: wire, messageSerial: 42))
        #expect(message.destination == ":1.7")
        #expect(message.serial == 42)
        #expect(message.signature == "ssa{sv}atstt")
        let signal = try #require(try NotificationSignal(message))
        #expect(signal.name == "Ding")
        #expect(signal.object == "Glocke")
        #expect(signal.userInfo == userInfo)
        #expect(signal.observers == [first, second])
        #expect(signal.poster == ":1.8")
        #expect(signal.serial == 1)
        #expect(signal.sequence == 1)
    }

    @Test("Other signals are no Notification, and a Notification with wrong arguments is an error")
    func others() throws {
        let other = Message.signal(path: Wire.path, interface: Wire.interface, member: "Dropped")
        #expect(try NotificationSignal(other) == nil)
        let foreign = Message.signal(path: Wire.path, interface: "org.example.Bell", member: "Notification")
        #expect(try NotificationSignal(foreign) == nil)
        let wrong = Message.signal(path: Wire.path, interface: Wire.interface, member: "Notification")
        var writer = MessageWriter(wrong)
        writer.append("Ding")
        #expect(throws: BusError.self) { try NotificationSignal(wrong) }
    }
}

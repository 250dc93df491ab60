// SPDX-License-Identifier: Apache-2.0
import CarillonFuzzSupport
import CarillonWire

/// Calls that mean something, made of a few bytes each, so that short inputs go deep.
enum Calls {
    private static let names = ["a", "b", "org.example.Ding", "", "é", "e\u{301}", String(repeating: "n", count: 40)]
    private static let objects = ["", "x", "y", "/tmp/file", String(repeating: "o", count: 20)]
    private static let members = [
        "AddObserver", "RemoveObserver", "RemoveObservers", "Post", "SetSuspended", "FollowActivity", "ListClients",
        "ListObservers", "ReloadConfiguration", "Introspect", "Get", "GetAll", "Set", "Ping", "GetMachineId", "Nothing",
        "ListObserversFrom", "PostMany", "SetClientOptions",
    ]
    private static let laterMembers = [
        "RemoveRetained", "WithdrawPosts", "GetClient", "OverrideSuspension", "Explain", "FollowInterest",
        "RemoveRetainedFrom", "FollowValues", "ListPosters",
    ]
    private static let interfaces = [
        Wire.interface.rawValue, "", "org.freedesktop.DBus.Properties", "org.freedesktop.DBus.Introspectable",
        "org.freedesktop.DBus.Peer", "org.example.Nothing",
    ]
    private static let paths = [
        Wire.path.rawValue, "/", "/org", "/org/carillon", "/org/example", Wire.path.rawValue + "/x",
    ]

    static func method(_ member: String, _ arguments: [WireValue] = []) -> WireMessage {
        var message = WireMessage()
        message.path = Wire.path.rawValue
        message.interface = Wire.interface.rawValue
        message.member = member
        message.arguments = arguments
        return message
    }

    static func resume() -> WireMessage {
        var message = method("SetSuspended", [.fixed("b", 0)])
        message.expectsNoReply = true
        return message
    }

    /// Takes back what others said of a client's suspension.
    static func followAgain(_ client: String) -> WireMessage {
        var message = method("OverrideSuspension", [.string(client), .string("none")])
        message.expectsNoReply = true
        return message
    }

    /// Takes back what waits, as the posts of one who stays do for the exit.
    static func withdrawPosts() -> WireMessage { method("WithdrawPosts", [.string(""), .string("")]) }

    static func addObserver(_ input: inout ByteSource) -> WireMessage {
        var options: [(String, WireValue)] = []
        let selector = input.byte()
        switch selector & 7 {
        case 0: break
        case 1: options = [("suspension-behavior", .string("drop"))]
        case 2: options = [("suspension-behavior", .string("coalesce"))]
        case 3: options = [("suspension-behavior", .string("hold"))]
        case 4: options = [("suspension-behavior", .string("deliver-immediately"))]
        case 5:
            let key = selector >> 7 == 0 ? "automatic-suspension" : "monitor"
            options = [(key, .fixed("b", UInt64(selector >> 3 & 15)))]
        case 6: options = [("run-loop-mode", .string(input.choice(of: ["default", "modal-panel", "event-tracking"])))]
        default: options = anyOptions(&input)
        }
        if isLater(selector) { options.append(("retained", .fixed("b", 1))) }
        return with(&input, method("AddObserver", [name(&input), object(&input), .options(options)]))
    }

    static func post(_ input: inout ByteSource) -> WireMessage {
        var options: [(String, WireValue)] = []
        let selector = input.byte()
        switch selector & 7 {
        case _ where isLater(selector): options = retention(&input)
        case 0, 1, 2: break
        case 3: options = [("deliver-immediately", .fixed("b", 1))]
        case 4:
            let style = input.choice(of: ["now", "asap", "when-idle"], later: ["at-exit"])
            options = [("posting-style", .string(style))]
        case 5:
            options = [
                ("posting-style", .string("when-idle")),
                ("coalesce-on", .array(.basic("s"), [.string("name"), .string("object")])),
            ]
        default: options = anyOptions(&input)
        }
        let userInfo: WireValue =
            input.flag() ? input.wireValue(.dictionary(key: "s", value: .variant), depth: 6) : .noOptions
        return with(&input, method("Post", [name(&input), object(&input), userInfo, .options(options)]))
    }

    /// What is kept, and what waits for an exit, in any combination, also of those that are refused.
    private static func retention(_ input: inout ByteSource) -> [(String, WireValue)] {
        let selector = input.byte()
        let styles = ["now", "asap", "when-idle", "at-exit"]
        var options: [(String, WireValue)] = [("posting-style", .string(styles[Int(selector >> 6)]))]
        if selector & 1 != 0 { options.append(("retain", .fixed("b", UInt64(selector >> 1 & 1)))) }
        if selector & 4 != 0 { options.append(("while-connected", .fixed("b", 1))) }
        // Of those that are kept for a time, some are from elsewhere.
        if selector & 24 == 24 { options.append(("host", origin(&input))) }
        if selector & 8 != 0 { options.append(("expires-after", .fixed("u", UInt64(input.byte() & 3)))) }
        if selector & 16 != 0 {
            options.append(("coalesce-on", .array(.basic("s"), [.string(input.choice(of: ["name", "object"]))])))
        }
        if selector & 32 != 0 { options.append(("deliver-immediately", .fixed("b", 1))) }
        return options
    }

    /// Posts that come together: as those of ``post(_:)``, and at times of no type that a post has.
    static func postMany(_ input: inout ByteSource) -> WireMessage {
        let type = WireType.structure([
            .basic("s"), .basic("s"), .dictionary(key: "s", value: .variant), .dictionary(key: "s", value: .variant),
        ])
        let posts = (0..<input.number(below: 6)).map { _ in WireValue.structure(post(&input).arguments) }
        return with(&input, method("PostMany", [.array(type, posts.filter { $0.type == type })]))
    }

    static func setSuspended(_ input: inout ByteSource) -> WireMessage {
        let selector = input.byte()
        return switch selector & 7 {
        case _ where isLater(selector): with(&input, method("SetClientOptions", [.options(details(&input))]))
        case 0: with(&input, method("FollowActivity"))
        case 4:
            with(&input, method("SetClientOptions", [.options([("batches", .fixed("b", UInt64(input.byte() & 1)))])]))
        case 5: with(&input, method("SetClientOptions", [.options(anyOptions(&input))]))
        case let isSuspended: with(&input, method("SetSuspended", [.fixed("b", UInt64(isSuspended & 1))]))
        }
    }

    /// Details of one's notifications, which show where these come together.
    private static func details(_ input: inout ByteSource) -> [(String, WireValue)] {
        let names = ["retained", "time", "uid", "pid", "process", "app", "unit", "host", "user", "slip"]
        let wanted = (0..<input.number(below: 4)).map { _ in
            WireValue.string(input.choice(of: names, later: ["kept", "expiry"]))
        }
        return [("batches", .fixed("b", 1)), ("details", .array(.basic("s"), wanted))]
    }

    static func remove(_ input: inout ByteSource) -> WireMessage {
        let selector = input.byte()
        return switch selector & 1 {
        case let kind where isLater(selector):
            if kind == 0, selector & 8 != 0 {
                with(
                    &input,
                    method("RemoveRetainedFrom", [origin(&input), origin(&input), name(&input), object(&input)]))
            } else {
                with(&input, method(kind == 0 ? "RemoveRetained" : "WithdrawPosts", [name(&input), object(&input)]))
            }
        case 1: with(&input, method("RemoveObservers", [name(&input), object(&input)]))
        default: with(&input, method("RemoveObserver", [.fixed("t", UInt64(input.byte()))]))
        }
    }

    /// What tools ask.
    static func standard(_ input: inout ByteSource) -> WireMessage {
        var message: WireMessage
        let selector = input.byte()
        switch selector % 7 {
        case let kind where isLater(selector):
            switch kind {
            case 0...2: message = method("GetClient", [.string(kind == 0 ? "slip" : ":1.\(input.byte() % 8)")])
            case 4:
                let most = WireValue.fixed("u", UInt64(input.byte()))
                switch input.number(below: 3) {
                case 0: message = method("FollowInterest", [name(&input), most])
                case 1: message = method("FollowValues", [.fixed("t", UInt64(input.byte())), most])
                default: message = method("ListPosters", [most])
                }
            case 5:
                message = method("Explain", [.string(":1.\(input.byte() % 8)"), name(&input), object(&input)])
            case 6:
                let state = WireValue.string(input.choice(of: ["suspended", "active", "none", "slip"]))
                message = method("OverrideSuspension", [.string(":1.\(input.byte() % 8)"), state])
            default: message = method("Get", [name(&input), object(&input)])
            }
            return with(&input, message)
        case 0: message = method("ListClients")
        case 1: message = method("ListObservers", [.string(":1.\(input.byte() % 8)")])
        case 2: message = method("Introspect")
        case 3: message = method("GetAll", [.string(input.choice(of: interfaces))])
        case 4:
            let property = input.choice(of: ["Version", "Limits", "Statistics", "Nothing"])
            message = method("Get", [.string(input.choice(of: interfaces)), .string(property)])
        case 5:
            message = method(
                "ListObserversFrom",
                [
                    .string(":1.\(input.byte() % 8)"), .fixed("t", UInt64(input.byte())),
                    .fixed("u", UInt64(input.byte())),
                ])
        default:
            message = method(
                "Set", [.string(input.choice(of: interfaces)), .string("Version"), .variant(.fixed("b", 1))])
        }
        if !message.member.hasPrefix("List") { message.interface = "" }
        return with(&input, message)
    }

    /// Any method with any arguments, and in any byte order.
    static func anything(_ input: inout ByteSource) -> WireMessage {
        var message = method(input.choice(of: members, later: laterMembers))
        message.interface = input.choice(of: interfaces)
        message.path = input.choice(of: paths)
        message.arguments = (0..<input.number(below: 6)).map { _ in
            let type = input.wireType(depth: 4)
            return input.wireValue(type, depth: 6)
        }
        return with(&input, message)
    }

    /// Whether a selector, of which few bits say something, is for what came later: others mean what they meant.
    private static func isLater(_ selector: UInt8) -> Bool { selector >= 0xF0 }

    private static func name(_ input: inout ByteSource) -> WireValue { .string(input.choice(of: names)) }
    private static func object(_ input: inout ByteSource) -> WireValue { .string(input.choice(of: objects)) }
    private static func origin(_ input: inout ByteSource) -> WireValue {
        .string(input.choice(of: ["", "alpha", "é"]))
    }

    private static func anyOptions(_ input: inout ByteSource) -> [(String, WireValue)] {
        let keys = [
            "suspension-behavior", "automatic-suspension", "run-loop-mode", "deliver-immediately", "posting-style",
            "coalesce-on", "slip", "monitor",
        ]
        let laterKeys = [
            "retained", "retain", "while-connected", "expires-after", "batches", "details", "host", "user",
        ]
        return (0...input.number(below: 3)).map { _ in
            let type = input.wireType(depth: 2)
            return (input.choice(of: keys, later: laterKeys), input.wireValue(type, depth: 3))
        }
    }

    private static func with(_ input: inout ByteSource, _ message: WireMessage) -> WireMessage {
        var message = message
        let flags = input.byte()
        message.expectsNoReply = flags & 1 != 0
        message.isBigEndian = flags & 2 != 0
        return message
    }
}

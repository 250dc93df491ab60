// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

/// `a{sv}` options: an unknown key or value is an error, for a typing slip must not pass silently.
@Suite("Options on the wire", .limited)
struct OptionsTests {
    // MARK: Observers

    @Test("Without options, an observer coalesces, is suspended automatically and has the default mode (S1, A2, M6)")
    func observerDefaults() throws {
        let options = try observer { _ in }
        #expect(options == ObserverOptions())
        #expect(options.suspensionBehavior == .coalesce)
        #expect(options.automaticSuspension)
        #expect(options.runLoopMode == .default)
    }

    @Test("S1: suspension-behavior has four values")
    func suspensionBehaviors() throws {
        let values: [(String, SuspensionBehavior)] = [
            ("drop", .drop), ("coalesce", .coalesce), ("hold", .hold), ("deliver-immediately", .deliverImmediately),
        ]
        #expect(values.count == SuspensionBehavior.allCases.count)
        for (text, behavior) in values {
            #expect(try observer { $0.entry("suspension-behavior", text) }.suspensionBehavior == behavior)
        }
    }

    @Test("M6: run-loop-mode has three values")
    func runLoopModes() throws {
        let values: [(String, RunLoopMode)] = [
            ("default", .default), ("modal-panel", .modalPanel), ("event-tracking", .eventTracking),
        ]
        #expect(values.count == RunLoopMode.allCases.count)
        for (text, mode) in values {
            #expect(try observer { $0.entry("run-loop-mode", text) }.runLoopMode == mode)
        }
    }

    @Test("R5: minimum-interval is a number of milliseconds")
    func minimumInterval() throws {
        for value in [0, 1, 200, UInt32.max] {
            let options = try observer { $0.entry("minimum-interval", value) }
            #expect(options == ObserverOptions(minimumInterval: value))
            let message = Wire.methodCall("AddObserver")
            var writer = MessageWriter(message)
            options.append(to: &writer)
            var reader = MessageReader(message)
            #expect(try ObserverOptions(from: &reader) == options)
        }
        expectInvalid("minimum-interval", "expected an integer, got type 's'") {
            try observer { $0.entry("minimum-interval", "200") }
        }
    }

    /// An integer, and how it is written.
    struct Integer: Sendable, CustomStringConvertible {
        let description: String
        let write: @Sendable (inout MessageWriter, String) -> Void

        init<Number: FixedSizeType & FixedWidthInteger & Sendable>(_ number: Number) {
            description = "\(Number.self) \(number)"
            write = { $0.entry($1, number) }
        }
    }

    @Test(
        "B12: a numeric option accepts an integer of any type",
        arguments: [
            Integer(UInt8(60)), Integer(Int16(60)), Integer(UInt16(60)), Integer(Int32(60)), Integer(UInt32(60)),
            Integer(Int64(60)), Integer(UInt64(60)),
        ])
    func integers(integer: Integer) throws {
        #expect(try observer { integer.write(&$0, "minimum-interval") } == ObserverOptions(minimumInterval: 60))
        #expect(try post { integer.write(&$0, "expires-after") }.expiresAfter == 60)
        #expect(try arrivedPost { integer.write(&$0, "expires-after") }.expiresAfter == 60)
    }

    @Test(
        "B12: an integer out of range is refused as the value of a numeric option",
        arguments: [
            (Integer(Int16(-1)), "-1"), (Integer(Int32.min), "-2147483648"), (Integer(Int64(-60)), "-60"),
            (Integer(UInt64.max), "18446744073709551615"), (Integer(Int64(1) << 32), "4294967296"),
        ])
    func numbersOutOfRange(integer: Integer, text: String) {
        let reason = "\(text) is not a number from 0 to 4294967295"
        expectInvalid("minimum-interval", reason) { try observer { integer.write(&$0, "minimum-interval") } }
        expectInvalid("expires-after", reason) { try post { integer.write(&$0, "expires-after") } }
        let error = #expect(throws: BusError.self) { try arrivedPost { integer.write(&$0, "expires-after") } }
        #expect(error?.message.contains(reason) == true)
    }

    @Test("B12: a double, boolean or string is refused as the value of a numeric option")
    func noIntegers() {
        expectInvalid("expires-after", "expected an integer, got type 'd'") {
            try post { $0.entry("expires-after", 60.0) }
        }
        for body in [
            { $0.entry("expires-after", 60.0) }, { $0.entry("expires-after", true) },
            { $0.entry("expires-after", "60") },
        ]
            as [(inout MessageWriter) -> Void]
        {
            let error = #expect(throws: BusError.self) { try arrivedPost(body) }
            #expect(error?.message.contains("expected an integer, got type") == true)
        }
    }

    /// The options of a post as the service reads them.
    private func arrivedPost(_ body: (inout MessageWriter) -> Void) throws -> PostOptions {
        let message = Wire.methodCall(PostCall.member)
        var writer = MessageWriter(message)
        writer.append("Ding")
        writer.append("")
        writer.array(of: "{sv}") { _ in }
        writer.array(of: "{sv}", body)
        return try Post(message, limits: Limits()) { _, _ in }.options
    }

    @Test("Observer options with default values are omitted, so that a service without them accepts the others")
    func leftOut() throws {
        let message = Wire.methodCall("AddObserver")
        var writer = MessageWriter(message)
        ObserverOptions().append(to: &writer)
        var reader = MessageReader(message)
        var entries = try reader.readContainer(.array)
        let isEmpty = entries.isAtEnd
        #expect(isEmpty)
    }

    @Test("A2: automatic-suspension is a boolean", arguments: [true, false])
    func automaticSuspension(value: Bool) throws {
        #expect(try observer { $0.entry("automatic-suspension", value) }.automaticSuspension == value)
    }

    @Test("B3: monitor is a boolean, and excludes suspension-behavior")
    func monitor() throws {
        #expect(try observer { $0.entry("monitor", true) } == ObserverOptions(isMonitor: true))
        #expect(try observer { $0.entry("monitor", false) } == ObserverOptions())
        expectInvalid("monitor", "expected a boolean (b), got type 's'") {
            try observer { $0.entry("monitor", "true") }
        }
        for isFirst in [true, false] {
            expectInvalid("suspension-behavior", "an observer with monitor is never suspended") {
                try observer { writer in
                    if isFirst { writer.entry("suspension-behavior", "deliver-immediately") }
                    writer.entry("monitor", true)
                    if !isFirst { writer.entry("suspension-behavior", "hold") }
                }
            }
        }
        let both = try observer { writer in
            writer.entry("suspension-behavior", "hold")
            writer.entry("monitor", false)
        }
        #expect(both == ObserverOptions(suspensionBehavior: .hold))
        for mode in RunLoopMode.allCases {
            let options = ObserverOptions(runLoopMode: mode, isMonitor: true)
            let message = Wire.methodCall("AddObserver")
            var writer = MessageWriter(message)
            options.append(to: &writer)
            var reader = MessageReader(message)
            #expect(try ObserverOptions(from: &reader) == options)
        }
    }

    @Test("All observer options are read together, in any order, and the reader ends behind them")
    func observerAll() throws {
        let message = Wire.methodCall("AddObserver")
        var writer = MessageWriter(message)
        writer.array(of: "{sv}") { writer in
            writer.entry("run-loop-mode", "modal-panel")
            writer.entry("automatic-suspension", false)
            writer.entry("suspension-behavior", "hold")
        }
        writer.append("behind")
        var reader = MessageReader(message)
        let options = try ObserverOptions(from: &reader)
        #expect(
            options
                == ObserverOptions(suspensionBehavior: .hold, automaticSuspension: false, runLoopMode: .modalPanel))
        #expect(try reader.readString() == "behind")
    }

    @Test(
        "An unknown observer option is refused by name",
        arguments: ["", "Suspension-Behavior", "suspension_behavior", "suspension-behaviour", "deliver-immediately"])
    func observerUnknown(key: String) {
        expectInvalid(key, "there is no such option") { try observer { $0.entry(key, "hold") } }
    }

    @Test("An observer option of a wrong type is refused, and the error names the expected type")
    func observerTypes() {
        expectInvalid("suspension-behavior", "expected a string (s), got type 'y'") {
            try observer { $0.entry("suspension-behavior", UInt8(1)) }
        }
        expectInvalid("suspension-behavior", "expected a string (s), got type 'v'") {
            try observer { $0.entry("suspension-behavior", "v") { $0.variant(of: "s") { $0.append("hold") } } }
        }
        expectInvalid("suspension-behavior", "expected a string (s), got type 'o'") {
            try observer { $0.entry("suspension-behavior", ObjectPath("/hold")) }
        }
        expectInvalid("run-loop-mode", "expected a string (s), got type 'as'") {
            try observer { $0.entry("run-loop-mode", "as") { $0.array(of: "s") { $0.append("default") } } }
        }
        expectInvalid("automatic-suspension", "expected a boolean (b), got type 's'") {
            try observer { $0.entry("automatic-suspension", "true") }
        }
        expectInvalid("automatic-suspension", "expected a boolean (b), got type 'i'") {
            try observer { $0.entry("automatic-suspension", Int32(1)) }
        }
    }

    @Test("An unknown value of an observer option is refused, and the error lists the valid values")
    func observerValues() {
        for text in ["", "Hold", "hold ", "deliverImmediately"] {
            expectInvalid(
                "suspension-behavior", "'\(text)' is none of: drop, coalesce, hold, deliver-immediately"
            ) { try observer { $0.entry("suspension-behavior", text) } }
        }
        expectInvalid("run-loop-mode", "'common' is none of: default, modal-panel, event-tracking") {
            try observer { $0.entry("run-loop-mode", "common") }
        }
    }

    @Test("The error for a very long option value does not repeat it in full")
    func longValue() {
        let text = String(repeating: "x", count: 100_000)
        #expect {
            try observer { $0.entry("suspension-behavior", text) }
        } throws: { error in
            "\(error)".utf8.count < 1000
        }
    }

    // MARK: Posts

    @Test("Without options, a post is posted now, coalesces with no other, and is not immediate (S3, Q7)")
    func postDefaults() throws {
        let options = try post { _ in }
        #expect(options == PostOptions())
        #expect(!options.deliverImmediately && options.postingStyle == .now && options.coalescing.isEmpty)
    }

    @Test("S3, Q7: every value of deliver-immediately, posting-style and coalesce-on is read")
    func postOptions() throws {
        #expect(try post { $0.entry("deliver-immediately", true) }.deliverImmediately)
        #expect(try !post { $0.entry("deliver-immediately", false) }.deliverImmediately)
        let styles: [(String, PostingStyle)] = [
            ("now", .now), ("asap", .asap), ("when-idle", .whenIdle), ("at-exit", .atExit),
        ]
        #expect(styles.count == PostingStyle.allCases.count)
        for (text, style) in styles { #expect(try post { $0.entry("posting-style", text) }.postingStyle == style) }
        let masks: [([String], Set<CoalescingKey>)] = [
            ([], []), (["name"], [.name]), (["object"], [.object]), (["object", "name"], [.name, .object]),
            (["name", "name"], [.name]),
        ]
        for (texts, mask) in masks {
            let options = try post { writer in
                writer.entry("coalesce-on", "as") { writer in
                    writer.array(of: "s") { writer in texts.forEach { writer.append($0) } }
                }
            }
            #expect(options.coalescing == mask)
        }
    }

    @Test("G3: host and user are non-empty strings of at most 255 bytes")
    func origins() throws {
        #expect(try post { $0.entry("host", "alpha") }.origin == OutsideOrigin(host: "alpha", user: nil))
        #expect(try post { $0.entry("user", "anna") }.origin == OutsideOrigin(host: nil, user: "anna"))
        let both = try post { writer in
            writer.entry("user", "anna")
            writer.entry("host", "alpha")
        }
        #expect(try both.origin == OutsideOrigin(host: "alpha", user: "anna"))
        for key in ["host", "user"] {
            expectInvalid(key, "it must not be empty") { try post { $0.entry(key, "") } }
            expectInvalid(key, "it has at most 255 bytes, not 256") {
                try post { $0.entry(key, String(repeating: "x", count: 256)) }
            }
            expectInvalid(key, "expected a string (s), got type 'u'") { try post { $0.entry(key, UInt32(0)) } }
        }
    }

    @Test("Unknown or mistyped options of a post are refused")
    func postRefused() {
        expectInvalid("deliver-immediatly", "there is no such option") {
            try post { $0.entry("deliver-immediatly", true) }
        }
        expectInvalid("suspension-behavior", "there is no such option") {
            try post { $0.entry("suspension-behavior", "hold") }
        }
        expectInvalid("deliver-immediately", "expected a boolean (b), got type 'y'") {
            try post { $0.entry("deliver-immediately", UInt8(1)) }
        }
        expectInvalid("posting-style", "'whenIdle' is none of: now, asap, when-idle, at-exit") {
            try post { $0.entry("posting-style", "whenIdle") }
        }
        expectInvalid("posting-style", "expected a string (s), got type 'u'") {
            try post { $0.entry("posting-style", UInt32(1)) }
        }
        expectInvalid("coalesce-on", "expected an array of strings (as), got type 's'") {
            try post { $0.entry("coalesce-on", "name") }
        }
        expectInvalid("coalesce-on", "expected an array of strings (as), got type 'ao'") {
            try post { $0.entry("coalesce-on", "ao") { $0.array(of: "o") { _ in } } }
        }
        expectInvalid("coalesce-on", "'sender' is none of: name, object") {
            try post { writer in
                writer.entry("coalesce-on", "as") { writer in
                    writer.array(of: "s") { writer in
                        writer.append("name")
                        writer.append("sender")
                    }
                }
            }
        }
    }

    @Test("The service reads the post options that a client writes", arguments: PostingStyle.allCases, [false, true])
    func roundTrip(style: PostingStyle, deliverImmediately: Bool) throws {
        for coalescing in [[], [.name], [.object], [.name, .object]] as [Set<CoalescingKey>] {
            var options = PostOptions()
            options.postingStyle = style
            options.deliverImmediately = deliverImmediately
            options.coalescing = coalescing
            options.origin = try OutsideOrigin(host: deliverImmediately ? "alpha" : nil, user: "anna")
            let message = Wire.methodCall("Post")
            var writer = MessageWriter(message)
            options.append(to: &writer)
            #expect(message.signature == "a{sv}")
            var reader = MessageReader(message)
            #expect(try PostOptions(from: &reader) == options)
            let post = try PostCall(name: "Ding", options: options)
            #expect(try taken(post.message()).options == options)
        }
    }

    @Test("Options read in place equal those that libdbus reads, errors included (E2)")
    func marshalled() throws {
        let texts = ["now", "asap", "when-idle", "name", "object", "soon", ""]
        // By their lengths they are written as of one type or another.
        let keys = ["deliver-immediately", "posting-style", "coalesce-on", "color", "host", "user", ""]
        var refused = 0
        for (key, other) in keys.flatMap({ key in keys.map { (key, $0) } }) {
            for text in texts {
                let body: (inout MessageWriter) -> Void = { writer in
                    for key in [key, other] {
                        writer.dictEntry { writer in
                            writer.append(key)
                            switch key.utf8.count % 3 {
                            case 0: writer.variant(of: "b") { $0.append(text.isEmpty) }
                            case 1: writer.variant(of: "s") { $0.append(text) }
                            default: writer.variant(of: "as") { $0.array(of: "s") { $0.append(text) } }
                            }
                        }
                    }
                }
                var alone = Sample.options(body)
                let expected = Result { () throws(CenterError) in try PostOptions(from: &alone) }
                let message = Wire.methodCall("Post")
                var writer = MessageWriter(message)
                for text in ["Ding", ""] { writer.append(text) }
                writer.array(of: "{sv}") { _ in }
                writer.array(of: "{sv}", body)
                let found = Result { try taken(message).options }
                switch expected {
                case .success(let options): #expect(try found.get() == options)
                case .failure(let error):
                    refused += 1
                    #expect(throws: BusError.self) { try found.get() }
                    #expect((found.failure as? BusError)?.message == BusError(error).message)
                }
            }
        }
        #expect(refused > 0 && refused < keys.count * keys.count * texts.count)
    }

    private func taken(_ call: Message) throws -> Post<WireUserInfo> {
        try Post(call, limits: Limits()) { (_, _) throws(CenterError) in }
    }

    @Test("The service reads the observer options that a client writes", arguments: SuspensionBehavior.allCases)
    func observerRoundTrip(behavior: SuspensionBehavior) throws {
        for mode in RunLoopMode.allCases {
            for isAutomatic in [true, false] {
                let options = ObserverOptions(
                    suspensionBehavior: behavior, automaticSuspension: isAutomatic, runLoopMode: mode)
                let message = Wire.methodCall("AddObserver")
                var writer = MessageWriter(message)
                options.append(to: &writer)
                #expect(message.signature == "a{sv}")
                var reader = MessageReader(message)
                #expect(try ObserverOptions(from: &reader) == options)
            }
        }
    }

    // MARK: -

    private func observer(_ body: (inout MessageWriter) -> Void) throws -> ObserverOptions {
        var reader = Sample.options(body)
        return try ObserverOptions(from: &reader)
    }

    private func post(_ body: (inout MessageWriter) -> Void) throws -> PostOptions {
        var reader = Sample.options(body)
        return try PostOptions(from: &reader)
    }

    private func expectInvalid<Options>(
        _ key: String, _ reason: String, sourceLocation: SourceLocation = #_sourceLocation,
        _ body: () throws -> Options
    ) {
        #expect(throws: CenterError.invalidOption(key, reason: reason), sourceLocation: sourceLocation) {
            _ = try body()
        }
    }
}

extension Result {
    fileprivate var failure: Failure? {
        if case .failure(let error) = self { error } else { nil }
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

/// Every method, signal and property of the contract is a value that is coded both ways.
@Suite("Methods, signals and properties of the D-Bus interface", .limited)
struct ContractTests {
    // MARK: Methods

    @Test("Every method call decodes to the arguments with which it was encoded")
    func calls() throws {
        let observer = AddObserver(
            name: "Ding", object: "",
            options: .init(suspensionBehavior: .hold, automaticSuspension: false, runLoopMode: .eventTracking))
        let observerAgain = try again(observer)
        #expect(observerAgain.name == "Ding" && observerAgain.object == "" && observerAgain.options == observer.options)
        #expect(try again(RemoveObserver(ObserverID(rawValue: .max))).observer.rawValue == .max)
        let removal = try again(RemoveObservers(name: "", object: "Glocke"))
        #expect(removal.name == "" && removal.object == "Glocke")
        var options = PostOptions()
        options.deliverImmediately = true
        options.coalescing = [.name]
        let post = try again(try PostCall(name: "Ding", object: "Glocke", userInfo: ["n": .uint8(7)], options: options))
        #expect(post.name == "Ding" && post.object == "Glocke" && post.userInfo == ["n": .uint8(7)])
        #expect(post.options == options)
        let many = try again(PostMany([post, try PostCall(name: "Dong")])).posts
        #expect(many.map(\.name) == ["Ding", "Dong"] && many[0].options == options && many[1].options == PostOptions())
        #expect(many[0].userInfo == post.userInfo && many[1].userInfo == [:])
        for word in [true, false, nil] {
            #expect(try again(SetClientOptions(ClientOptionsChange(batches: word))).change.batches == word)
        }
        for words: Details? in [nil, [], .time, Details(Detail.allCases)] {
            #expect(try again(SetClientOptions(ClientOptionsChange(details: words))).change.details == words)
        }
        #expect(try again(GetClient("nobody")).client == "nobody")
        for word in [true, false] { #expect(try again(SetSuspended(word)).isSuspended == word) }
        _ = try again(FollowActivity())
        for word in [true, false, nil] {
            let override = try again(OverrideSuspension(of: ":1.42", word))
            #expect(override.client == ":1.42" && override.isSuspended == word)
        }
        let question = try again(Explain("nobody", name: "Ding", object: "Glocke"))
        #expect(question.client == "nobody" && question.name == "Ding" && question.object == "Glocke")
        _ = try again(ListClients())
        #expect(try again(ListPosters(most: 3)).most == 3)
        _ = try again(ReloadConfiguration())
        #expect(try again(ListObservers(of: "nobody")).client == "nobody")
        let following = try again(FollowInterest(after: "Ding", most: 3))
        #expect(following.after == "Ding" && following.most == 3)
        let values = try again(FollowValues(after: .max, most: 3))
        #expect(values.after == .max && values.most == 3)
        let from = try again(ListObserversFrom(of: "nobody", after: ObserverID(rawValue: .max), most: 3))
        #expect(from.client == "nobody" && from.after.rawValue == .max && from.most == 3)
    }

    @Test("E1: a paged list begins with the first entry and has at most 1024 entries by default")
    func firstPart() throws {
        let observers = try again(ListObserversFrom(of: "nobody"))
        #expect(observers.after < ObserverID(rawValue: 1) && observers.most == 1024)
        let values = try again(FollowValues())
        #expect(values.after == 0 && values.most == 1024)
    }

    @Test("R1, R2: options of retained values survive encoding, and contradictory ones are refused")
    func retaining() throws {
        for (retention, expiry): (Retention?, UInt32?) in [
            (nil, nil), (Retention(), nil), (Retention(whileConnected: true), 60), (nil, .max),
        ] {
            var options = PostOptions()
            options.retention = retention
            options.expiresAfter = expiry
            #expect(try again(try PostCall(name: "Ding", options: options)).options == options)
            let marshalled = try PostCall.marshalled(name: "Ding", object: "", userInfo: [:], options: options)
            #expect(try Post(marshalled, limits: Limits()) { _, _ in }.options == options)
        }
        let wanting = try again(AddObserver(name: "", object: "", options: ObserverOptions(wantsRetained: true)))
        #expect(wanting.options.wantsRetained)
        #expect(try again(Get(name: "Ding", object: "x")).object == "x")
        #expect(try again(RemoveRetained(name: "Ding", object: "x")).name == "Ding")
        #expect(try again(WithdrawPosts(name: "Ding", object: "x")).object == "x")
        for (host, user) in [("alpha", "anna"), ("", "anna"), ("alpha", ""), ("", "")] {
            let removal = try again(RemoveRetainedFrom(host: host, user: user, name: "Ding", object: "x"))
            #expect(removal.host == host && removal.user == user && removal.name == "Ding" && removal.object == "x")
            #expect(try removal.origin()?.host ?? "" == host && removal.origin()?.user ?? "" == user)
        }
        #expect(throws: CenterError.self) {
            try RemoveRetainedFrom(host: String(repeating: "h", count: 256), user: "", name: "").origin()
        }
        let values = [
            RetainedValueInfo(name: "Ding", object: "", userInfo: ["n": .uint8(7)], details: [:]),
            RetainedValueInfo(
                name: "Dong", object: "x", userInfo: [:],
                details: ["serial": .uint64(7), "time": .int64(-1), "poster": .string(":1.7")]),
        ]
        let back = try reply(Get.self, values)
        #expect(back == values && back[1].serial == 7 && back[1].time == -1 && back[1].poster == ":1.7")
        #expect(try reply(RemoveRetained.self, 3) == 3)
        #expect(try reply(WithdrawPosts.self, 3) == 3)
        #expect(try reply(RemoveRetainedFrom.self, 3) == 3)
        for (options, key): ([String: PropertyList], String) in [
            (["while-connected": .boolean(true)], "while-connected"), (["expires-after": .uint32(0)], "expires-after"),
            (["expires-after": .int32(-60)], "expires-after"), (["retain": .string("yes")], "retain"),
            (["retain": .boolean(false), "while-connected": .boolean(true)], "while-connected"),
        ] {
            let call = Wire.methodCall(PostCall.member)
            var writer = MessageWriter(call)
            writer.append("Ding")
            writer.append("")
            try UserInfoCoding.append([:], to: &writer)
            try UserInfoCoding.append(options, to: &writer)
            let error = #expect(throws: BusError.self) { _ = try Post(call, limits: Limits()) { _, _ in } }
            #expect(error?.centerError == .invalidOption && error?.message.contains("'\(key)'") == true, "\(options)")
        }
    }

    @Test("Every reply decodes to the value with which it was encoded")
    func replies() throws {
        #expect(try reply(AddObserver.self, ObserverID(rawValue: 7)).rawValue == 7)
        #expect(try reply(RemoveObservers.self, 3) == 3)
        #expect(try reply(PostCall.self, 50) == 50)
        for wanted in [
            DistributedCenter.Wanted(names: [], any: true), DistributedCenter.Wanted(names: ["Ding", "é"], any: false),
        ] { #expect(try reply(FollowInterest.self, wanted) == wanted) }
        let values = [
            FollowValues.Listed(name: "Ding", object: "", serial: 7),
            FollowValues.Listed(name: "é", object: "x", serial: .max, host: "alpha", user: "anna"),
        ]
        #expect(try reply(FollowValues.self, values) == values)
        #expect(values[0].isOfThisSession && !values[1].isOfThisSession)
        let outcomes = [PostOutcome(receivers: 7), PostOutcome(BusError(.invalidName, message: "words"))]
        #expect(try reply(PostMany.self, outcomes) == outcomes)
        #expect(outcomes[0].error == nil && outcomes[1].error?.centerError == .invalidName)
        for reasons in [[], ["It waits.", "", "é"]] { #expect(try reply(Explain.self, reasons) == reasons) }
        try reply(SetSuspended.self, ())
        let observers = [
            ListedObserver(id: ObserverID(rawValue: 1), name: "Ding", object: "", suspensionBehavior: "hold"),
            ListedObserver(
                id: ObserverID(rawValue: 2), name: "", object: "é", suspensionBehavior: "of-a-later-version"),
        ]
        #expect(try reply(ListObservers.self, observers) == observers)
        for identity in [
            Identity(),
            Identity(
                userID: 0, processID: 7, process: "p\u{fffd}", application: "org.x.Y", sandbox: "org.x.Y",
                unit: "u.scope"),
        ] {
            let known = try reply(GetClient.self, KnownClient(name: ":1.7", identity: identity))
            #expect(known.name == ":1.7" && known.identity == identity)
        }
        let registrations = observers.map {
            ListedRegistration(observer: $0, options: ["automatic-suspension": .boolean(false), "later": .uint32(7)])
        }
        let listed = try reply(ListObserversFrom.self, registrations)
        #expect(listed.map(\.observer) == observers && listed.map(\.options) == registrations.map(\.options))
        let client = ListedClient(
            name: ":1.42", processID: 7, process: "bell", isSuspended: true, cause: "explicit", observers: 1, queued: 2,
            delivered: 3, dropped: .max, flow: "waiting", unconfirmed: 64, posted: 5,
            userID: 1000, application: "org.example.Bell", hasChannel: true)
        let back = try #require(try reply(ListClients.self, [client]).first)
        #expect(back.name == ":1.42" && back.processID == 7 && back.process == "bell" && back.isSuspended)
        #expect(back.cause == "explicit" && back.observers == 1 && back.queued == 2 && back.delivered == 3)
        #expect(back.dropped == .max && back.others.isEmpty)
        #expect(back.flow == "waiting" && back.unconfirmed == 64 && back.posted == 5)
        #expect(back.userID == 1000 && back.application == "org.example.Bell" && back.hasChannel)
        #expect(
            back.entries.map(\.key) == [
                "name", "pid", "process", "suspended", "cause", "observers", "queued", "delivered", "dropped",
                "flow", "unconfirmed", "posted", "app", "uid", "channel",
            ])
    }

    @Test("A poster's entry keeps unknown keys of a later service, and a missing key is an error")
    func posterRows() throws {
        func row(_ poster: ListedPoster) throws -> ListedPoster {
            try #require(try reply(ListPosters.self, [poster]).first)
        }
        var poster = ListedPoster(
            name: ":1.42", processID: 7, process: "bell", application: "org.example.Bell", userID: 1000, posted: .max,
            refused: 3)
        var back = try row(poster)
        #expect(back.name == ":1.42" && back.processID == 7 && back.process == "bell" && back.userID == 1000)
        #expect(back.application == "org.example.Bell" && back.posted == .max && back.refused == 3)
        #expect(back.entries.map(\.key) == ["name", "pid", "process", "app", "uid", "posted", "refused"])
        poster.userID = nil
        poster.others = ["battery": .string("low")]
        back = try row(poster)
        #expect(back.userID == nil && back.others == poster.others)
        let message = Wire.methodCall("Reply")
        var writer = MessageWriter(message)
        writer.array(of: "a{sv}") { writer in
            writer.array(of: "{sv}") { writer in
                for (key, text) in [("name", ":1.42"), ("process", "bell")] { writer.entry(key, text) }
            }
        }
        #expect(throws: BusError.self) { try ListPosters.reply(in: message) }
    }

    @Test("A client's entry keeps unknown keys of a later service; a missing or mistyped key is an error")
    func clientRows() throws {
        func rows(_ change: (inout [(String, PropertyList)]) -> Void) -> Message {
            var entries: [(String, PropertyList)] = [
                ("name", .string(":1.1")), ("pid", .uint32(1)), ("process", .string("p")),
                ("suspended", .boolean(false)),
                ("cause", .string("none")), ("observers", .uint32(0)), ("queued", .uint32(0)),
                ("delivered", .uint64(0)),
                ("dropped", .uint64(0)),
            ]
            change(&entries)
            let message = Wire.methodCall("Reply")
            var writer = MessageWriter(message)
            writer.array(of: "a{sv}") { writer in
                let userInfo = Dictionary(uniqueKeysWithValues: entries)
                do { try UserInfoCoding.append(userInfo, to: &writer) } catch { Issue.record(error) }
            }
            return message
        }
        let later = try ListClients.reply(in: rows { $0.append(("battery", .string("low"))) })
        #expect(later.first?.others == ["battery": .string("low")])
        #expect(later.first?.entries.last?.key == "battery")
        let earlier = try #require(later.first)
        #expect(earlier.flow == "" && earlier.unconfirmed == 0 && earlier.posted == 0 && earlier.application == "")
        #expect(earlier.userID == nil && !earlier.hasChannel, "of an earlier service, which does not tell these")
        #expect(throws: BusError.self) { try ListClients.reply(in: rows { $0.removeLast() }) }
        #expect(throws: BusError.self) { try ListClients.reply(in: rows { $0[1] = ("pid", .string("1")) }) }
        #expect(throws: BusError.self) { try ListClients.reply(in: rows { $0[0] = ("name", .string("nobody")) }) }
    }

    @Test("B3: a listed observer includes its options, and omits those that it does not use")
    func listedOptions() {
        func listed(_ options: ObserverOptions) -> ListedRegistration {
            ListedRegistration(
                Registration(id: ObserverID(rawValue: 7), client: ":1.7", name: "Ding", object: nil, options: options))
        }
        let plain = listed(ObserverOptions(suspensionBehavior: .hold))
        let expected = ListedObserver(
            id: ObserverID(rawValue: 7), name: "Ding", object: "", suspensionBehavior: "hold")
        #expect(plain.observer == expected)
        #expect(
            plain.options == [
                "automatic-suspension": .boolean(true), "run-loop-mode": .string(RunLoopMode.default.rawValue),
            ])
        #expect(listed(ObserverOptions(automaticSuspension: false)).options["automatic-suspension"] == .boolean(false))
        let panel = listed(ObserverOptions(runLoopMode: .modalPanel))
        #expect(panel.options["run-loop-mode"] == .string(RunLoopMode.modalPanel.rawValue))
        let monitor = listed(ObserverOptions(isMonitor: true))
        #expect(monitor.options["monitor"] == .boolean(true))
        #expect(monitor.observer.suspensionBehavior == ListedObserver.monitor)
        #expect(listed(ObserverOptions(minimumInterval: 1)).options["minimum-interval"] == .uint32(1))
    }

    @Test("E4: a listed observer with options takes no more bytes than are counted for it", arguments: 0..<9)
    func listedBytes(length: Int) {
        let text = String(repeating: "o", count: length)
        for isMonitor in [false, true] {
            for interval in [0, 100] as [UInt32] {
                let options = ObserverOptions(
                    runLoopMode: .eventTracking, isMonitor: isMonitor, minimumInterval: interval)
                let listed = ListedRegistration(
                    Registration(
                        id: ObserverID(rawValue: 7), client: ":1.7", name: "n" + text, object: text, options: options))
                let reply = Wire.methodCall(ListObserversFrom.member)
                var writer = MessageWriter(reply)
                ListObserversFrom.append([listed, listed], to: &writer)
                let size = reply.withMarshalledBody(\.count)
                #expect(size <= 8 + 2 * listed.byteCount, "\(options)")
                #expect(size >= listed.byteCount, "nor much less")
            }
        }
    }

    @Test(
        "E4: a listed observer without options takes no more bytes than are counted for it",
        arguments: SuspensionBehavior.allCases)
    func listedBytesWithoutOptions(behavior: SuspensionBehavior) {
        for length in 0..<9 {
            let text = String(repeating: "o", count: length)
            let listed = ListedObserver(
                id: ObserverID(rawValue: 7), name: "n" + text, object: text, suspensionBehavior: behavior.rawValue)
            let reply = Wire.methodCall(ListObservers.member)
            var writer = MessageWriter(reply)
            ListObservers.append([listed, listed], to: &writer)
            let size = reply.withMarshalledBody(\.count)
            #expect(size <= 8 + 2 * listed.byteCount, "\(length)")
            #expect(size >= listed.byteCount, "nor much less")
        }
    }

    @Test("E4: a listed value takes no more bytes than are counted for it", arguments: [1, 7, 8, 255])
    func valueBytes(length: Int) throws {
        let (text, short) = (String(repeating: "v", count: length), "v")
        let content = try Sample.userInfo(of: PostCall(name: "Ding").message())
        for (name, object) in [(text, short), (short, text), (text, text), (text, "")] {
            for (host, user) in [(nil, nil), (text, nil), (nil, text), (text, text)] as [(String?, String?)] {
                let notification = Notification(
                    name: name, object: object, userInfo: content, poster: ":1.7",
                    identity: Identity(origin: try OutsideOrigin(host: host, user: user)),
                    serial: 7)
                let listed = FollowValues.Listed(notification)
                let reply = Wire.methodCall(FollowValues.member)
                var writer = MessageWriter(reply)
                FollowValues.append([listed, listed], to: &writer)
                let size = reply.withMarshalledBody(\.count)
                #expect(size <= 8 + 2 * FollowValues.byteCount(of: notification), "\(listed)")
            }
        }
    }

    @Test("E6: a reply with wrong argument types is refused")
    func wrongReplies() {
        let text = Wire.methodCall("Reply")
        var writer = MessageWriter(text)
        writer.append("text")
        #expect(throws: BusError.self) { try AddObserver.reply(in: text) }
        #expect(throws: BusError.self) { try PostCall.reply(in: text) }
        #expect(throws: BusError.self) { try RemoveObservers.reply(in: text) }
        #expect(throws: BusError.self) { try ListObservers.reply(in: text) }
        #expect(throws: BusError.self) { try ListClients.reply(in: text) }
        #expect(throws: BusError.self) { try CenterProperties(in: text) }
        #expect(throws: BusError.self) { try AddObserver.reply(in: Wire.methodCall("Reply")) }
    }

    @Test("A post that every service would refuse can't be constructed")
    func badPosts() {
        #expect(throws: CenterError.invalidName) { try PostCall(name: "") }
        #expect(throws: CenterError.self) { try PostCall(name: "Ding", userInfo: ["a": .string("\0")]) }
    }

    @Test("A call can request no reply, and can avoid the start of the service")
    func flags() {
        #expect(!SetSuspended(true).message().expectsNoReply)
        #expect(SetSuspended(true).message(wantsAnswer: false).expectsNoReply)
        #expect(ListClients().message().startsService && CenterProperties.getAll().startsService)
        #expect(!ListClients().message(startsService: false).startsService)
        #expect(!CenterProperties.getAll(startsService: false).startsService)
        #expect(ListClients().message().destination == "org.carillon.NotificationCenter1")
    }

    // MARK: Signals

    @Test("Every signal decodes to its original value, and does not decode as another signal")
    func signals() throws {
        let notification = NotificationSignal(
            name: "Ding", object: "", userInfo: ["a": .array([.int64(1)])],
            observers: [ObserverID(rawValue: 1), ObserverID(rawValue: 9)], poster: ":1.7", serial: 5, sequence: 2)
        let dropped = DroppedSignal(count: 3, observers: [ObserverID(rawValue: 4)], reason: "queue-full")
        let changed = SuspensionChangedSignal(isSuspended: true, cause: "activity")
        #expect(try again(notification) == notification)
        #expect(try again(dropped) == dropped)
        #expect(try again(changed) == changed)
        var detailed = notification
        detailed.details = ["uid": .uint32(0), "later": .array([.string("x")])]
        let together = NotificationsSignal([notification, detailed, notification])
        #expect(try again(together) == together)
        #expect(try NotificationSignal(together.message(to: ":1.1")) == nil)
        #expect(try NotificationsSignal(notification.message(to: ":1.1")) == nil)
        #expect(try DroppedSignal(notification.message(to: ":1.1")) == nil)
        #expect(try SuspensionChangedSignal(dropped.message(to: ":1.1")) == nil)
        #expect(changed.message(to: ":1.1").destination == ":1.1")
    }

    @Test("D6: a notification whose poster is not the name of a connection is refused")
    func poster() {
        let message = Wire.signal(NotificationSignal.member, to: ":1.1")
        var writer = MessageWriter(message)
        writer.append("Ding")
        writer.append("")
        writer.array(of: "{sv}") { _ in }
        writer.append(fixedArray: [UInt64(1)])
        writer.append("somebody")
        writer.append(UInt64(1))
        writer.append(UInt64(1))
        #expect(throws: BusError.self) { try NotificationSignal(message) }
    }

    // MARK: Properties

    @Test("Properties that an earlier service does not have are empty")
    func earlierProperties() throws {
        let reply = Wire.methodCall("Reply")
        var writer = MessageWriter(reply)
        writer.array(of: "{sv}") { writer in
            for name in ["Version", "ActivitySource", "ActivityState"] { writer.entry(name, "x") }
            for name in ["Limits", "Statistics"] {
                writer.entry(name, "a{sv}") { $0.array(of: "{sv}") { _ in } }
            }
        }
        let back = try CenterProperties(in: reply)
        #expect(back.activityReason == "" && back.limits[.clients] == nil && back.statistics[.posted] == nil)
        #expect(
            back.policy
                == PolicyProperty(openNames: [], unidentified: "", confinesUnidentified: false, applications: [:]))
        #expect(back.others.isEmpty)
    }

    @Test("OpenChannel has no options yet, and refuses an unknown one")
    func channelOptions() throws {
        let call = Wire.methodCall("OpenChannel")
        var writer = MessageWriter(call)
        OpenChannel().append(to: &writer)
        #expect(call.signature == "a{sv}")
        var written = MessageReader(call)
        _ = try OpenChannel(from: &written)
        var none = Sample.options { _ in }
        _ = try OpenChannel(from: &none)
        var one = Sample.options { $0.entry("size", true) }
        #expect(throws: BusError.self) { _ = try OpenChannel(from: &one) }
    }

    @Test("The properties decode to their original values, and unknown ones of a later service are kept")
    func properties() throws {
        let told = CenterProperties(
            version: "1", activitySource: "x11", activityState: "lost", activityReason: "it failed",
            policy: PolicyProperty(
                openNames: ["a.*"], unidentified: "auto", confinesUnidentified: true,
                applications: ["org.x.Y": ["post": [], "observe": ["*"]]]),
            limits: NamedNumbers { Limits()[$0] },
            statistics: NamedNumbers { UInt64($0.rawValue.utf8.count) },
            configuration: ConfigurationProperty(files: ["/a"], errors: ["/a:1: why"]))
        let reply = Wire.methodCall("Reply")
        var writer = MessageWriter(reply)
        writer.array(of: "{sv}") { writer in
            for property in CenterProperties.table({ _ in told }) {
                writer.dictEntry { writer in
                    writer.append(property.name)
                    writer.variant(of: property.signature) { property.write(&$0) }
                }
            }
            writer.entry("Later", true)
        }
        let back = try CenterProperties(in: reply)
        #expect(back.version == "1" && back.activitySource == "x11" && back.activityState == "lost")
        #expect(back.activityReason == "it failed")
        for key in Limits.Key.allCases { #expect(back.limits[key] == Limits()[key]) }
        for key in StatisticsKey.allCases { #expect(back.statistics[key] == UInt64(key.rawValue.utf8.count)) }
        #expect(back.statistics.entries.map(\.key) == StatisticsKey.allCases.map(\.rawValue))
        #expect(back.policy == told.policy)
        #expect(back.configuration == told.configuration && back.configuration?.isValid == false)
        #expect(back.others == ["Later": .boolean(true)])
        #expect(Set(back.entries.keys) == Set(CenterProperties.Name.allCases.map(\.rawValue) + ["Later"]))
    }

    // MARK: -

    /// Codes a call and decodes it.
    private func again<Method: CenterMethod>(_ method: Method) throws -> Method {
        let message = method.message()
        let declared = Method.inputs.map(\.signature.rawValue).joined()
        #expect(message.signature.rawValue == declared, "\(Method.member)")
        #expect(message.member == Method.member && message.interface == Wire.interface && message.path == Wire.path)
        var reader = MessageReader(message)
        let again = try Method(from: &reader)
        let isAtEnd = reader.isAtEnd
        #expect(isAtEnd)
        return again
    }

    private func again<Signal: CenterSignal>(_ signal: Signal) throws -> Signal {
        let message = signal.message(to: ":1.1")
        #expect(message.signature.rawValue == Signal.arguments.map(\.signature.rawValue).joined())
        return try #require(try Signal(message))
    }

    /// Codes an answer and decodes it.
    @discardableResult
    private func reply<Method: CenterMethod>(_: Method.Type, _ value: Method.Reply) throws -> Method.Reply {
        let message = Wire.methodCall("Reply")
        var writer = MessageWriter(message)
        Method.append(value, to: &writer)
        #expect(message.signature.rawValue == Method.outputs.map(\.signature.rawValue).joined(), "\(Method.member)")
        return try Method.reply(in: message)
    }
}

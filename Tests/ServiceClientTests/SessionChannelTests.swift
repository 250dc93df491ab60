// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

/// What a program's engine does with a channel (F2): whichever way they go, its requests and its notifications keep
/// their order, none is lost without a word, and none comes twice.
@Suite("F2: channels of a service session", .limited)
struct SessionChannelTests {
    private static let unknownMethod: InterfaceName = "org.freedesktop.DBus.Error.UnknownMethod"
    private static let busName = "org.carillon.NotificationCenter1"

    private static func key(_ name: String) -> RegistrationKey {
        RegistrationKey(name: ExactText(name), object: nil, options: ObserverOptions())
    }

    func post(
        _ name: String = "Ding", _ completion: Request.Completion<Result<Int, ServiceError>>? = nil
    ) throws -> Request {
        .post(try OutgoingPost(name: name, completion: completion))
    }

    /// A session that wants a channel, and has one after its first post or observer.
    private func stage(_ wish: TransportPreference = TransportPreference(.channel)) -> SessionTests.Stage {
        SessionTests.Stage(wish: wish)
    }

    /// One with an observer and a channel.
    func observing() throws -> (SessionTests.Stage, SimulatedLine) {
        let stage = stage()
        try stage.ask(.register(Self.key("Ding")))
        stage.start()
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        return (stage, try #require(stage.bus.lines.last))
    }

    /// Has calls of that member wait for an answer.
    func holdBack(_ stage: SessionTests.Stage, _ members: MemberName?...) {
        let answer = stage.bus.answer
        stage.bus.answer = { members.contains($0.member) ? nil : answer($0) }
    }

    // MARK: Asking

    @Test("A session without the wish for a channel requests none")
    func unwanted() throws {
        let stage = stage(TransportPreference())
        try stage.ask(.register(Self.key("Ding")), post())
        stage.start()
        #expect(!stage.bus.connection.takeSent().contains("OpenChannel?"))
    }

    @Test("The user's choice of the transport takes precedence over the program's")
    func user() throws {
        for (program, user, isWanted) in [
            (Transport.bus, Transport.channel, true), (.channel, .bus, false), (.bus, .bus, false),
        ] {
            let stage = stage(TransportPreference(program, ofUser: user))
            try stage.ask(post())
            stage.start()
            #expect(stage.bus.connection.takeSent().contains("OpenChannel?") == isWanted)
        }
    }

    @Test("A session without posts and observers requests no channel")
    func nothingToCarry() throws {
        let stage = stage()
        try stage.ask(.call(ListClients()) { _ in })
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "ListClients?"])
    }

    @Test("The first posts wait for the channel and leave on it together, confirmed by the last")
    func first() throws {
        let stage = stage()
        for name in ["a", "b", "c"] { try stage.ask(post(name)) }
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "OpenChannel?"])
        let line = try #require(stage.bus.lines.first)
        #expect(line.writes == 1)
        #expect(try line.takePosts() == ["a 0", "b 0", "c 1"], "the last one confirms the others")
        #expect(stage.takeTold() == ["connected", "channel"])
        #expect(stage.session.transport == .channel)
        let (observing, _) = try observing()
        #expect(observing.session.transport == .channel)
    }

    @Test("If OpenChannel takes long, posts leave on the bus and are settled there before the channel is used")
    func slow() throws {
        let stage = stage()
        holdBack(stage, OpenChannel.member)
        try stage.ask(post("a"))
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "OpenChannel?"])
        stage.bus.pass(milliseconds: 1000)
        #expect(stage.bus.connection.takeSent() == ["Post"])
        let call = try #require(stage.bus.connection.pending.first?.message)
        holdBack(stage, OpenChannel.member, "Ping")
        stage.bus.connection.answerFirst(.success(call.answered()))
        try stage.ask(post("b"))
        #expect(stage.bus.connection.takeSent() == ["Ping?"])
        let line = try #require(stage.bus.lines.first)
        #expect(line.written.isEmpty)
        #expect(!stage.session.mayStop())
        stage.bus.connection.answerFirst(.success(stage.bus.connection.pending[0].message.answered()))
        #expect(try line.takePosts() == ["b 1"])
    }

    @Test(
        "A refused channel is requested again when needed, at growing pauses; an older service is not asked again",
        arguments: [
            ("org.carillon.Error.ChannelsDisabled", true), ("org.carillon.Error.LimitExceeded", true),
            ("org.freedesktop.DBus.Error.UnknownMethod", false),
        ])
    func refused(name: String, isAskedAgain: Bool) throws {
        let stage = stage()
        let answer = stage.bus.answer
        let error = BusError(name: try #require(InterfaceName(rawValue: name)), message: "no")
        stage.bus.answer = { $0.member == OpenChannel.member ? .failure(error) : answer($0) }
        try stage.ask(.register(Self.key("Ding")))
        stage.start()
        #expect(stage.takeTold() == ["connected", "bus as \(error)"])
        stage.bus.pass(milliseconds: 3_600_000)
        #expect(stage.bus.connection.takeSent().filter { $0 == "OpenChannel?" }.count == 1, "nothing was to be carried")
        var asked = 0
        for _ in 0..<20_000 {
            stage.bus.pass(milliseconds: 1000)
            try stage.ask(post())
            asked += stage.bus.connection.takeSent().filter { $0 == "OpenChannel?" }.count
        }
        #expect(isAskedAgain ? 10..<16 ~= asked : asked == 0)
        // Another service may have them.
        stage.bus.answer = answer
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Self.busName, to: owner)) }
        #expect(stage.session.transport == .bus, "the same one")
        stage.bus.answer = { call in answer(call).map { $0.map { $0.carried(from: ":1.101") } } }
        for owner in ["", ":1.101"] { _ = stage.arrive(.ownerChange(Self.busName, to: owner)) }
        #expect(stage.session.transport == .channel)
    }

    @Test("A session with many observers requests its channel directly after the first registration")
    func askedEarly() throws {
        let stage = stage()
        holdBack(stage, AddObserver.member)
        for number in 1...20 { try stage.ask(.register(Self.key("Ding\(number)"))) }
        stage.start()
        let calls = stage.bus.connection.takeSent()
        let (first, asked) = (calls.firstIndex(of: "AddObserver?"), calls.firstIndex(of: "OpenChannel?"))
        #expect(asked == first.map { $0 + 1 }, "\(calls)")
        #expect(calls.filter { $0 == "OpenChannel?" }.count == 1 && calls.filter { $0 == "AddObserver?" }.count == 20)
    }

    @Test("A session requests no channel on a bus that does not pass file descriptors")
    func descriptors() throws {
        let stage = stage()
        stage.bus.carriesDescriptors = false
        try stage.ask(post())
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "Post"])
        #expect(stage.takeTold() == ["connected", "bus as this bus does not pass file descriptors"])
    }

    // MARK: Order

    @Test("Posts on a channel wait for earlier requests on the bus, and these wait for earlier posts")
    func order() throws {
        let (stage, line) = try observing()
        holdBack(stage, "Ping", AddObserver.member)
        try stage.ask(.register(Self.key("Dong")), post("a"), .suspend(true), post("b"), .unregister(Self.key("Ding")))
        #expect(stage.bus.connection.takeSent() == ["AddObserver?", "Ping?"])
        #expect(line.written.isEmpty)
        let place = try #require(stage.bus.connection.pending.firstIndex { $0.message.member == "Ping" })
        let ping = stage.bus.connection.pending[place]
        ping.completion(.success(ping.message.answered()))
        #expect(try line.takePosts() == ["a 1"])
        #expect(stage.bus.connection.takeSent() == [], "SetSuspended waits for the post")
        line.settle(1)
        #expect(stage.bus.connection.takeSent() == ["SetSuspended?", "Ping?"])
        let next = try #require(stage.bus.connection.pending.last)
        next.completion(.success(next.message.answered()))
        #expect(try line.takePosts() == ["b 2"])
        line.settle(2)
        #expect(stage.bus.connection.takeSent() == ["RemoveObserver?"])
    }

    @Test("A session may stop when all posts have outcomes and the service has served the requests on the bus")
    func stopping() throws {
        let (stage, line) = try observing()
        holdBack(stage, "Ping")
        try stage.ask(.suspend(true), post("a"))
        #expect(stage.bus.connection.takeSent() == ["SetSuspended?", "Ping?"])
        for _ in 0..<3 { #expect(!stage.session.mayStop()) }
        stage.bus.connection.answerFirst(.success(stage.bus.connection.pending[0].message.answered()))
        #expect(try line.takePosts() == ["a 1"])
        #expect(!stage.session.mayStop(), "the outcome is missing")
        line.settle(1)
        #expect(!stage.session.mayStop(), "the bus is asked")
        #expect(stage.session.mayStop())
    }

    @Test("A first batch that has to be resent as single posts leaves before posts on the channel")
    func trial() throws {
        let stage = stage()
        stage.hasBatches = false
        holdBack(stage, OpenChannel.member, PostMany.member)
        for name in ["a", "b"] { try stage.ask(post(name)) }
        stage.start()
        stage.bus.pass(milliseconds: 1000)
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "OpenChannel?", "PostMany?"])
        stage.bus.connection.answerFirst(.success(stage.bus.connection.pending[0].message.answered()))
        try stage.ask(post("c"))
        let line = try #require(stage.bus.lines.first)
        #expect(line.written.isEmpty)
        stage.bus.connection.answerFirst(.failure(BusError(name: Self.unknownMethod, message: "why")))
        #expect(stage.bus.connection.takeSent() == ["Post", "Post?", "Ping?"])
        #expect(try line.takePosts() == ["c 1"])
    }

    @Test("Unread notifications of the channel are delivered before messages of the bus and before a flush ends")
    func drained() throws {
        let (stage, line) = try observing()
        line.lie([SimulatedLine.notification(1), SimulatedLine.notification(2)])
        stage.notify(3)
        #expect(Array(stage.takeTold().prefix(3)) == [1, 2, 3].map { #"Ding \#($0) for ["Ding"]"# })
        line.lie([SimulatedLine.notification(4)])
        let ear = stage.ear
        try stage.ask(.barrier { ear.told.append("flushed \($0)") })
        #expect(stage.takeTold() == [#"Ding 4 for ["Ding"]"#, "flushed true"])
    }

    @Test("A channel handles one frame at a time, whose bytes remain intact during a nested drain")
    func oneAtATime() throws {
        let line = SimulatedLine()
        let channel = ClientChannel(line, from: try #require(UniqueName(rawValue: ":1.100")))
        var taken: [String] = []
        channel.onFrame = { [unowned channel] frame, _ in
            let bytes = Array(frame.body)
            taken.append("begin \(frame.number)")
            if frame.number == 1 { line.lie([SimulatedLine.notification(3)]) }
            channel.drain()
            #expect(Array(frame.body) == bytes)
            taken.append("end \(frame.number)")
            return .taken
        }
        line.arrive(SimulatedLine.notification(1), SimulatedLine.notification(2))
        #expect(taken == (1...3).flatMap { ["begin \($0)", "end \($0)"] })
    }

    @Test("A notification, and those behind it, wait until the bus brings the ID of its observer")
    func early() throws {
        let (stage, line) = try observing()
        holdBack(stage, AddObserver.member)
        try stage.ask(.register(Self.key("Dong")))
        line.arrive(SimulatedLine.notification(1), SimulatedLine.notification(2, observer: 2))
        line.arrive(SimulatedLine.notification(3))
        #expect(stage.takeTold() == [#"Ding 1 for ["Ding"]"#])
        let call = try #require(stage.bus.connection.pending.last)
        call.completion(.success(call.message.answered { AddObserver.append(ObserverID(rawValue: 2), to: &$0) }))
        line.turn()
        #expect(stage.takeTold() == [#"Ding 2 for ["Dong"]"#, #"Ding 3 for ["Ding"]"#])
    }

    @Test("An observer that policy removes before its ID is known is reported as refused when the ID arrives")
    func revokedEarly() throws {
        let (stage, line) = try observing()
        holdBack(stage, AddObserver.member)
        try stage.ask(.register(Self.key("Dong")))
        line.arrive(
            SimulatedLine.bytes {
                $0.append(
                    DroppedSignal(
                        count: 0, observers: [ObserverID(rawValue: 2)], reason: DroppedSignal.notAllowed))
            },
            SimulatedLine.notification(1))
        #expect(stage.takeTold() == [])
        let call = try #require(stage.bus.connection.pending.last)
        call.completion(.success(call.message.answered { AddObserver.append(ObserverID(rawValue: 2), to: &$0) }))
        line.turn()
        let told = stage.takeTold()
        #expect(told.count == 2 && told[0].hasPrefix("refused Dong: "), "\(told)")
        #expect(told.last == #"Ding 1 for ["Ding"]"#)
    }

    // MARK: Outcomes and flow

    @Test("Each awaited post gets the outcome with its number, and the loss of any other post is reported")
    func outcomes() throws {
        let (stage, line) = try observing()
        let ear = stage.ear
        try stage.ask(
            post("a") { ear.told.append("a \((try? $0.get()) ?? -1)") }, post("b") { ear.told.append("b \($0)") },
            post("c"))
        #expect(try line.takePosts() == ["a 1", "b 2", "c 3"])
        #expect(!stage.session.mayStop())
        line.settle(1, receivers: 7)
        line.settle(2, error: BusError(.invalidName, message: "why"))
        line.settle(3, error: BusError(.limitExceeded, message: "too much"))
        let told = stage.takeTold()
        #expect(told.count == 3 && told[0] == "a 7" && told[1].contains("why"), "\(told)")
        #expect(told[2] == "lost: too much")
    }

    @Test("Every 64th post on a channel and the last one are confirmed, and at most 1024 are in flight")
    func window() throws {
        let (stage, line) = try observing()
        for _ in 0..<2000 { try stage.outbox.append(post()) }
        stage.session.pump()
        var posts = try line.takePosts()
        #expect(posts.count == 1024)
        var unanswered = 0
        for post in posts {
            unanswered = post.hasSuffix(" 0") ? unanswered + 1 : 0
            #expect(unanswered < 64)
        }
        #expect(posts.last?.hasSuffix(" 0") == false)
        #expect(line.writes < 20, "the first ones by themselves, as the line is idle")
        for number in posts.compactMap({ UInt64($0.split(separator: " ")[1]) }) where number > 0 { line.settle(number) }
        posts = try line.takePosts()
        #expect(posts.count == 2000 - 1024 && posts.last?.hasSuffix(" 0") == false)
    }

    @Test("E1: the window of a channel remains full if the service loses and regains its name and keeps the channel")
    func windowOfSameService() throws {
        let (stage, line) = try observing()
        for _ in 0..<2000 { try stage.outbox.append(post()) }
        stage.session.pump()
        var posts = try line.takePosts()
        #expect(posts.count == 1024)
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Self.busName, to: owner)) }
        #expect(stage.takeTold().contains("connected"))
        #expect(stage.session.transport == .channel && stage.bus.lines.count == 1)
        #expect(try line.takePosts() == [], "all wait for their outcomes")
        for number in posts.compactMap({ UInt64($0.split(separator: " ")[1]) }) where number > 0 { line.settle(number) }
        posts = try line.takePosts()
        #expect(posts.count == 2000 - 1024)
    }

    @Test("Posts wait while the socket is full, and all leave in order when the socket has space")
    func full() throws {
        let (stage, line) = try observing()
        line.room = 100
        var (sent, names) = (0, [String]())
        for number in 0..<300 {
            try stage.ask(post("\(number)"))
            sent += 1
        }
        #expect(line.written.count == 100)
        line.turn()
        for _ in 0..<3000 where names.count < sent {
            line.room += 33
            line.turn()
            for name in try line.takePosts() {
                names.append(String(name.split(separator: " ")[0]))
                if let number = UInt64(name.split(separator: " ")[1]), number > 0 { line.settle(number) }
            }
        }
        #expect(names == (0..<300).map(String.init))
        #expect(stage.takeTold().isEmpty)
    }

    // MARK: Falling back

    @Test("If a channel is cut at any byte, each post is either reported as possibly lost or sent on the bus")
    func cutGoingOut() throws {
        let frame = SimulatedLine.bytes { writer in
            if let post = try? PostCall(name: "a").marshalled() {
                writer.appendPost(number: 0, body: post.marshalledBody)
            }
        }.count
        for cut in 0...2 * frame {
            let (stage, line) = try observing()
            line.room = cut
            stage.bus.answer = { _ in nil }
            try stage.outbox.append(post("a"))
            try stage.outbox.append(post("b"))
            try stage.outbox.append(.barrier { _ in })
            stage.session.pump()
            let arrived = try line.takePosts().count
            #expect(arrived == cut / frame)
            line.end()
            let told = stage.takeTold()
            #expect(told.filter { $0.contains("may be lost") }.count == arrived, "\(told)")
            let sent = stage.bus.connection.takeSent()
            let again = sent.first == "Post" ? 1 : sent.first == "PostMany" ? 2 : 0
            #expect(arrived + again == 2, "cut at \(cut): \(sent)")
            #expect(stage.session.transport == .bus)
        }
    }

    @Test("If a channel is cut at any byte, each notification is delivered once, even if the bus repeats it")
    func cutComingIn() throws {
        let frames = (1...3).map { SimulatedLine.notification(UInt64($0)) }
        let all = frames.flatMap { $0 }
        for cut in 0...all.count {
            let (stage, line) = try observing()
            line.arrive(Array(all[..<cut]))
            let heard = cut / frames[0].count
            line.end()
            stage.bus.answer = { _ in nil }
            for number in max(1, heard)...4 { stage.notify(UInt64(number)) }
            let told = stage.takeTold().filter { $0.hasPrefix("Ding") || $0.hasPrefix("missing") }
            #expect(told == (1...4).map { #"Ding \#($0) for ["Ding"]"# }, "cut at \(cut)")
        }
    }

    @Test("After a fallback to the bus, repeated notifications are recognized and a hole is reported")
    func repeated() throws {
        let (stage, line) = try observing()
        line.arrive(SimulatedLine.notification(1), SimulatedLine.notification(2), SimulatedLine.notification(3))
        stage.bus.answer = { _ in nil }
        line.end()
        _ = stage.takeTold()
        for number in [2, 3, 4, 6] { stage.notify(UInt64(number)) }
        #expect(
            stage.takeTold() == [
                #"Ding 4 for ["Ding"]"#, "missing(count: 1)", #"Ding 6 for ["Ding"]"#,
            ])
    }

    @Test("A session requests an ended channel again when it is needed, after growing pauses, and not without end")
    func comesBack() throws {
        let (stage, _) = try observing()
        var opened = 1
        for _ in 0..<10_000 {
            if stage.session.transport == .channel {
                opened = stage.bus.lines.count
                stage.bus.lines.last?.end()
                #expect(stage.session.transport == .bus)
            }
            stage.bus.pass(milliseconds: 1000)
            try stage.ask(post())
        }
        #expect(10...17 ~= opened)
        stage.bus.pass(milliseconds: 1000)
        let timers = stage.bus.pauses.count
        stage.bus.pass(milliseconds: 10_000_000)
        #expect(stage.bus.pauses.count == timers, "nothing happens while nothing is to be carried")
    }

    @Test("A malformed frame ends the channel; posts leave on the bus when the service closes it or after a time")
    func malformed() throws {
        for isClosed in [true, false] {
            let (stage, line) = try observing()
            line.arrive(SimulatedLine.notification(1), SimulatedLine.bytes { $0.appendPost(number: 1, body: [1]) })
            #expect(line.isWritingOver)
            try stage.ask(post())
            #expect(stage.bus.connection.takeSent() == [])
            if isClosed { line.end() } else { stage.bus.pass(milliseconds: Int64(Channels.endingMilliseconds)) }
            #expect(stage.bus.connection.takeSent() == ["Post"])
            #expect(stage.takeTold().contains { $0.hasPrefix("bus as") })
        }
    }

    @Test("An undecodable notification or an outcome of no post is reported")
    func undecodable() throws {
        let (stage, line) = try observing()
        line.arrive(
            SimulatedLine.bytes { $0.append(.notification, number: 1, atMost: 8) { body in body.append(UInt32(4)) } })
        #expect(stage.takeTold().contains { $0.hasPrefix("undecodable") })
        let (other, unknown) = try observing()
        unknown.settle(7)
        #expect(other.takeTold().contains { $0.hasPrefix("undecodable") }, "nobody asked")
    }

    @Test("A flush fails if posts before it may be lost")
    func barriers() throws {
        let (stage, line) = try observing()
        let ear = stage.ear
        try stage.ask(post("a"), .barrier { ear.told.append("flushed \($0)") })
        #expect(stage.takeTold().isEmpty, "the outcome is awaited")
        line.settle(1)
        #expect(stage.takeTold() == ["flushed true"])
        try stage.ask(post("b"), .barrier { ear.told.append("flushed \($0)") })
        line.end()
        try stage.ask(.barrier { ear.told.append("flushed \($0)") })
        #expect(stage.takeTold().filter { $0.hasPrefix("flushed") } == ["flushed false", "flushed true"])
    }

    @Test("A flush that failed with its service does not affect flushes at the next service")
    func barriersOfNext() throws {
        let (stage, line) = try observing()
        let ear = stage.ear
        try stage.ask(post(), .barrier { ear.told.append("flushed \($0)") })
        stage.bus.answer = { _ in nil }
        _ = stage.arrive(.ownerChange(Self.busName, to: ""))
        // It ends while the next service is asked, so that the barrier stays behind a post of unknown outcome.
        line.end()
        #expect(!stage.takeTold().contains { $0.hasPrefix("flushed") })
        stage.bus.connection.answerFirst(.failure(BusError(name: BusError.serviceUnknownName, message: "")))
        #expect(stage.takeTold().filter { $0.hasPrefix("flushed") } == ["flushed false"])
        stage.serve()
        _ = stage.arrive(.ownerChange(Self.busName, to: ":1.100"))
        try stage.ask(.barrier { ear.told.append("flushed \($0)") })
        #expect(stage.takeTold().filter { $0.hasPrefix("flushed") } == ["flushed true"])
    }

    // MARK: Other services, other buses, other wishes

    @Test("E3: notifications of an ended service's channel are delivered, and the next service gives its own channel")
    func replaced() throws {
        let (stage, line) = try observing()
        let answer = stage.bus.answer
        stage.bus.answer = { _ in nil }
        _ = stage.arrive(.ownerChange(Self.busName, to: ""))
        try stage.ask(post("a"))
        #expect(line.written.isEmpty, "it is for the next one")
        line.lie([SimulatedLine.notification(1)])
        line.hasEnded = true
        let question = try #require(stage.bus.connection.pending.last)
        #expect(question.message.member == ListObservers.member)
        _ = stage.takeTold()
        stage.bus.answer = { call in answer(call).map { $0.map { $0.carried(from: ":1.101") } } }
        question.completion(
            .success(
                question.message.answered { ListObservers.append(stage.observers, to: &$0) }.carried(from: ":1.101")))
        #expect(stage.takeTold().first == #"Ding 1 for ["Ding"]"#)
        #expect(stage.bus.lines.count == 2)
        #expect(try stage.bus.lines[1].takePosts() == ["a 1"])
        stage.bus.lines[1].arrive(SimulatedLine.notification(2))
        #expect(stage.takeTold() == [#"Ding 2 for ["Ding"]"#])
    }

    @Test("At the end of the bus, unread notifications of the channel are delivered and posts in flight are reported")
    func busCloses() throws {
        let (stage, line) = try observing()
        try stage.ask(post("a"))
        line.lie([SimulatedLine.notification(1)])
        stage.bus.failure = .noServer("gone")
        stage.bus.connection.onDisconnect?()
        let told = stage.takeTold()
        #expect(told.first == #"Ding 1 for ["Ding"]"#)
        #expect(told.filter { $0.contains("may be lost") }.count == 1, "\(told)")
        #expect(stage.session.transport == .bus)
        stage.bus.pass(milliseconds: 0)
        #expect(line.onReady == nil)
    }

    @Test("A change of transport takes effect while the session runs, after all posts have outcomes")
    func changed() throws {
        let wish = TransportPreference()
        let stage = stage(wish)
        try stage.ask(.register(Self.key("Ding")))
        stage.start()
        wish.ofProgram = .channel
        stage.session.pump()
        let line = try #require(stage.bus.lines.first)
        try stage.ask(post("a"))
        wish.ofProgram = .bus
        stage.session.pump()
        _ = stage.bus.connection.takeSent()
        try stage.ask(post("b"))
        #expect(try line.takePosts() == ["a 1"])
        #expect(!line.isWritingOver)
        line.settle(1)
        #expect(line.isWritingOver)
        line.arrive(SimulatedLine.notification(1))
        #expect(stage.bus.connection.takeSent() == [], "the service may not have read it all")
        line.end()
        #expect(stage.bus.connection.takeSent() == ["Post"])
        #expect(stage.takeTold().filter { $0.hasPrefix("Ding") || $0.hasPrefix("lost") } == [#"Ding 1 for ["Ding"]"#])
        wish.ofProgram = .channel
        stage.bus.pass(milliseconds: 1000)
        try stage.ask(post("c"))
        #expect(stage.session.transport == .channel)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonDBus
@testable import CarillonCore

/// Posts that come together, read where they lie (F1): each as one that came alone.
@Suite("F1: posts of one PostMany call, read in place", .limited)
struct ArrivedPostsTests {
    private func read(
        _ call: Message, limits: Limits = Limits(), refusing bad: String = ""
    ) throws -> [String] {
        var posts = try ArrivedPosts(call, limits: limits)
        var told: [String] = []
        while !posts.isAtEnd {
            let (name, post) = posts.next(limits: limits) { name, _ throws(BusError) in
                if name == bad { throw BusError(.notAllowed, message: "") }
            }
            switch post {
            case .success(let post):
                told.append("\(post.name) of '\(post.object)' \(post.options.postingStyle.rawValue)")
            case .failure(let error): told.append("\(name): \(error.name.rawValue.split(separator: ".").last ?? "")")
            }
        }
        return told
    }

    private func structure(
        _ writer: inout MessageWriter, _ name: String, _ value: (Signature, (inout MessageWriter) -> Void)? = nil,
        options: (inout MessageWriter) -> Void = { _ in }
    ) {
        writer.structure { writer in
            writer.append(name)
            writer.append("object")
            writer.array(of: "{sv}") { writer in
                if let value { writer.entry("key", value.0, value.1) }
            }
            writer.array(of: "{sv}", options)
        }
    }

    private func call(_ body: (inout MessageWriter) -> Void) -> Message {
        let message = Wire.methodCall(PostMany.member)
        var writer = MessageWriter(message)
        writer.array(of: "(ssa{sv}a{sv})", body)
        return message
    }

    private func mixed() -> Message {
        call { writer in
            structure(&writer, "a")
            structure(&writer, "b", ("(s)", { $0.structure { $0.append("s") } }))
            structure(&writer, "c", ("x", { $0.append(Int64(1)) })) { $0.entry("posting-style", "asap") }
            structure(&writer, "d") { $0.entry("slip", "asap") }
            structure(&writer, "e", ("s", { $0.append("é") })) { $0.entry("deliver-immediately", true) }
        }
    }

    @Test("Each post of a batch is read by itself, and an invalid post does not affect the others")
    func mixedPosts() throws {
        #expect(
            try read(mixed(), refusing: "e") == [
                "a of 'object' now", "b: InvalidUserInfo", "c of 'object' asap", "d: InvalidOption", "e: NotAllowed",
            ])
        #expect(try read(call { _ in }) == [])
    }

    @Test("The userInfo bytes of a post in a batch equal those of a single call")
    func bytes() throws {
        let alone = try PostCall(name: "c", object: "object", userInfo: ["key": .int64(1)]).message()
        let body = try Post(alone, limits: Limits()) { _, _ in }.userInfo.commonBody
        var posts = try ArrivedPosts(mixed(), limits: Limits())
        for place in 0..<3 {
            let post = posts.next(limits: Limits()) { _, _ throws(BusError) in }.post
            if place == 2 { #expect(try post.get().userInfo.commonBody == body) }
        }
    }

    @Test("A PostMany call that a client combines from single calls contains equal posts")
    func putTogether() throws {
        let posts = try [
            PostCall(name: "a", userInfo: ["k": .data([1, 2, 3])]), PostCall(name: "bcdefg", object: "o"),
            PostCall(name: "h", userInfo: ["l": .dictionary(["m": .double(1.5)])]),
        ]
        let message = try #require(PostMany.message(of: posts.map { $0.message() }, wantsAnswer: true))
        #expect(!message.expectsNoReply && message.destination?.rawValue == Wire.busName.rawValue)
        var reader = MessageReader(message)
        let back = try PostMany(from: &reader).posts
        #expect(back.map(\.name) == posts.map(\.name) && back.map(\.object) == posts.map(\.object))
        #expect(back.map(\.userInfo) == posts.map(\.userInfo))
        #expect(try read(message).count == 3)
    }

    @Test("E1: a PostMany call with more posts than posts-per-call is refused as a whole")
    func tooMany() throws {
        var limits = Limits()
        limits[.postsPerCall] = 4
        do {
            _ = try ArrivedPosts(mixed(), limits: limits)
            Issue.record("five are read where four may come")
        } catch let error {
            #expect(error.centerError == .limitExceeded)
        }
        limits[.postsPerCall] = 5
        #expect(try read(mixed(), limits: limits).count == 5)
        #expect(runs(of: mixed(), limits: limits)?.map(\.name) == ["a", "b", "c", "e"])
        #expect(runs(of: mixed(), limits: limits)?.map(\.isImmediate) == [false, false, false, true])
        limits[.postsPerCall] = 4
        #expect(runs(of: mixed(), limits: limits) == nil)
    }

    @Test("E4: posts of a batch with equal name, object and urgency form one run, in any order")
    func runs() throws {
        let kinds = [
            ("a", "", false, 3), ("a", "o", false, 1), ("b", "o", false, 2), ("b", "o", true, 2), ("a", "", false, 1),
        ]
        var posts: [PostCall] = []
        for (name, object, isImmediate, count) in kinds {
            for number in 0..<count {
                var options = PostOptions()
                options.deliverImmediately = isImmediate
                posts.append(
                    try PostCall(
                        name: name, object: object, userInfo: ["number": .int64(Int64(number))], options: options))
            }
        }
        let call = PostMany(posts).message()
        let found = try #require(runs(of: call))
        #expect(found.map(\.name) == ["a", "a", "b", "b"] && found.map(\.object) == ["", "o", "o", "o"])
        #expect(found.map(\.isImmediate) == [false, false, false, true] && found.map(\.count) == [4, 1, 2, 2])
        let ofOne = try #require(runs(of: call, isName: { $0.elementsEqual("a".utf8) }, isObject: { _ in false }))
        #expect(ofOne.map(\.name) == ["a", nil, nil] && ofOne.map(\.count) == [5, 2, 2])
        #expect(ofOne.allSatisfy { $0.object.isEmpty } && ofOne.map(\.isImmediate) == [false, false, true])
        // The same bytes again, also behind those of another.
        let twice = try #require(runs(of: PostMany(posts + posts + posts.reversed()).message()))
        #expect(twice.map(\.name) == found.map(\.name) && twice.map(\.count) == [12, 3, 6, 6])
        let ofObject = try #require(runs(of: call, isName: { _ in false }, isObject: { $0.elementsEqual("o".utf8) }))
        #expect(ofObject.map(\.object) == ["", "o", "o"] && ofObject.map(\.count) == [4, 3, 2])
    }

    @Test("E4: runs cover all posts of a batch, and up to eight alternating keys form one run each", arguments: 1...30)
    func manyKinds(kinds: Int) throws {
        let posts = try (0..<60).map { number in
            var options = PostOptions()
            options.deliverImmediately = number % kinds % 2 == 1
            return try PostCall(name: "n\(number % kinds)", object: "", userInfo: [:], options: options)
        }
        let found = try #require(runs(of: PostMany(posts).message()))
        #expect(found.count == (kinds <= 8 ? kinds : 60))
        for kind in 0..<kinds {
            let ofKind = found.filter { $0.name == "n\(kind)" && $0.isImmediate == (kind % 2 == 1) }
            #expect(ofKind.reduce(0) { $0 + $1.count } == UInt64((0..<60).count { $0 % kinds == kind }))
        }
    }

    @Test("E1: runs do not include posts that would be refused")
    func refusedRuns() throws {
        var limits = Limits()
        limits[.nameLength] = 8
        limits[.objectLength] = 4
        let posts = [("a", "12345"), ("a", "1234"), ("123456789", ""), ("12345678", "")]
        let call = PostMany(try posts.map { try PostCall(name: $0.0, object: $0.1, userInfo: [:]) }).message()
        #expect(runs(of: call, limits: limits)?.map(\.name) == ["a", "12345678"])
        let outline = try #require(
            ArrivedPosts.runs(of: call, limits: limits, isName: { _ in true }, isObject: { _ in true }))
        #expect(outline.refused == 2, "an object and a name are too long")
        let unobserved = runs(of: call, limits: limits, isName: { _ in false }, isObject: { _ in false })
        #expect(unobserved?.map(\.count) == [2])
        // What is no text, twice, so that the second is one that was met.
        var bytes = PostMany(
            try ["aa", "aa", "bb", "bb"].map { try PostCall(name: $0, object: $0 == "bb" ? "oo" : "", userInfo: [:]) }
        ).message().marshalledBody
        for place in bytes.indices where bytes[place] == UInt8(ascii: "a") || bytes[place] == UInt8(ascii: "o") {
            bytes[place] = 0xFF
        }
        #expect(runs(of: try #require(arrived(bytes)), limits: limits) == [])
        limits[.nameLength] = 0
        #expect(runs(of: call, limits: limits) == [], "it can be read, and nothing of it posted")
    }

    private func runs(
        of call: Message, limits: Limits = Limits(), isName: (UnsafeRawBufferPointer) -> Bool = { _ in true },
        isObject: (UnsafeRawBufferPointer) -> Bool = { _ in true }
    ) -> [ArrivedPosts.Run]? {
        ArrivedPosts.runs(of: call, limits: limits, isName: isName, isObject: isObject)?.runs
    }

    /// The call as a bus hands it on that has not looked at its arguments.
    private func arrived(_ body: [UInt8]) -> Message? {
        let call = mixed()
        _ = call.numbered { 2 }
        var bytes = call.withMarshalledBytes { Array($0) }
        bytes.removeLast(call.marshalledBody.count)
        withUnsafeBytes(of: UInt32(body.count)) { bytes.replaceSubrange(4..<8, with: $0) }
        return Message(arrived: bytes + body)
    }

    @Test("E2: a damaged batch of posts is read or refused, and a truncated one is refused")
    func damaged() throws {
        let whole = mixed().marshalledBody
        for place in whole.indices {
            for value in [0, 1, 0x7F, 0xFF] as [UInt8] {
                var body = whole
                body[place] = value
                guard let message = arrived(body) else { continue }
                _ = try? read(message)
                _ = runs(of: message)
            }
        }
        for count in stride(from: 0, to: whole.count, by: 3) {
            guard let message = arrived(Array(whole[..<count])) else { continue }
            #expect(runs(of: message) == nil)
            #expect(throws: BusError.self) { try read(message) }
        }
    }

    @Test("E1: userInfo of the maximum depth also fits into a batch, within the nesting of D-Bus")
    func deep() throws {
        var limits = Limits()
        limits[.userInfoDepth] = .max
        func value(_ levels: Int) -> PropertyList {
            levels == 0 ? .boolean(true) : .dictionary(["k": value(levels - 1)])
        }
        let post = try PostCall(name: "a", userInfo: ["k": value(Int(limits[.userInfoDepth]) - 1)])
        let message = try #require(PostMany.message(of: [post.message()], wantsAnswer: true), "libdbus takes it")
        var posts = try ArrivedPosts(message, limits: limits)
        let userInfo = try posts.next(limits: limits) { _, _ throws(BusError) in }.post.get().userInfo
        let notification = Notification(name: "a", object: "", userInfo: userInfo, poster: ":1.9", serial: 1)
        let delivery = Delivery(
            client: ":1.1", clientNumber: 0, notification: notification, details: [], expiryTime: nil,
            isRetained: false, isDelayed: false, observers: ObserverList([ObserverID(rawValue: 1)]), sequence: 1)
        let signal = NotificationsSignal.message(for: [delivery, delivery], to: ":1.1", messageSerial: 7) { _ in
            userInfo
        }
        let back = try #require(try NotificationsSignal(Message(signal)))
        #expect(back.notifications.count == 2 && back.notifications[1].userInfo == post.userInfo)
    }
}

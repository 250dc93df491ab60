// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonDBus

/// Posts that leave without libdbus: the messages that it would have made.
@Suite("Posts encoded without libdbus", .limited)
struct LaidOutPostTests {
    private static let userInfo: [String: PropertyList] = [
        "größe": .array([.int64(1), .double(2)]), "b": .boolean(true), "data": .data([1, 2, 3]),
    ]

    private static var options: [PostOptions] {
        var all = PostOptions()
        all.deliverImmediately = true
        all.postingStyle = .whenIdle
        all.coalescing = [.name, .object]
        var one = PostOptions()
        one.coalescing = [.object]
        return [PostOptions(), one, all]
    }

    @Test("The arguments of a post are encoded as by libdbus, for names and objects of any length")
    func arguments() throws {
        for options in Self.options {
            for length in 1...9 {
                let name = String(repeating: "n", count: length)
                let object = String(repeating: "ö", count: 9 - length)
                let post = try PostCall(name: name, object: object, userInfo: Self.userInfo, options: options)
                let (message, reference) = (try post.marshalled(), post.message(wantsAnswer: false))
                #expect(message.marshalledBody == reference.marshalledBody)
                #expect(message.signature == reference.signature && message.member == reference.member)
                #expect(message.path == reference.path && message.interface == reference.interface)
                #expect(message.destination == reference.destination && message.kind == .methodCall)
                #expect(message.expectsNoReply && message.startsService && message.serial == 0)
                var reader = MessageReader(message)
                let back = try PostCall(from: &reader)
                #expect(back.userInfo == Self.userInfo && back.options == options && back.name == name)
            }
        }
    }

    @Test(
        "The serial and the flags of an encoded post can be set, before and after libdbus has read it",
        arguments: [false, true])
    func header(isRead: Bool) throws {
        let message = try PostCall.marshalled(name: "Ding", userInfo: Self.userInfo)
        if isRead { _ = message.pointer }
        message.expectsNoReply = false
        #expect(!message.expectsNoReply && message.numbered { 7 } == 7 && message.numbered { 8 } == 7)
        let arrived = try #require(message.withMarshalledBytes { Message(arrived: Array($0)) })
        #expect(arrived.serial == 7 && !arrived.expectsNoReply && arrived.member == "Post")
        for copy in [Message(retaining: message.pointer), Message(retaining: arrived.pointer)] {
            #expect(copy.serial == 7 && !copy.expectsNoReply && copy.marshalledBody == message.marshalledBody)
        }
        message.expectsNoReply = true
        #expect(message.expectsNoReply)
    }

    @Test("Arguments that every service would refuse are refused with an error while the post is encoded")
    func refused() {
        func refusal(_ name: String, _ object: String = "", _ userInfo: [String: PropertyList] = [:]) -> CenterError? {
            do throws(CenterError) {
                _ = try PostCall.marshalled(name: name, object: object, userInfo: userInfo)
                return nil
            } catch {
                return error
            }
        }
        let reason = "a D-Bus string can't hold a NUL character"
        #expect(refusal("") == .invalidName)
        #expect(refusal("a\0") == .invalidName)
        #expect(refusal("a", "b\0c") == .invalidUserInfo(path: "object", reason: reason))
        #expect(refusal("a", "b", ["k": .string("\0")]) == .invalidUserInfo(path: "userInfo.k", reason: reason))
        let most = Limits.row(.userInfoBytes).hardMaximum
        #expect(
            refusal("a", "b", ["k": .data([UInt8](repeating: 0, count: Int(most)))])
                == .limitExceeded(.userInfoBytes, value: most))
        #expect(refusal("a", "b", ["k": .string("c")]) == nil)
    }

    @Test("F1: encoded posts are combined into one PostMany call")
    func together() throws {
        let posts = try (0..<5).map { number in
            try PostCall.marshalled(name: "n\(number)", object: String(repeating: "o", count: number))
        }
        let message = try #require(PostMany.message(of: posts, wantsAnswer: true))
        #expect(!message.expectsNoReply)
        var reader = MessageReader(message)
        let back = try PostMany(from: &reader).posts
        #expect(back.map(\.name) == ["n0", "n1", "n2", "n3", "n4"] && back.map(\.object.count) == [0, 1, 2, 3, 4])
    }
}

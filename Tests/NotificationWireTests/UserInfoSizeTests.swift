// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@Suite("E1: the size of userInfo", .limited)
struct UserInfoSizeTests {
    @Test(
        "E1: empty collections count with their padding, as on the wire",
        arguments: ["a{sv}", "a(x)", "as", "ax", "ay", "av", "aa{sv}"] as [Signature])
    func emptyCollections(type: Signature) throws {
        let post = try post { writer in
            for index in 0..<100 {
                writer.dictEntry { writer in
                    // Keys of different lengths, so that every alignment comes up.
                    writer.append(String(repeating: "k", count: index))
                    writer.variant(of: type) { writer in
                        writer.array(of: Signature(rawValue: String(type.rawValue.dropFirst()))!) { _ in }
                    }
                }
            }
        }
        #expect(try Sample.check(post) == post.marshalledBody.count - Self.before)
    }

    @Test("E1: userInfo that exceeds the limit only by padding is refused")
    func padding() throws {
        var limits = Limits()
        limits[.userInfoBytes] = 1500
        let post = try post { writer in
            writer.dictEntry { writer in
                writer.append("empty")
                writer.variant(of: "av") { writer in
                    writer.array(of: "v") { writer in
                        // 7 bytes of signature, 1 of padding, 4 of length, and 4 of padding that were not counted.
                        for _ in 0..<100 { writer.variant(of: "a{sv}") { $0.array(of: "{sv}") { _ in } } }
                    }
                }
            }
        }
        #expect(post.marshalledBody.count > 1600)
        #expect(throws: CenterError.limitExceeded(.userInfoBytes, value: 1500)) {
            try Sample.check(post, limits: limits)
        }
    }

    /// The bytes of name and object, `x` and none, before the userInfo.
    private static let before = 16

    /// The first three arguments of a post, so that the userInfo is the last.
    private func post(_ entries: (inout MessageWriter) -> Void) throws -> Message {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        writer.append("x")
        writer.append("")
        writer.array(of: "{sv}", entries)
        return message
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// Messages with the arguments of the contract, made without a bus.
enum Sample {
    /// A post whose userInfo `body` appends.
    static func post(_ body: (inout MessageWriter) -> Void) -> Message {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        writer.append("Ding")
        writer.append("")
        body(&writer)
        writer.array(of: "{sv}") { _ in }
        return message
    }

    /// A post whose userInfo has one entry.
    static func post(key: String = "a", _ signature: Signature, _ body: (inout MessageWriter) -> Void) -> Message {
        post { writer in
            writer.array(of: "{sv}") { writer in
                writer.dictEntry { writer in
                    writer.append(key)
                    writer.variant(of: signature, body)
                }
            }
        }
    }

    /// Has the service's checker look at a post.
    ///
    /// - Returns: the bytes that it counted.
    @discardableResult
    static func check(_ post: Message, limits: Limits = Limits()) throws -> Int {
        try userInfo(of: post, limits: limits).byteCount
    }

    /// The userInfo of a post, as the service takes it.
    static func userInfo(of post: Message, limits: Limits = Limits()) throws -> WireUserInfo {
        try post.withMarshalledBody { body in
            var reader = MarshalledReader(body)
            for _ in 0..<2 { _ = reader.readText() }
            return try WireUserInfo(at: &reader, limits: limits)
        }
    }

    /// A message with options, `a{sv}`, and a reader at them.
    static func options(_ body: (inout MessageWriter) -> Void) -> MessageReader {
        let message = Wire.methodCall("Post")
        var writer = MessageWriter(message)
        writer.array(of: "{sv}", body)
        return MessageReader(message)
    }
}

extension MessageWriter {
    /// An entry of any type.
    mutating func entry(_ key: String, _ signature: Signature, _ body: (inout MessageWriter) -> Void) {
        dictEntry { writer in
            writer.append(key)
            writer.variant(of: signature, body)
        }
    }
}

import DBus
import NotificationCore
import NotificationWire

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
        var reader = MessageReader(post)
        reader.skip()
        reader.skip()
        let userInfo = try WireUserInfo(of: post, at: &reader, limits: limits)
        return userInfo.byteCount
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

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that posts several notifications in one call, like consecutive calls of ``Post``, and replies with
/// an outcome for each (F1). A refused post does not stop the others.
///
/// This type encodes the call for clients; the service decodes the posts one by one with ``ArrivedPosts``.
public struct PostMany: CenterMethod {
    public var posts: [PostCall]

    public init(_ posts: [PostCall]) {
        self.posts = posts
    }

    public static let member: MemberName = "PostMany"
    public static let inputs: [Interface.Argument] = [
        .init("posts", "a(ssa{sv}a{sv})", qtType: "QList<CarillonPost>")
    ]
    public static let outputs: [Interface.Argument] = [
        .init("outcomes", "a(us)", qtType: "QList<CarillonOutcome>")
    ]

    public init(from arguments: inout MessageReader) throws(BusError) {
        posts = []
        var structures = try arguments.readContainer(.array)
        while !structures.isAtEnd {
            var post = try structures.readContainer(.structure)
            posts.append(try PostCall(from: &post))
        }
    }

    public func append(to writer: inout MessageWriter) {
        writer.array(of: "(ssa{sv}a{sv})") { writer in
            for post in posts { writer.structure { post.append(to: &$0) } }
        }
    }

    /// Assembles the call from encoded calls of ``Post``, whose bytes are copied. The client library batches queued
    /// posts in this way.
    ///
    /// - Returns: nil if the call would exceed the size of a D-Bus message.
    public static func message(of calls: [Message], wantsAnswer: Bool) -> Message? {
        let size = calls.reduce(MarshalledBytes.maxBytesOfArray) { $0 + 8 + $1.withMarshalledBody(\.count) }
        let message = form.call(size: size) { body in
            body.array { posts in
                for call in calls { call.withMarshalledBody { posts.append(marshalled: $0) } }
            }
        }
        message?.expectsNoReply = !wantsAnswer
        return message
    }

    private static let form = MessageTemplate.methodCall(
        to: Wire.busName, path: Wire.path, interface: Wire.interface, member: member, signature: "a(ssa{sv}a{sv})")

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [PostOutcome] {
        var outcomes: [PostOutcome] = []
        var rows = try reader.readContainer(.array)
        while !rows.isAtEnd {
            var row = try rows.readContainer(.structure)
            outcomes.append(PostOutcome(receivers: Int(try row.read(UInt32.self)), errorName: try row.read()))
        }
        return outcomes
    }

    public static func append(_ reply: [PostOutcome], to writer: inout MessageWriter) {
        writer.array(of: "(us)") { writer in
            for outcome in reply {
                writer.structure { writer in
                    writer.append(UInt32(outcome.receivers))
                    writer.append(outcome.errorName)
                }
            }
        }
    }
}

/// The outcome of one post of a call of ``PostMany``.
public struct PostOutcome: Equatable, Sendable {
    /// The number of matching clients; 0 for a post that is queued or refused.
    public let receivers: Int
    /// The name of the error; empty for an accepted post.
    public let errorName: String

    public init(receivers: Int, errorName: String = "") {
        self.receivers = receivers
        self.errorName = errorName
    }

    /// Creates the outcome of a refused post.
    public init(_ error: BusError) {
        self.init(receivers: 0, errorName: error.name.rawValue)
    }

    /// The error, with a message derived from its name; nil for an accepted post.
    public var error: BusError? {
        guard !errorName.isEmpty else { return nil }
        let name = InterfaceName(rawValue: errorName) ?? "org.freedesktop.DBus.Error.Failed"
        let words =
            name == BusError.invalidArgsName
            ? "it is malformed" : CenterErrorName(rawValue: errorName)?.words
        return BusError(name: name, message: "the post was refused: \(words ?? errorName)")
    }
}

extension MethodCall.Answer {
    /// Replies to a call of ``PostMany``.
    public func reply(toPosts outcomes: [PostOutcome]) {
        // D-Bus aligns each structure to 8 bytes.
        let size = outcomes.reduce(MarshalledBytes.maxBytesOfArray) {
            $0 + 8 + 4 + MarshalledBytes.maxBytes(of: $1.errorName)
        }
        reply(in: Self.postManyReply, size: size) { body in
            body.array { rows in
                for outcome in outcomes {
                    rows.append(bytes: [])  // only the padding to 8 bytes
                    rows.append(UInt32(outcome.receivers))
                    rows.append(outcome.errorName)
                }
            }
        }
    }

    private static let postManyReply = MessageTemplate.methodReturn(signature: "a(us)")
}

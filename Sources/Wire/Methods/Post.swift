// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus

/// The D-Bus method that posts a notification and replies with the number of matching clients (D2, D3).
///
/// The type parameter is the form of userInfo. Clients use a dictionary (``PostCall``). The service keeps the received
/// bytes after a check (``WireUserInfo``), and sends the same bytes to the receivers.
public struct Post<UserInfo> {
    public let name: String
    /// The object of the notification; empty for none.
    public let object: String
    public let userInfo: UserInfo
    public var options: PostOptions

    public static var member: MemberName { "Post" }
    public static var inputs: [Interface.Argument] {
        [.init("name", "s"), .init("object", "s"), .init("user_info", "a{sv}"), .init("options", "a{sv}")]
    }
    public static var outputs: [Interface.Argument] { [.init("receivers", "u")] }
}

extension Post: Sendable where UserInfo: Sendable {}

extension Post: CenterMethod where UserInfo == [String: PropertyList] {
    /// Creates a post as a client sends it.
    ///
    /// - Throws: ``CenterError/invalidName`` for an empty name; ``CenterError/invalidUserInfo(path:reason:)`` for a
    ///   text with a NUL character, which D-Bus can't carry; ``CenterError/limitExceeded(_:value:)`` for a userInfo
    ///   beyond the hard maximum of a limit, which every service refuses.
    public init(
        name: String, object: String = "", userInfo: [String: PropertyList] = [:],
        options: PostOptions = PostOptions()
    ) throws(CenterError) {
        guard !name.isEmpty else { throw .invalidName }
        try UserInfoCoding.check(userInfo)
        self.name = name
        self.object = object
        self.userInfo = userInfo
        self.options = options
    }

    public init(from arguments: inout MessageReader) throws(BusError) {
        name = try arguments.read()
        object = try arguments.read()
        userInfo = try UserInfoCoding.read(from: &arguments)
        options = try mappingCenterErrors { () throws(CenterError) in try PostOptions(from: &arguments) }
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(name)
        writer.append(object)
        UserInfoCoding.append(checked: userInfo, to: &writer)
        options.append(to: &writer)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> Int {
        Int(try reader.read(UInt32.self))
    }

    public static func append(_ reply: Int, to writer: inout MessageWriter) {
        writer.append(UInt32(reply))
    }
}

extension Post where UserInfo == WireUserInfo {
    /// Decodes a call as the service receives it.
    ///
    /// - Parameters:
    ///   - call: A call whose types are ``inputs``.
    ///   - check: A check of name and object, run before userInfo is read.
    /// - Throws: The error of `check`; ``CenterError/invalidUserInfo(path:reason:)``,
    ///   ``CenterError/invalidOption(_:reason:)`` or ``CenterError/limitExceeded(_:value:)`` (N3, E1); InvalidArgs if
    ///   the arguments violate the D-Bus layout.
    public init(
        _ call: Message, limits: Limits, checking check: (String, String) throws(CenterError) -> Void
    ) throws(BusError) {
        var found: Post?
        try call.readMarshalledBody { body throws(BusError) in
            var reader = MarshalledReader(body)
            found = try Post(at: &reader, limits: limits) { name, object throws(BusError) in
                do throws(CenterError) {
                    try check(name, object)
                } catch {
                    throw BusError(error)
                }
            }
            guard reader.isAtEnd else { throw BusError.malformedArguments }
        }
        self = found.take()!
    }

    /// Decodes a post in place: the only one of a message, or one of several in ``PostMany``.
    ///
    /// - Parameters:
    ///   - arguments: A reader at the first argument of this post. It is moved behind the last.
    ///   - check: A check of name and object, run before userInfo is read.
    /// - Throws: The same errors as for a call.
    init(
        at arguments: inout MarshalledReader, limits: Limits,
        checking check: (String, String) throws(BusError) -> Void
    ) throws(BusError) {
        (name, object) = try Self.readNameAndObject(&arguments)
        try check(name, object)
        do throws(CenterError) {
            userInfo = try WireUserInfo(at: &arguments, limits: limits)
        } catch {
            throw BusError(error)
        }
        guard let entries = arguments.readArray(alignedTo: 8) else { throw BusError.malformedArguments }
        options = try PostOptions(at: entries, of: arguments)
        arguments.move(to: entries.upperBound)
    }

    /// Returns the name and the object of a call of this method, without decoding the rest.
    ///
    /// - Throws: InvalidArgs if the arguments violate the D-Bus layout.
    public static func nameAndObject(of call: Message) throws(BusError) -> (name: String, object: String) {
        var found: (name: String, object: String)?
        try call.readMarshalledBody { body throws(BusError) in
            var reader = MarshalledReader(body)
            found = try readNameAndObject(&reader)
        }
        return found!
    }

    fileprivate static func readNameAndObject(
        _ reader: inout MarshalledReader
    ) throws(BusError) -> (name: String, object: String) {
        guard let name = reader.readString(), let object = reader.readString() else {
            throw BusError.malformedArguments
        }
        return (name, object)
    }
}

/// The parts of a post that select its receivers. The overloaded service reads only these from a post that it discards,
/// to report the loss to its observers.
public struct PostOutline: Equatable, Sendable {
    public let name: String
    public let object: String
    /// Whether the post has the option `deliver-immediately`.
    public let isImmediate: Bool

    /// Creates the outline of a post from its name, object and option.
    package init(name: String, object: String, isImmediate: Bool) {
        self.name = name
        self.object = object
        self.isImmediate = isImmediate
    }

    /// Compares texts byte by byte. Swift's comparison would also equate texts with different bytes that are
    /// canonically equivalent in Unicode.
    public static func == (one: PostOutline, other: PostOutline) -> Bool {
        one.isImmediate == other.isImmediate && ExactText(one.name) == ExactText(other.name)
            && ExactText(one.object) == ExactText(other.object)
    }

    /// Reads the outline of a call of ``Post``, without decoding its userInfo.
    ///
    /// - Throws: InvalidArgs if the arguments violate the D-Bus layout; the errors of ``PostOptions``.
    public init(of call: Message) throws(BusError) {
        var found: PostOutline?
        try call.readMarshalledBody { body throws(BusError) in
            var reader = MarshalledReader(body)
            found = try PostOutline(at: &reader)
        }
        self = found!
    }

    /// Reads the outline of an undecoded call in its receive buffer; nil for a call of another method, or with
    /// arguments that violate the D-Bus layout.
    public init?(of call: ArrivingCall) {
        guard call.hasMember(PostCall.member), call.hasPath(Wire.path), call.mayBeOf(Wire.interface),
            call.hasSignature("ssa{sv}a{sv}")
        else { return nil }
        var reader = MarshalledReader(call.body)
        guard let outline = try? PostOutline(at: &reader) else { return nil }
        self = outline
    }

    /// Reads the outline of a post on a channel from the beginning of its body. The options are at the end of the body,
    /// so they are unknown: the post counts as immediate, since suspended clients might receive it.
    ///
    /// - Parameter head: The beginning of the body; the initializer fails if it does not contain the whole name and
    ///   object.
    public init?(channelHead head: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(head)
        guard let name = reader.readString(), let object = reader.readString(), !name.isEmpty else { return nil }
        self.init(name: name, object: object, isImmediate: true)
    }

    /// Reads the outline of a call of ``PostJSON``, which has no options.
    public init(ofJSON call: Message) throws(BusError) {
        (name, object) = try Post<WireUserInfo>.nameAndObject(of: call)
        isImmediate = false
    }

    /// Reads the outline of a post, and moves `arguments` behind it.
    init(at arguments: inout MarshalledReader) throws(BusError) {
        (name, object) = try Post<WireUserInfo>.readNameAndObject(&arguments)
        guard let userInfo = arguments.readArray(alignedTo: 8) else { throw BusError.malformedArguments }
        arguments.move(to: userInfo.upperBound)
        guard let entries = arguments.readArray(alignedTo: 8) else { throw BusError.malformedArguments }
        isImmediate = try PostOptions(at: entries, of: arguments).deliverImmediately
        arguments.move(to: entries.upperBound)
    }
}

extension MethodCall.Answer {
    /// Replies to a call of ``Post``. It is much faster than ``MethodCall/Answer/reply(to:_:)``, because the message is
    /// composed from a prepared form.
    public func reply(toPost receivers: Int) {
        reply(in: Self.postReply, size: 4) { $0.append(UInt32(receivers)) }
    }

    private static let postReply = MessageTemplate.methodReturn(signature: "u")
}

/// A post as clients send it.
public typealias PostCall = Post<[String: PropertyList]>

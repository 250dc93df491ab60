// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus

/// Posts a notification (D2, D3); answered with how many clients matched.
///
/// Clients give userInfo as a dictionary. The service takes the bytes that it came in, checked: ``WireUserInfo``.
public struct Post<UserInfo> {
    public let name: String
    /// Empty for none.
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
    /// A post as a client makes it.
    ///
    /// - Throws: ``CenterError/invalidName`` for an empty name; ``CenterError/invalidUserInfo(path:reason:)`` for a text
    ///   with a NUL character, which D-Bus can't carry; ``CenterError/limitExceeded(_:value:)`` for what no service
    ///   accepts, whatever its configuration.
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
    /// A post as the service takes it.
    ///
    /// - Parameters:
    ///   - call: its types are ``inputs``.
    ///   - check: of name and object, before userInfo is looked at.
    /// - Throws: what `check` throws; ``CenterError/invalidUserInfo(path:reason:)``,
    ///   ``CenterError/invalidOption(_:reason:)`` or ``CenterError/limitExceeded(_:value:)`` (N3, E1); InvalidArgs for
    ///   what is not laid out as D-Bus lays it out.
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

    /// The same where it lies, alone or with others.
    ///
    /// - Parameters:
    ///   - arguments: a reader over those of this post, at the first. It is moved behind them.
    ///   - check: of name and object, before userInfo is looked at.
    /// - Throws: as for a call, and what `check` throws.
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

    /// The name and the object of a call of this method, without a look at the rest.
    ///
    /// - Throws: InvalidArgs for what is not laid out as D-Bus lays it out.
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

/// What tells whom a post is for.
public struct PostOutline: Equatable, Sendable {
    public let name: String
    public let object: String
    public let isImmediate: Bool

    /// Of a post with this name, object and option.
    package init(name: String, object: String, isImmediate: Bool) {
        self.name = name
        self.object = object
        self.isImmediate = isImmediate
    }

    /// To the byte: texts that look the same may be two.
    public static func == (one: PostOutline, other: PostOutline) -> Bool {
        one.isImmediate == other.isImmediate && ExactText(one.name) == ExactText(other.name)
            && ExactText(one.object) == ExactText(other.object)
    }

    /// Of a call of ``Post``, without a look at its userInfo.
    ///
    /// - Throws: InvalidArgs for what is not laid out as D-Bus lays it out; what ``PostOptions`` throws.
    public init(of call: Message) throws(BusError) {
        var found: PostOutline?
        try call.readMarshalledBody { body throws(BusError) in
            var reader = MarshalledReader(body)
            found = try PostOutline(at: &reader)
        }
        self = found!
    }

    /// The same of one that lies where it arrived; nil for what is none, or is not laid out as D-Bus lays it out.
    public init?(of call: ArrivingCall) {
        guard call.hasMember(PostCall.member), call.hasPath(Wire.path), call.mayBeOf(Wire.interface),
            call.hasSignature("ssa{sv}a{sv}")
        else { return nil }
        var reader = MarshalledReader(call.body)
        guard let outline = try? PostOutline(at: &reader) else { return nil }
        self = outline
    }

    /// Of one that came on a channel, as far as the beginning of its body tells: its options stand at the end, so that it
    /// counts as one that may be delivered to whoever is suspended.
    ///
    /// - Parameter head: the beginning of the body.
    /// - Returns: nil where it has not the whole name and object.
    public init?(channelHead head: UnsafeRawBufferPointer) {
        var reader = MarshalledReader(head)
        guard let name = reader.readString(), let object = reader.readString(), !name.isEmpty else { return nil }
        self.init(name: name, object: object, isImmediate: true)
    }

    /// Of a call of ``PostJSON``.
    public init(ofJSON call: Message) throws(BusError) {
        (name, object) = try Post<WireUserInfo>.nameAndObject(of: call)
        isImmediate = false
    }

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
    /// Answers a call of ``Post``: as ``MethodCall/Answer/reply(to:_:)`` does, in a fraction of the time.
    public func reply(toPost receivers: Int) {
        reply(in: Self.postReply, size: 4) { $0.append(UInt32(receivers)) }
    }

    private static let postReply = MessageForm.methodReturn(signature: "u")
}

/// A post as clients make it.
public typealias PostCall = Post<[String: PropertyList]>

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The fast encoding of posts, for the client library and `carillon`: the size is computed first, and then the message
/// is written into one buffer, without libdbus. The bytes equal those of
/// ``CenterMethod/message(startsService:wantsAnswer:)``.
extension Post where UserInfo == [String: PropertyList] {
    /// Returns the call of a post. The call requests no reply by default.
    ///
    /// - Throws: ``CenterError/invalidName`` for a name that is empty or holds a NUL character;
    ///   ``CenterError/invalidUserInfo(path:reason:)`` for another text with a NUL character, which D-Bus can't carry;
    ///   ``CenterError/limitExceeded(_:value:)`` beyond the hard maximum of a limit.
    public static func marshalled(
        name: String, object: String = "", userInfo: [String: PropertyList] = [:],
        options: PostOptions = PostOptions()
    ) throws(CenterError) -> Message {
        try marshalled(name, object, userInfo, options)
    }

    /// The same, for callers whose userInfo is a list of entries and not a dictionary.
    ///
    /// - Parameter entries: The entries of userInfo, with distinct keys.
    public static func marshalled(
        name: String, object: String, entries: [(key: String, value: PropertyList)], options: PostOptions
    ) throws(CenterError) -> Message {
        try marshalled(name, object, entries, options)
    }

    private static func marshalled(
        _ name: String, _ object: String, _ userInfo: some Sequence<(key: String, value: PropertyList)>,
        _ options: PostOptions
    ) throws(CenterError) -> Message {
        guard !name.isEmpty else { throw .invalidName }
        let options = options.entries
        // D-Bus aligns each text to 4 bytes.
        let texts = ((4 + name.utf8.count + 1 + 3) & ~3) + 4 + object.utf8.count + 1
        let before = try texts + UserInfoLayout.byteCount(ofEntries: userInfo, at: texts)
        let size = try before + UserInfoLayout.byteCount(ofEntries: options, at: before)
        let message = try postForm.call(size: size) { body throws(CenterError) in
            guard body.append(checking: name) else { throw .invalidName }
            guard body.append(checking: object) else {
                throw .invalidUserInfo(path: "object", reason: "a D-Bus string can't hold a NUL character")
            }
            try UserInfoLayout.append(checking: userInfo, to: &body)
            guard UserInfoLayout.append(entries: options, to: &body) else {
                preconditionFailure("no option holds a NUL character")
            }
        }
        // The message would exceed the maximum size of D-Bus. Only a long name or object can cause this, because
        // userInfo was checked above.
        guard let message else { throw .limitExceeded(.nameLength, value: Limits.row(.nameLength).hardMaximum) }
        return message
    }

    /// Returns the call of this post.
    public func marshalled() throws(CenterError) -> Message {
        try Self.marshalled(name: name, object: object, userInfo: userInfo, options: options)
    }
}

private let postForm = MessageTemplate.methodCall(
    to: Wire.busName, path: Wire.path, interface: Wire.interface, member: PostCall.member, signature: "ssa{sv}a{sv}")

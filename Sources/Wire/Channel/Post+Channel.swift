// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

extension Post where UserInfo == WireUserInfo {
    /// Decodes a post frame of a channel, as the service receives it. The checks and errors are those of the method
    /// ``Post``.
    ///
    /// A post with invalid content is refused, and the channel continues. A body that violates the D-Bus layout is a
    /// protocol violation (``ChannelFrame/Fault``), which ends the channel.
    ///
    /// - Parameters:
    ///   - body: The body of a post frame, `ssa{sv}a{sv}`.
    ///   - check: A check of name and object, run before userInfo is read.
    /// - Returns: The name, and the post or the error that refuses it.
    /// - Throws: A fault if the body violates the D-Bus layout.
    public static func read(
        channelBody body: UnsafeRawBufferPointer, limits: Limits,
        checking check: (String, String) throws(BusError) -> Void
    ) throws(ChannelFrame.Fault) -> (name: String, post: Result<Post, BusError>) {
        // The boundaries of all arguments are checked first.
        var parts = MarshalledReader(body)
        guard parts.skipText(), parts.skipText(), let userInfo = parts.readArray(alignedTo: 8) else {
            throw .body(.post)
        }
        parts.move(to: userInfo.upperBound)
        guard let options = parts.readArray(alignedTo: 8), options.upperBound == body.count else {
            throw .body(.post)
        }
        var name = ""
        var reader = MarshalledReader(body)
        let post = Result { () throws(BusError) in
            try Post(at: &reader, limits: limits) { postName, object throws(BusError) in
                name = postName
                try check(postName, object)
            }
        }
        // The error may be caused by texts that are not UTF-8, which violate the layout, too.
        if case .failure = post {
            var texts = MarshalledReader(body)
            guard texts.readString() != nil, texts.readString() != nil else { throw .body(.post) }
        }
        return (name, post)
    }
}

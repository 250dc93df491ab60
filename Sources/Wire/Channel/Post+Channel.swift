// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

extension Post where UserInfo == WireUserInfo {
    /// A post that came on a channel, as the service takes it: exactly as one that came in a call.
    ///
    /// - Parameters:
    ///   - body: of a frame of the kind post, `ssa{sv}a{sv}`.
    ///   - check: of name and object, before userInfo is looked at.
    /// - Returns: its name, and the post, or why it is refused.
    /// - Throws: the fault, when it is not laid out as D-Bus lays it out.
    public static func read(
        channelBody body: UnsafeRawBufferPointer, limits: Limits,
        checking check: (String, String) throws(BusError) -> Void
    ) throws(ChannelFrame.Fault) -> (name: String, post: Result<Post, BusError>) {
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
        if case .failure = post {
            var texts = MarshalledReader(body)
            guard texts.readString() != nil, texts.readString() != nil else { throw .body(.post) }
        }
        return (name, post)
    }
}

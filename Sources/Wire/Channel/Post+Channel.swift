// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

extension Post where UserInfo == WireUserInfo {
    /// Decodes a post from a channel as the service receives it, with the same result as a post in a call.
    ///
    /// - Parameters:
    ///   - body: The body of a post frame, `ssa{sv}a{sv}`.
    ///   - check: A check of name and object, run before userInfo is read.
    /// - Returns: The name, and the post or the reason of its refusal.
    /// - Throws: A fault if the body violates the D-Bus layout.
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

// SPDX-License-Identifier: Apache-2.0
import DBus
import NotificationCore

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The posts of a call of ``PostMany``, read one by one where they lie.
///
/// How they are laid out is looked at first, so that a call of which nobody can tell where a post ends posts nothing.
public struct ArrivedPosts {
    private let call: Message
    /// A copy, where they can't be taken as they lie.
    private let copy: [UInt8]?
    /// Behind what was read.
    private var offset: Int
    /// How many there are.
    public let count: Int
    /// How many have been read.
    public private(set) var read = 0

    /// - Parameter call: its types are ``PostMany/inputs``.
    /// - Throws: InvalidArgs for what is not laid out as D-Bus lays it out; LimitExceeded for more than one call may have.
    public init(_ call: Message, limits: Limits) throws(BusError) {
        self.call = call
        copy = call.hasBodyInPlace ? nil : call.marshalledBody
        var count = 0
        let most = Int(limits[.postsPerCall])
        offset = try Self.withBody(of: call, or: copy) { body throws(BusError) in
            var reader = MarshalledReader(body)
            guard let posts = reader.readArray(alignedTo: 8), posts.upperBound == body.count else {
                throw BusError.malformedArguments
            }
            while !reader.isAtEnd {
                guard Self.passOver(&reader) != nil else { throw BusError.malformedArguments }
                count += 1
                guard count <= most else { throw BusError(.limitExceeded(.postsPerCall, value: UInt64(most))) }
            }
            return posts.lowerBound
        }
        self.count = count
    }

    public var isAtEnd: Bool { read == count }

    /// Reads the next. Call only while there is one.
    ///
    /// - Parameter check: of name and object, before userInfo is looked at.
    /// - Returns: its name, as far as it can be read, and the post, or why it is refused: as for a call of its own.
    public mutating func next(
        limits: Limits, checking check: (String, String) throws(BusError) -> Void
    ) -> (name: String, post: Result<Post<WireUserInfo>, BusError>) {
        precondition(!isAtEnd, "there are \(count) posts")
        read += 1
        var name = ""
        var end = offset
        let post = Self.withBody(of: call, or: copy) { body in
            var reader = MarshalledReader(body, at: offset)
            guard let place = Self.passOver(&reader) else { preconditionFailure("it was looked at") }
            end = reader.offset
            var post = MarshalledReader(UnsafeRawBufferPointer(rebasing: body[place.whole]))
            return Result { () throws(BusError) in
                try Post<WireUserInfo>(at: &post, limits: limits) { postName, object throws(BusError) in
                    name = postName
                    try check(postName, object)
                }
            }
        }
        offset = end
        return (name, post)
    }

    /// The outlines of all posts of a call that can be read, without a look at the rest; none of a call that has more than
    /// one may have.
    ///
    /// - Parameters:
    ///   - call: of ``PostMany``.
    ///   - limits: those of the service.
    /// - Returns: runs of posts that have the same outline.
    public static func outlines(of call: Message, limits: Limits) -> [(outline: PostOutline, count: UInt64)] {
        call.withMarshalledBody { outlines(inBody: $0, limits: limits) }
    }

    /// The same of one that lies where it arrived; none of a call of something else.
    ///
    /// - Parameters:
    ///   - call: any.
    ///   - limits: those of the service.
    /// - Returns: runs of posts that have the same outline.
    public static func outlines(of call: ArrivingCall, limits: Limits) -> [(outline: PostOutline, count: UInt64)] {
        guard call.hasMember(PostMany.member), call.hasPath(Wire.path), call.mayBeOf(Wire.interface),
            call.hasSignature(PostMany.inputs[0].signature)
        else { return [] }
        return outlines(inBody: call.body, limits: limits)
    }

    private static func outlines(
        inBody body: UnsafeRawBufferPointer, limits: Limits
    ) -> [(outline: PostOutline, count: UInt64)] {
        var reader = MarshalledReader(body)
        guard reader.readArray(alignedTo: 8) != nil else { return [] }
        var runs: [(outline: PostOutline, count: UInt64)] = []
        var count = 0
        // Only what differs from the one before is looked at.
        var before: (place: Place, isOutline: Bool)?
        while !reader.isAtEnd, let place = passOver(&reader) {
            count += 1
            guard count <= limits[.postsPerCall] else { return [] }
            let hasSameOptions = before.map { Place.areSame($0.place.options, place.options, in: body) } ?? false
            if let before, hasSameOptions, Place.areSame(before.place.texts, place.texts, in: body) {
                if before.isOutline { runs[runs.count - 1].count += 1 }
                continue
            }
            var reader = MarshalledReader(UnsafeRawBufferPointer(rebasing: body[place.whole]))
            let isImmediate = hasSameOptions && before!.isOutline ? runs[runs.count - 1].outline.isImmediate : nil
            let outline = try? PostOutline(at: &reader, isImmediate: isImmediate)
            if let outline { runs.append((outline, 1)) }
            before = (place, outline != nil)
        }
        return runs
    }

    /// Passes over a structure `(ssa{sv}a{sv})`, without a look at what is in it. It ends where its last array does.
    private static func passOver(_ reader: inout MarshalledReader) -> Place? {
        guard reader.align(to: 8) else { return nil }
        let start = reader.offset
        guard reader.skipText(), reader.skipText() else { return nil }
        let end = reader.offset
        guard let userInfo = reader.readArray(alignedTo: 8) else { return nil }
        reader.move(to: userInfo.upperBound)
        guard let options = reader.readArray(alignedTo: 8) else { return nil }
        reader.move(to: options.upperBound)
        return Place(whole: start..<options.upperBound, texts: start..<end, options: options)
    }

    /// Where a post stands in the arguments of a call.
    private struct Place {
        let whole: Range<Int>
        let texts: Range<Int>
        let options: Range<Int>

        /// Whether the same bytes stand there.
        static func areSame(_ one: Range<Int>, _ other: Range<Int>, in body: UnsafeRawBufferPointer) -> Bool {
            guard one.count == other.count, let start = body.baseAddress else { return false }
            return memcmp(start + one.lowerBound, start + other.lowerBound, one.count) == 0
        }
    }

    private static func withBody<Result, Failure: Error>(
        of call: Message, or copy: [UInt8]?, _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard let copy else { return try call.withMarshalledBody(body) }
        let result: Swift.Result<Result, Failure> = copy.withUnsafeBytes { bytes in
            do throws(Failure) { return .success(try body(bytes)) } catch { return .failure(error) }
        }
        return try result.get()
    }
}

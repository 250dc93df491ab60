// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A cursor over the posts of a received call of ``PostMany``: each ``next(limits:checking:)`` decodes one post in
/// place. The service thus serves a large call in slices.
///
/// The initializer checks the layout of the whole call first. A call in which the boundaries between the posts are
/// invalid is refused as a whole, before any post is made.
public struct ArrivedPosts {
    private let call: Message
    /// A copy of the body, for a call whose bytes cannot be read in place.
    private let copy: [UInt8]?
    /// The offset behind the posts read so far.
    private var offset: Int
    /// The number of posts in the call.
    public let count: Int
    /// The number of posts that have been read.
    public private(set) var read = 0

    /// Checks the layout of a call.
    ///
    /// - Parameters:
    ///   - call: A call whose types are ``PostMany/inputs``.
    ///   - limits: The limits of the service.
    /// - Throws: InvalidArgs if the body violates the D-Bus layout; LimitExceeded for more posts than one call may
    ///   have.
    public init(_ call: Message, limits: Limits) throws(BusError) {
        self.call = call
        copy = call.hasBodyInPlace ? nil : call.marshalledBody
        var count = 0
        let maxCount = Int(limits[.postsPerCall])
        offset = try Self.withBody(of: call, or: copy) { body throws(BusError) in
            var reader = MarshalledReader(body)
            guard let posts = reader.readArray(alignedTo: 8), posts.upperBound == body.count else {
                throw BusError.malformedArguments
            }
            while !reader.isAtEnd {
                guard Self.skipPost(&reader) != nil else { throw BusError.malformedArguments }
                count += 1
                guard count <= maxCount else { throw BusError(.limitExceeded(.postsPerCall, value: UInt64(maxCount))) }
            }
            return posts.lowerBound
        }
        self.count = count
    }

    /// Whether all posts have been read.
    public var isAtEnd: Bool { read == count }

    /// Reads the next post. Requires that ``isAtEnd`` is false.
    ///
    /// - Parameter check: A check of name and object, run before userInfo is read.
    /// - Returns: The name, which is empty if it can't be read, and the post or the error that refuses it, as for a
    ///   call of ``Post``.
    public mutating func next(
        limits: Limits, checking check: (String, String) throws(BusError) -> Void
    ) -> (name: String, post: Result<Post<WireUserInfo>, BusError>) {
        precondition(!isAtEnd, "there are \(count) posts")
        read += 1
        var name = ""
        var end = offset
        let post = Self.withBody(of: call, or: copy) { body in
            var reader = MarshalledReader(body, at: offset)
            guard let place = Self.skipPost(&reader) else {
                preconditionFailure("the initializer has checked the layout")
            }
            end = reader.offset
            var post = MarshalledReader(UnsafeRawBufferPointer(rebasing: body[place]))
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

    /// A run: a group of posts of one call that would have reached the same observers.
    public struct Run: Equatable {
        /// The name of the posts; nil for all names without an observer.
        public let name: String?
        /// The object of the posts; empty for none, and for all objects without an observer.
        public let object: String
        /// Whether the posts have the option `deliver-immediately`.
        public let isImmediate: Bool
        /// The number of posts in the group.
        public fileprivate(set) var count: UInt64 = 1
    }

    /// A summary of the posts of a call that the overloaded service discards: by it, the service reports the losses to
    /// the observers.
    public struct Outline {
        public fileprivate(set) var runs: [Run] = []
        /// The number of posts that would have been refused for their names, objects or options.
        public fileprivate(set) var refused = 0
    }

    /// Summarizes the posts of a call without decoding userInfo. The cost must be small, because the service is
    /// overloaded. Therefore a post is compared only with the last eight groups; a call with more groups may have
    /// several equal ones.
    ///
    /// - Parameters:
    ///   - call: A call of ``PostMany``.
    ///   - limits: The limits of the service.
    ///   - isName: Returns false for the bytes of a name that has no observer.
    ///   - isObject: Returns false for the bytes of an object that has no observer.
    /// - Returns: nil for a call that violates its signature, or has more posts than one call may have.
    public static func runs(
        of call: Message, limits: Limits, isName: (UnsafeRawBufferPointer) -> Bool,
        isObject: (UnsafeRawBufferPointer) -> Bool
    ) -> Outline? {
        call.withMarshalledBody { runs(inBody: $0, limits: limits, isName: isName, isObject: isObject) }
    }

    /// The same for an undecoded call in its receive buffer; nil also for a call of another method.
    public static func runs(
        of call: ArrivingCall, limits: Limits, isName: (UnsafeRawBufferPointer) -> Bool,
        isObject: (UnsafeRawBufferPointer) -> Bool
    ) -> Outline? {
        guard call.hasMember(PostMany.member), call.hasPath(Wire.path), call.mayBeOf(Wire.interface),
            call.hasSignature(PostMany.inputs[0].signature)
        else { return nil }
        return runs(inBody: call.body, limits: limits, isName: isName, isObject: isObject)
    }

    private static func runs(
        inBody body: UnsafeRawBufferPointer, limits: Limits, isName: (UnsafeRawBufferPointer) -> Bool,
        isObject: (UnsafeRawBufferPointer) -> Bool
    ) -> Outline? {
        func text(_ range: Range<Int>) -> UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: body[range]) }
        func isSame(_ one: Range<Int>?, _ other: Range<Int>?) -> Bool {
            guard one != other else { return true }
            guard let one, let other, one.count == other.count, let start = body.baseAddress else { return false }
            return memcmp(start + one.lowerBound, start + other.lowerBound, one.count) == 0
        }
        // Three facts of each post are kept: its name and its object, if they have observers, and its option
        // `deliver-immediately`. A post with the facts of a recent group is counted there; otherwise it begins a group.
        let limits = (posts: limits[.postsPerCall], name: limits[.nameLength], object: limits[.objectLength])
        // The caches: names with their checks, options with their decoded value, and groups with their index in `runs`.
        // `isPossible` means a valid name.
        var names = RecentValues<(name: Range<Int>, isPossible: Bool, isObserved: Bool)>()
        var options = RecentValues<(options: Range<Int>, isImmediate: Bool?)>()
        var recentRuns = RecentValues<(name: Range<Int>?, object: Range<Int>?, isImmediate: Bool, run: Int)>()
        func found(_ name: Range<Int>) -> (name: Range<Int>, isPossible: Bool, isObserved: Bool) {
            if let known = names.first(where: { isSame($0.name, name) }) { return known }
            let isPossible = !name.isEmpty && name.count <= limits.name && MarshalledReader.isText(text(name))
            let found = (name, isPossible, isObserved: isPossible && isName(text(name)))
            names.insert(found)
            return found
        }
        func isImmediate(_ range: Range<Int>) -> Bool? {
            if let known = options.first(where: { isSame($0.options, range) }) { return known.isImmediate }
            let found = try? PostOptions(at: range, of: MarshalledReader(body)).deliverImmediately
            options.insert((range, found))
            return found
        }
        var reader = MarshalledReader(body)
        guard reader.readArray(alignedTo: 8) != nil else { return nil }
        var outline = Outline()
        var count = 0
        while !reader.isAtEnd {
            count += 1
            guard count <= limits.posts, reader.align(to: 8), let (postName, postObject) = skipTexts(&reader),
                let options = skipArrays(&reader)
            else { return nil }
            let known = found(postName)
            guard known.isPossible, postObject.count <= limits.object, MarshalledReader.isText(text(postObject)),
                let isImmediate = isImmediate(options)
            else {
                outline.refused += 1
                continue
            }
            let name = known.isObserved ? known.name : nil
            let object = !postObject.isEmpty && isObject(text(postObject)) ? postObject : nil
            let recentRun = recentRuns.first {
                $0.isImmediate == isImmediate && isSame($0.name, name) && isSame($0.object, object)
            }
            if let recentRun {
                outline.runs[recentRun.run].count += 1
            } else {
                recentRuns.insert((name, object, isImmediate, outline.runs.count))
                outline.runs.append(
                    Run(
                        name: name.map { String(decoding: body[$0], as: UTF8.self) },
                        object: object.map { String(decoding: body[$0], as: UTF8.self) } ?? "",
                        isImmediate: isImmediate))
            }
        }
        return outline
    }

    /// Skips a post, a structure `(ssa{sv}a{sv})`, without decoding its members, and returns its range.
    private static func skipPost(_ reader: inout MarshalledReader) -> Range<Int>? {
        guard reader.align(to: 8) else { return nil }
        let start = reader.offset
        guard skipTexts(&reader) != nil, let options = skipArrays(&reader) else { return nil }
        return start..<options.upperBound
    }

    /// Skips name and object, and returns their ranges.
    private static func skipTexts(_ reader: inout MarshalledReader) -> (name: Range<Int>, object: Range<Int>)? {
        guard let name = reader.passOverText(), let object = reader.passOverText() else { return nil }
        return (name, object)
    }

    /// Skips userInfo and options, and returns the range of the options.
    private static func skipArrays(_ reader: inout MarshalledReader) -> Range<Int>? {
        guard let userInfo = reader.readArray(alignedTo: 8) else { return nil }
        reader.move(to: userInfo.upperBound)
        guard let options = reader.readArray(alignedTo: 8) else { return nil }
        reader.move(to: options.upperBound)
        return options
    }

    /// Calls `body` with the bytes of the call's arguments: those of the copy if there is one.
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

/// A FIFO cache of eight values: a new value replaces the oldest one.
private struct RecentValues<Value> {
    /// The maximum number of values.
    private static var maxCount: Int { 8 }
    private var values: [Value] = []
    /// The index of the oldest value.
    private var oldest = 0
    /// The index of the value that was found last.
    private var found = 0

    /// Returns a matching value; nil if there is none. The value that was found last is tested first.
    @inline(__always)
    mutating func first(where isWanted: (Value) -> Bool) -> Value? {
        if found < values.count, isWanted(values[found]) { return values[found] }
        guard let place = values.firstIndex(where: isWanted) else { return nil }
        found = place
        return values[place]
    }

    mutating func insert(_ value: Value) {
        guard values.count == Self.maxCount else { return values.append(value) }
        values[oldest] = value
        oldest = (oldest + 1) % Self.maxCount
    }
}

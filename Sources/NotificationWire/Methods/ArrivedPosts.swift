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

    /// Posts that would have reached the same observers.
    public struct Run: Equatable {
        /// Nil for any that nobody observes.
        public let name: String?
        /// Empty for none, and for any that nobody observes.
        public let object: String
        public let isImmediate: Bool
        public fileprivate(set) var count: UInt64 = 1
    }

    /// The runs of all posts of a call that could be posted, without a look at the rest; nil for a call that is not laid out
    /// as its types say, or has more than one may have. Posts that take turns with a few others are one run as well; of many
    /// kinds there may be several runs that are the same.
    ///
    /// - Parameters:
    ///   - call: of ``PostMany``.
    ///   - limits: those of the service.
    ///   - isName: false for the bytes of a name that nobody observes.
    ///   - isObject: false for the bytes of an object that nobody observes.
    public static func runs(
        of call: Message, limits: Limits, isName: (UnsafeRawBufferPointer) -> Bool,
        isObject: (UnsafeRawBufferPointer) -> Bool
    ) -> [Run]? {
        call.withMarshalledBody { runs(inBody: $0, limits: limits, isName: isName, isObject: isObject) }
    }

    /// The same of one that lies where it arrived; nil for a call of something else.
    public static func runs(
        of call: ArrivingCall, limits: Limits, isName: (UnsafeRawBufferPointer) -> Bool,
        isObject: (UnsafeRawBufferPointer) -> Bool
    ) -> [Run]? {
        guard call.hasMember(PostMany.member), call.hasPath(Wire.path), call.mayBeOf(Wire.interface),
            call.hasSignature(PostMany.inputs[0].signature)
        else { return nil }
        return runs(inBody: call.body, limits: limits, isName: isName, isObject: isObject)
    }

    private static func runs(
        inBody body: UnsafeRawBufferPointer, limits: Limits, isName: (UnsafeRawBufferPointer) -> Bool,
        isObject: (UnsafeRawBufferPointer) -> Bool
    ) -> [Run]? {
        func text(_ range: Range<Int>) -> UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: body[range]) }
        func isSame(_ one: Range<Int>?, _ other: Range<Int>?) -> Bool {
            guard let one, let other else { return one == other }
            guard one.count == other.count, let start = body.baseAddress else { return false }
            return memcmp(start + one.lowerBound, start + other.lowerBound, one.count) == 0
        }
        // Those that were met last.
        var options = RecentlyMet<(options: Range<Int>, isImmediate: Bool?)>()
        var kinds = RecentlyMet<(name: Range<Int>?, object: Range<Int>?, isImmediate: Bool, run: Int)>()
        func isImmediate(_ range: Range<Int>) -> Bool? {
            if let met = options.first(where: { isSame($0.options, range) }) { return met.isImmediate }
            let found = try? PostOptions(at: range, of: MarshalledReader(body)).deliverImmediately
            options.insert((range, found))
            return found
        }
        var reader = MarshalledReader(body)
        guard reader.readArray(alignedTo: 8) != nil else { return nil }
        var runs: [Run] = []
        var count = 0
        while !reader.isAtEnd {
            count += 1
            guard count <= limits[.postsPerCall], let place = passOver(&reader) else { return nil }
            var texts = MarshalledReader(text(place.whole))
            guard let name = texts.readText()?.moved(by: place.whole.lowerBound),
                let object = texts.readText()?.moved(by: place.whole.lowerBound),
                !name.isEmpty, name.count <= limits[.nameLength], object.count <= limits[.objectLength]
            else { continue }
            let observed = (
                name: isName(text(name)) ? name : nil, object: !object.isEmpty && isObject(text(object)) ? object : nil
            )
            guard let isImmediate = isImmediate(place.options) else { continue }
            let kind = kinds.first {
                $0.isImmediate == isImmediate && isSame($0.name, observed.name) && isSame($0.object, observed.object)
            }
            if let kind {
                runs[kind.run].count += 1
            } else {
                kinds.insert((observed.name, observed.object, isImmediate, runs.count))
                runs.append(
                    Run(
                        name: observed.name.map { String(decoding: body[$0], as: UTF8.self) },
                        object: observed.object.map { String(decoding: body[$0], as: UTF8.self) } ?? "",
                        isImmediate: isImmediate))
            }
        }
        return runs
    }

    /// Passes over a structure `(ssa{sv}a{sv})`, without a look at what is in it. It ends where its last array does.
    private static func passOver(_ reader: inout MarshalledReader) -> Place? {
        guard reader.align(to: 8) else { return nil }
        let start = reader.offset
        guard reader.skipText(), reader.skipText() else { return nil }
        guard let userInfo = reader.readArray(alignedTo: 8) else { return nil }
        reader.move(to: userInfo.upperBound)
        guard let options = reader.readArray(alignedTo: 8) else { return nil }
        reader.move(to: options.upperBound)
        return Place(whole: start..<options.upperBound, options: options)
    }

    /// Where a post stands in the arguments of a call.
    private struct Place {
        let whole: Range<Int>
        let options: Range<Int>
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

/// A few values, of which a new one takes the place of the one that was put in first.
private struct RecentlyMet<Value> {
    private static var most: Int { 8 }
    private var values: [Value] = []
    private var oldest = 0

    func first(where isWanted: (Value) -> Bool) -> Value? { values.first(where: isWanted) }

    mutating func insert(_ value: Value) {
        guard values.count == Self.most else { return values.append(value) }
        values[oldest] = value
        oldest = (oldest + 1) % Self.most
    }
}

extension Range<Int> {
    fileprivate func moved(by count: Int) -> Range<Int> { lowerBound + count..<upperBound + count }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The fast decoding of the options of a post, in place and without libdbus; the service uses it for all posts. The
/// rules are those of ``WireOption``.
extension PostOptions {
    /// Decodes the options of a post.
    ///
    /// - Parameters:
    ///   - entries: The range of the entries of the `a{sv}` in the arguments.
    ///   - arguments: The arguments of the call.
    /// - Throws: ``CenterErrorName/invalidOption`` for an unknown key, a wrong type or an unknown value; InvalidArgs if
    ///   the entries violate the D-Bus layout.
    init(at entries: Range<Int>, of arguments: MarshalledReader) throws(BusError) {
        self.init()
        var (isRetained, isWhileConnected) = (false, false)
        var (host, user): (String?, String?) = (nil, nil)
        try readMarshalledOptions(at: entries, of: arguments) { option throws(BusError) in
            switch option.key {
            case "deliver-immediately": deliverImmediately = try option.boolean()
            case "posting-style": postingStyle = try option.choice()
            case "coalesce-on": coalescing = Set(try option.choices())
            case "retain": isRetained = try option.boolean()
            case "while-connected": isWhileConnected = try option.boolean()
            case "expires-after": expiresAfter = try option.number()
            case "host": host = try option.text()
            case "user": user = try option.text()
            case "all-sessions": goesToAllSessions = try option.boolean()
            case "same-as": deduplicationID = try option.text()
            default: throw BusError(WireOption.unknown(option.key))
            }
        }
        try mappingCenterErrors { () throws(CenterError) in
            origin = try OutsideOrigin(host: host, user: user)
            try setRetention(isRetained, whileConnected: isWhileConnected)
            try checkForAllSessions()
        }
    }
}

/// Calls `body` with each option of an encoded `a{sv}`; `body` must read the value.
///
/// - Parameters:
///   - entries: The range of the entries in the arguments.
///   - arguments: The arguments of the message.
/// - Throws: The error of `body`; InvalidArgs if the entries violate the D-Bus layout.
func readMarshalledOptions(
    at entries: Range<Int>, of arguments: MarshalledReader,
    _ body: (inout MarshalledOption) throws(BusError) -> Void
) throws(BusError) {
    var reader = arguments
    reader.move(to: entries.lowerBound)
    while reader.offset < entries.upperBound {
        guard reader.align(to: 8), let key = reader.readString(), let type = reader.readSignature() else {
            throw BusError.malformedArguments
        }
        var option = MarshalledOption(key: key, type: type, value: reader)
        try body(&option)
        reader = option.value
    }
    guard reader.offset == entries.upperBound else { throw BusError.malformedArguments }
}

/// One option in an encoded `a{sv}`: the counterpart of ``WireOption`` for decoding in place. Each function reads the
/// value as one type, and throws an error that names the option for another type.
struct MarshalledOption {
    let key: String
    /// The range of the value's signature in the bytes of `value`.
    let type: Range<Int>
    /// A reader at the value.
    var value: MarshalledReader

    mutating func boolean() throws(BusError) -> Bool {
        try expect("b", "a boolean (b)")
        guard let number = value.readUInt32(), number <= 1 else { throw BusError.malformedArguments }
        return number == 1
    }

    /// Reads a number from an integer of any D-Bus type.
    mutating func number<Number: FixedWidthInteger>() throws(BusError) -> Number {
        let integer: Int128? =
            switch value.bytes[type].count == 1 ? value.bytes[type.lowerBound] : 0 {
            case UInt8(ascii: "y"): integer(UInt8.self)
            case UInt8(ascii: "n"): integer(Int16.self)
            case UInt8(ascii: "q"): integer(UInt16.self)
            case UInt8(ascii: "i"): integer(Int32.self)
            case UInt8(ascii: "u"): integer(UInt32.self)
            case UInt8(ascii: "x"): integer(Int64.self)
            case UInt8(ascii: "t"): integer(UInt64.self)
            default: throw wrongType("an integer")
            }
        guard let integer else { throw BusError.malformedArguments }
        return try mappingCenterErrors { () throws(CenterError) in try WireOption.number(integer, of: key) }
    }

    /// Reads an integer; nil if the value violates the D-Bus layout. `skip` moves the reader to the alignment of the
    /// type, which equals its size, and behind the value. The bytes are already in this machine's byte order.
    private mutating func integer<Number: FixedWidthInteger & BitwiseCopyable>(_: Number.Type) -> Int128? {
        let size = MemoryLayout<Number>.size
        guard value.skip(size) else { return nil }
        return Int128(value.bytes.loadUnaligned(fromByteOffset: value.offset - size, as: Number.self))
    }

    mutating func text() throws(BusError) -> String {
        try expect("s", "a string (s)")
        guard let text = value.readString() else { throw BusError.malformedArguments }
        return text
    }

    /// Reads a string that is a raw value of `Choice`.
    mutating func choice<Choice: RawRepresentable<String> & CaseIterable>() throws(BusError) -> Choice {
        try expect("s", "a string (s)")
        return try readChoice()
    }

    /// Reads an array of such strings.
    mutating func choices<Choice: RawRepresentable<String> & CaseIterable>() throws(BusError) -> [Choice] {
        try expect("as", "an array of strings (as)")
        guard let texts = value.readArray(alignedTo: 4) else { throw BusError.malformedArguments }
        var choices: [Choice] = []
        while value.offset < texts.upperBound { choices.append(try readChoice()) }
        guard value.offset == texts.upperBound else { throw BusError.malformedArguments }
        return choices
    }

    private mutating func readChoice<Choice: RawRepresentable<String> & CaseIterable>() throws(BusError) -> Choice {
        guard let text = value.readString() else { throw BusError.malformedArguments }
        return try mappingCenterErrors { () throws(CenterError) in try WireOption.choice(named: text, of: key) }
    }

    private func expect(_ wanted: StaticString, _ description: String) throws(BusError) {
        guard !wanted.withUTF8Buffer({ value.bytes[type].elementsEqual($0) }) else { return }
        throw wrongType(description)
    }

    private func wrongType(_ description: String) -> BusError {
        let found = String(decoding: value.bytes[type], as: UTF8.self)
        return BusError(WireOption.wrongType(of: key, expected: description, found: found))
    }
}

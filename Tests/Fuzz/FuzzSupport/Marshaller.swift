// SPDX-License-Identifier: Apache-2.0
/// Writes D-Bus values as bytes, in either byte order, without any code of the package that is being tested.
public struct Marshaller {
    public private(set) var bytes: [UInt8] = []
    public let isBigEndian: Bool

    public init(bigEndian: Bool = false) {
        isBigEndian = bigEndian
    }

    public mutating func align(to alignment: Int) {
        while bytes.count % alignment != 0 { bytes.append(0) }
    }

    public mutating func append<Value: FixedWidthInteger>(_ value: Value) {
        align(to: MemoryLayout<Value>.size)
        withUnsafeBytes(of: isBigEndian ? value.bigEndian : value.littleEndian) { bytes += $0 }
    }

    public mutating func append(_ text: String) {
        append(UInt32(text.utf8.count))
        bytes += text.utf8
        bytes.append(0)
    }

    public mutating func append(signature: String) {
        bytes.append(UInt8(truncatingIfNeeded: signature.utf8.count))
        bytes += signature.utf8
        bytes.append(0)
    }

    public mutating func append(raw: [UInt8]) {
        bytes += raw
    }

    public mutating func array(alignedTo alignment: Int, _ body: (inout Marshaller) -> Void) {
        append(UInt32(0))
        let lengthEnd = bytes.count
        align(to: alignment)
        let start = bytes.count
        body(&self)
        let length = UInt32(bytes.count - start)
        withUnsafeBytes(of: isBigEndian ? length.bigEndian : length.littleEndian) {
            bytes.replaceSubrange(lengthEnd - 4..<lengthEnd, with: $0)
        }
    }
}

/// A method call or a signal as bytes.
public struct WireMessage {
    public enum Kind: UInt8 {
        case methodCall = 1
        case signal = 4
    }

    public var kind = Kind.methodCall
    public var expectsNoReply = false
    public var isBigEndian = false
    public var serial: UInt32 = 1
    public var path = ""
    /// None when empty.
    public var interface = ""
    public var member = ""
    public var arguments: [WireValue] = []

    public init() {}

    public var body: [UInt8] {
        var body = Marshaller(bigEndian: isBigEndian)
        for argument in arguments { argument.marshal(to: &body) }
        return body.bytes
    }

    public var bytes: [UInt8] {
        let body = body
        var message = Marshaller(bigEndian: isBigEndian)
        message.append(UInt8(ascii: isBigEndian ? "B" : "l"))
        message.append(kind.rawValue)
        message.append(UInt8(expectsNoReply ? 1 : 0))
        message.append(UInt8(1))
        message.append(UInt32(body.count))
        message.append(serial)
        message.array(alignedTo: 8) { fields in
            func field(_ code: UInt8, _ type: String, _ value: String) {
                guard !value.isEmpty else { return }
                fields.align(to: 8)
                fields.append(code)
                fields.append(signature: type)
                if type == "g" { fields.append(signature: value) } else { fields.append(value) }
            }
            field(1, "o", path)
            field(2, "s", interface)
            field(3, "s", member)
            field(8, "g", arguments.map(\.type.signature).joined())
        }
        message.align(to: 8)
        message.append(raw: body)
        return message.bytes
    }
}

// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus

/// Calls that wait in the bytes that they came in, one behind the other. Many of them take hardly more than their bytes.
///
/// Threads: one at a time.
public struct CallRow {
    private var bytes: [UInt8] = []
    /// Where the first call begins.
    private var first = 0
    public private(set) var count = 0

    public init() {}

    public var isEmpty: Bool { count == 0 }
    /// The size of its calls on the bus, and of those that were taken out of it, in bytes.
    public var byteCount: Int { bytes.count }

    /// Adds a copy of a call at the end.
    public mutating func append(_ call: ArrivingCall) {
        bytes.append(contentsOf: call.bytes)
        count += 1
    }

    /// The same of a message.
    ///
    /// - Returns: false, and nothing is added, for what is no ``ArrivingCall``.
    public mutating func append(_ message: Message) -> Bool {
        message.withArrivingCall { append($0) } != nil
    }

    /// Takes out the first call.
    public mutating func popFirst() -> Message? {
        guard !isEmpty else { return nil }
        let call = bytes.withUnsafeBytes { bytes in
            let rest = UnsafeRawBufferPointer(rebasing: bytes[first...])
            // Its header was looked at when it was added.
            let length = (try? MessageHeader.byteCount(of: rest)) ?? rest.count
            return [UInt8](rest[..<length])
        }
        first += call.count
        count -= 1
        return Message(arrived: call)
    }
}

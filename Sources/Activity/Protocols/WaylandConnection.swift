// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A minimal client of the Wayland protocol over a ``UnixStream``: it sends requests and receives events, without file
/// descriptors and shared memory. ``ForeignToplevelSource`` uses it.
///
/// libwayland is not used: it needs generated tables for each interface outside the core protocol, and some of its
/// functions block. A message consists of the number of an object, a size with an *opcode* (the number of the request
/// or event), and the arguments.
final class WaylandConnection {
    /// An event: its object, its opcode, and its arguments.
    struct Event {
        let object: UInt32
        let opcode: UInt16
        var arguments: WaylandReader
    }

    /// Called for each event of an object other than the display.
    var onEvent: ((Event) -> Void)?
    /// Called once with the reason when the compositor is gone, or violates the protocol.
    var onEnd: ((String) -> Void)?

    /// The display, the first object of a connection.
    static let display: UInt32 = 1

    private let stream: UnixStream
    /// Received bytes of incomplete messages.
    private var incoming: [UInt8] = []
    /// The number of the last object that this client created.
    private var lastObject: UInt32 = 1
    private var hasEnded = false

    /// - Parameter path: The path of the compositor's socket.
    init(path: String, context: MainContext) throws(UnixStream.Failure) {
        stream = try UnixStream(path: path, context: context)
        stream.onBytes = { [unowned self] in receive($0) }
        stream.onEnd = { [unowned self] in end($0) }
    }

    /// The compositor's process.
    var peerProcessID: UInt32? { stream.peerProcessID }

    /// Returns the number for a new object; the request that creates the object contains it.
    func newObject() -> UInt32 {
        lastObject += 1
        return lastObject
    }

    /// Sends a request of an object.
    func request(_ opcode: UInt16, of object: UInt32, _ arguments: WaylandArgument...) {
        let body = arguments.flatMap(\.bytes)
        let size = UInt32(8 + body.count)
        stream.enqueue(machineBytes(of: object) + machineBytes(of: size << 16 | UInt32(opcode)) + body)
    }

    private func receive(_ bytes: [UInt8]) {
        incoming += bytes
        var start = 0
        while !hasEnded, incoming.count - start >= 8 {
            let (object, word) = incoming.withUnsafeBytes { buffer in
                (
                    buffer.loadUnaligned(fromByteOffset: start, as: UInt32.self),
                    buffer.loadUnaligned(fromByteOffset: start + 4, as: UInt32.self)
                )
            }
            let size = Int(word >> 16)
            guard size >= 8, size % 4 == 0 else { return end("it does not speak Wayland") }
            guard incoming.count - start >= size else { break }
            let body = incoming[(start + 8)..<(start + size)]
            start += size
            handle(Event(object: object, opcode: UInt16(word & 0xFFFF), arguments: WaylandReader(body)))
        }
        incoming.removeFirst(start)
    }

    private func handle(_ event: Event) {
        guard event.object == Self.display else { return onEvent?(event) ?? () }
        var arguments = event.arguments
        // Opcode 0 is an error, which ends the connection. Opcode 1 releases an object number; it is ignored, since
        // this connection needs only a few numbers.
        if event.opcode == 0, let object = arguments.number(), let code = arguments.number() {
            end("error \(code) of object \(object): \(arguments.text() ?? "")")
        }
    }

    private func end(_ reason: String) {
        guard !hasEnded else { return }
        hasEnded = true
        onEnd?(reason)
    }
}

/// An argument of a request.
enum WaylandArgument {
    case number(UInt32)
    case text(String)

    fileprivate var bytes: [UInt8] {
        switch self {
        case .number(let number): return machineBytes(of: number)
        case .text(let text):
            let characters = Array(text.utf8) + [0]
            let padding = [UInt8](repeating: 0, count: (4 - characters.count % 4) % 4)
            return machineBytes(of: UInt32(characters.count)) + characters + padding
        }
    }
}

/// A reader of the arguments of an event, in their order. Each function returns nil if no argument is left.
struct WaylandReader {
    private var bytes: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
    }

    mutating func number() -> UInt32? {
        guard bytes.count >= 4 else { return nil }
        let number = bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
        bytes = bytes.dropFirst(4)
        return number
    }

    mutating func text() -> String? {
        guard let array = array() else { return nil }
        return String(decoding: array.prefix { $0 != 0 }, as: UTF8.self)
    }

    /// Reads an array of 32-bit numbers.
    mutating func numbers() -> [UInt32]? {
        guard let array = array() else { return nil }
        var reader = WaylandReader(array)
        var numbers: [UInt32] = []
        while let number = reader.number() { numbers.append(number) }
        return numbers
    }

    /// Reads a byte array: its length, and its bytes padded to a multiple of four.
    private mutating func array() -> ArraySlice<UInt8>? {
        guard let count = number().map(Int.init), count <= bytes.count else { return nil }
        let array = bytes.prefix(count)
        bytes = bytes.dropFirst((count + 3) / 4 * 4)
        return array
    }
}

/// Returns the bytes of a number in the machine's byte order, which Wayland uses.
private func machineBytes(of number: UInt32) -> [UInt8] {
    withUnsafeBytes(of: number) { Array($0) }
}

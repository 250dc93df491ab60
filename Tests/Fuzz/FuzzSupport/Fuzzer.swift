// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import CarillonMainLoop
import Glibc

/// What both fuzzing programs have in common. libFuzzer brings their `main`, which calls the C function
/// `LLVMFuzzerTestOneInput` again and again.
public enum Fuzzer {
    /// Log lines are part of what is tested, but nobody wants to read a million of them.
    private static let silence: Void = g_log_set_writer_func({ _, _, _, _ in G_LOG_WRITER_HANDLED }, nil, nil)

    /// Runs one input.
    ///
    /// - Returns: what libFuzzer expects.
    public static func run(
        _ bytes: UnsafePointer<UInt8>?, _ count: Int, _ body: (inout ByteSource) -> Void
    ) -> Int32 {
        _ = silence
        var input = ByteSource(bytes, count: count)
        body(&input)
        return 0
    }

    /// Ends the program in the way that libFuzzer takes for a fault, when `condition` does not hold.
    public static func expect(
        _ condition: @autoclosure () -> Bool, _ what: @autoclosure () -> String, file: StaticString = #fileID,
        line: UInt = #line
    ) {
        guard !condition() else { return }
        fail(what(), file: file, line: line)
    }

    public static func fail(_ what: String, file: StaticString = #fileID, line: UInt = #line) -> Never {
        printError("FAULT \(file):\(line): \(what)")
        abort()
    }
}

/// The bytes of an input, read from the front. At the end all reads give zero.
public struct ByteSource {
    private var rest: UnsafeRawBufferPointer.SubSequence

    public init(_ bytes: UnsafePointer<UInt8>?, count: Int) {
        rest = UnsafeRawBufferPointer(start: bytes, count: count)[...]
    }

    public var isAtEnd: Bool { rest.isEmpty }

    public mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

    public mutating func flag() -> Bool { byte() & 1 != 0 }

    public mutating func integer() -> UInt64 {
        (0..<8).reduce(0) { value, _ in value << 8 | UInt64(byte()) }
    }

    /// A number below `bound`.
    public mutating func number(below bound: Int) -> Int { Int(byte()) % bound }

    public mutating func choice<Value>(of values: [Value]) -> Value { values[number(below: values.count)] }

    /// The same, where the highest bytes stand for values that came later: other inputs mean what they meant.
    public mutating func choice<Value>(of values: [Value], later: [Value]) -> Value {
        let byte = Int(byte())
        return byte > 255 - later.count ? later[255 - byte] : values[byte % values.count]
    }

    public mutating func bytes(_ count: Int) -> [UInt8] {
        let taken = Array(rest.prefix(count))
        rest = rest.dropFirst(count)
        return taken
    }
}

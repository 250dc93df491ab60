// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The progress of long work, on a line of a terminal that is overwritten. Short work, and other outputs, show none.
final class Progress {
    private let verb: String
    private let total: Int?
    private let began = ContinuousClock.now
    private var lastShown: ContinuousClock.Instant
    private var isVisible = false

    /// - Returns: nil if standard error is no terminal.
    init?(_ verb: String, of total: Int? = nil) {
        guard isatty(STDERR_FILENO) == 1 else { return nil }
        self.verb = verb
        self.total = total
        lastShown = began
    }

    func show(_ count: Int) {
        let now = ContinuousClock.now
        guard lastShown.duration(to: now) >= (isVisible ? .milliseconds(200) : .seconds(1)) else { return }
        lastShown = now
        isVisible = true
        let (seconds, attoseconds) = began.duration(to: now).components
        let rate = Double(count) / (Double(seconds) + Double(attoseconds) / 1e18)
        let of = total.map { " of \($0)" } ?? ""
        write("\r\u{1B}[K\(count)\(of) \(verb), \(Int(rate)) a second")
    }

    /// Clears the line, so that a permanent one can be written.
    func clear() {
        if isVisible { write("\r\u{1B}[K") }
    }

    func end() {
        clear()
        isVisible = false
    }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = bytes.withUnsafeBytes { systemWrite(STDERR_FILENO, $0) }
    }
}

// The system's function, which has the same name as a method.

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress, bytes.count)
}

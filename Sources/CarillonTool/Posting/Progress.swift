// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// How far long work has come, on a line of a terminal that is written over; nothing elsewhere, nor for what is soon done.
final class Progress {
    private let verb: String
    private let total: Int?
    private let began = ContinuousClock.now
    private var lastShown: ContinuousClock.Instant
    private var isVisible = false

    /// - Returns: nil where standard error is no terminal.
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

    /// Makes room for a line that stays.
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

// The system's function of the name that a method has, too.

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress, bytes.count)
}

// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The progress of posting, on a line of standard error that is overwritten. It appears after one second, and then
/// changes at most every 200 ms. ``PostStream`` uses it.
final class Progress {
    /// The work, such as "posted", which follows the count.
    private let verb: String
    /// The final count; nil if it is unknown.
    private let total: Int?
    private let began = ContinuousClock.now
    private var lastShown: ContinuousClock.Instant
    private var isVisible = false

    /// - Parameters:
    ///   - verb: the work, such as "posted", which follows the count.
    ///   - total: the final count; nil if it is unknown.
    /// - Returns: nil if standard error is no terminal.
    init?(_ verb: String, of total: Int? = nil) {
        guard isatty(STDERR_FILENO) == 1 else { return nil }
        self.verb = verb
        self.total = total
        lastShown = began
    }

    /// Shows the count so far, unless the line appeared or changed just before.
    func show(_ count: Int) {
        let now = ContinuousClock.now
        guard lastShown.duration(to: now) >= (isVisible ? .milliseconds(200) : .seconds(1)) else { return }
        lastShown = now
        isVisible = true
        let (seconds, attoseconds) = began.duration(to: now).components
        let rate = Double(count) / (Double(seconds) + Double(attoseconds) / 1e18)
        let of = total.map { " of \($0)" } ?? ""
        // The control characters move to the beginning of the line and clear it.
        write("\r\u{1B}[K\(count)\(of) \(verb), \(Int(rate)) a second")
    }

    /// Clears the line, so that another line, such as an error, can be written.
    func clear() {
        if isVisible { write("\r\u{1B}[K") }
    }

    /// Clears the line at the end of the work.
    func end() {
        clear()
        isVisible = false
    }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        _ = bytes.withUnsafeBytes { systemWrite(STDERR_FILENO, $0) }
    }
}

// Calls `write` of the C library, whose name the method above hides.

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress, bytes.count)
}

// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The encoding of dates as ISO 8601 text, to the microsecond. Dates are microseconds since 1970 in UTC.
/// ``PropertyListJSON`` and `carillon` use it.
package enum ISO8601Date {
    /// Returns a text such as `2026-11-21T09:30:00.000001Z`, in UTC. A zero fraction is left out.
    package static func text(_ microseconds: Int64) -> String {
        let (seconds, fraction) = split(microseconds)
        var time = time_t(seconds)
        var parts = tm()
        gmtime_r(&time, &parts)
        var buffer = [CChar](repeating: 0, count: 64)
        let count = strftime(&buffer, buffer.count, "%Y-%m-%dT%H:%M:%S", &parts)
        let whole = String(decoding: buffer[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self)
        guard fraction != 0 else { return whole + "Z" }
        let digits = String(fraction)
        return whole + "." + String(repeating: "0", count: 6 - digits.count) + digits + "Z"
    }

    /// Parses the output of ``text(_:)``, with any number of digits in the fraction (more than six are truncated), and
    /// with `Z` or an offset such as `+01:00`. Nil for any other text, including leap seconds and years beyond 9999.
    package static func microseconds(from text: String) -> Int64? {
        var fields = Fields(text.utf8[...])
        guard let year = fields.digits(4), fields.take("-"), let month = fields.digits(2), fields.take("-"),
            let day = fields.digits(2), fields.take("T"), let hour = fields.digits(2), fields.take(":"),
            let minute = fields.digits(2), fields.take(":"), let second = fields.digits(2), hour < 24, minute < 60,
            second < 60
        else { return nil }
        guard let fraction = fields.take(".") ? fields.millionths() : 0, let offset = fields.offset(), fields.isAtEnd
        else { return nil }
        var parts = tm()
        parts.tm_year = Int32(year) - 1900
        parts.tm_mon = Int32(month) - 1
        parts.tm_mday = Int32(day)
        parts.tm_hour = Int32(hour)
        parts.tm_min = Int32(minute)
        parts.tm_sec = Int32(second)
        let seconds = Int64(timegm(&parts))
        // timegm accepts an invalid day such as 31 February and changes it to a day in March, so the result is
        // compared.
        guard parts.tm_mday == day, parts.tm_mon == month - 1 else { return nil }
        return (seconds - offset) * 1_000_000 + fraction
    }

    /// A cursor over the fields of a text.
    private struct Fields {
        private var rest: Substring.UTF8View

        init(_ text: Substring.UTF8View) {
            rest = text
        }

        var isAtEnd: Bool { rest.isEmpty }

        /// Skips a character; false if another one is next.
        mutating func take(_ character: Unicode.Scalar) -> Bool {
            guard rest.first == UInt8(ascii: character) else { return false }
            rest = rest.dropFirst()
            return true
        }

        /// Reads exactly `count` digits as a number.
        mutating func digits(_ count: Int) -> Int64? {
            let digits = rest.prefix(count)
            guard digits.count == count, digits.allSatisfy(Self.isDigit) else { return nil }
            rest = rest.dropFirst(count)
            return digits.reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
        }

        /// Reads the digits behind the point, at least one, in millionths; finer digits are truncated.
        mutating func millionths() -> Int64? {
            let digits = rest.prefix(while: Self.isDigit)
            guard !digits.isEmpty else { return nil }
            rest = rest.dropFirst(digits.count)
            let first = digits.prefix(6)
            let value = first.reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
            return (first.count..<6).reduce(value) { value, _ in value * 10 }
        }

        /// Reads `Z`, or hours and minutes with their sign, and returns the offset in seconds.
        mutating func offset() -> Int64? {
            if take("Z") { return 0 }
            let sign: Int64 = take("-") ? -1 : 1
            guard sign < 0 || take("+"), let hours = digits(2), take(":"), let minutes = digits(2), hours < 24,
                minutes < 60
            else { return nil }
            return sign * (hours * 3600 + minutes * 60)
        }

        private static func isDigit(_ byte: UInt8) -> Bool { UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte }
    }

    /// Splits a time into whole seconds, rounded down, and the remaining microseconds.
    private static func split(_ microseconds: Int64) -> (seconds: Int64, fraction: Int64) {
        let (quotient, remainder) = microseconds.quotientAndRemainder(dividingBy: 1_000_000)
        return remainder < 0 ? (quotient - 1, remainder + 1_000_000) : (quotient, remainder)
    }
}

import Foundation

/// Dates as text, to the microsecond (`Foundation`'s own formats end at milliseconds).
enum ISO8601Date {
    /// Such as `2026-11-21T09:30:00.000001Z`, in UTC; the fraction is left out when it is zero.
    static func text(_ microseconds: Int64) -> String {
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

    /// Reads what ``text(_:)`` writes, with any number of digits in the fraction (more than six are cut), and with
    /// `Z` or an offset such as `+01:00`. Nil for anything else, leap seconds and years beyond 9999 included.
    static func microseconds(from text: String) -> Int64? {
        let pattern = /(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])(\d\d):(\d\d))/
        guard let match = text.wholeMatch(of: pattern), let year = Int32(match.1), let month = Int32(match.2),
            let day = Int32(match.3), let hour = Int32(match.4), let minute = Int32(match.5),
            let second = Int32(match.6), hour < 24, minute < 60, second < 60
        else { return nil }
        var parts = tm()
        parts.tm_year = year - 1900
        parts.tm_mon = month - 1
        parts.tm_mday = day
        parts.tm_hour = hour
        parts.tm_min = minute
        parts.tm_sec = second
        var seconds = Int64(timegm(&parts))
        // timegm turns the 31st of February into March; that is not what was written.
        guard parts.tm_mday == day, parts.tm_mon == month - 1 else { return nil }
        if let sign = match.8, let hours = match.9.flatMap({ Int64($0) }), let minutes = match.10.flatMap({ Int64($0) })
        {
            guard hours < 24, minutes < 60 else { return nil }
            seconds -= (sign == "-" ? -1 : 1) * (hours * 3600 + minutes * 60)
        }
        let digits = match.7.map { $0.prefix(6) } ?? ""
        let fraction = Int64(digits + String(repeating: "0", count: 6 - digits.count)) ?? 0
        return seconds * 1_000_000 + fraction
    }

    private static func split(_ microseconds: Int64) -> (seconds: Int64, fraction: Int64) {
        let (quotient, remainder) = microseconds.quotientAndRemainder(dividingBy: 1_000_000)
        return remainder < 0 ? (quotient - 1, remainder + 1_000_000) : (quotient, remainder)
    }
}

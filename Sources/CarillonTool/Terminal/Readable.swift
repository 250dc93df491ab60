// SPDX-License-Identifier: Apache-2.0

/// The formatting of sizes, times and rates for people. Output for programs, such as JSON, has exact numbers instead.
enum Readable {
    /// Returns a number of bytes in the largest fitting unit, each 1024 times the one before: `812 B`, `4.7 MiB`, `120
    /// GiB`.
    static func size(_ bytes: UInt64) -> String {
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
        var unit = 0
        while unit + 1 < units.count, bytes >> (10 * UInt64(unit + 1)) > 0 { unit += 1 }
        guard unit > 0 else { return "\(bytes) B" }
        let one = UInt64(1) << (10 * UInt64(unit))
        let (whole, rest) = bytes.quotientAndRemainder(dividingBy: one)
        // Below 100 units one decimal place is shown. In the largest unit, ten times the rest still fits into 64 bits.
        let tenths = whole * 10 + (rest * 10 + one / 2) / one
        if tenths < 1000 { return "\(tenths / 10).\(tenths % 10) \(units[unit])" }
        let rounded = whole + (rest >= one / 2 ? 1 : 0)
        return rounded == 1024 ? "1.0 \(units[unit + 1])" : "\(rounded) \(units[unit])"
    }

    /// Returns a duration in its two largest units: `0.4 s`, `12 s`, `3 min 20 s`, `5 h 2 min`, `9 d 4 h`.
    static func duration(seconds: Double) -> String {
        guard seconds.isFinite, seconds < 1e15 else { return "for ever" }
        let seconds = max(0, seconds)
        // From 9.95 on, one decimal place would show 10.0.
        return seconds < 9.95 ? "\(decimal(seconds, places: 1)) s" : duration(wholeSeconds: seconds)
    }

    /// Returns a duration without tenths.
    static func duration(wholeSeconds seconds: Double) -> String {
        guard seconds.isFinite, seconds < 1e15 else { return "for ever" }
        let all = Int64(max(0, seconds).rounded())
        guard all > 0 else { return "0 s" }
        let parts = [(all / 86400, "d"), (all / 3600 % 24, "h"), (all / 60 % 60, "min"), (all % 60, "s")]
        return parts.drop { $0.0 == 0 }.prefix(2).filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }.joined(separator: " ")
    }

    /// Returns the time since an event, in one unit: `now`, `12 s ago`, `3 min ago`, `2 d ago`. A time in the future,
    /// after a change of the clock, is `now`.
    static func ago(seconds: Double) -> String {
        guard seconds >= 1 else { return "now" }
        return age(seconds: seconds) + " ago"
    }

    /// Returns an age in one unit: `12 s`, `3 min`, `2 d`.
    static func age(seconds: Double) -> String {
        guard seconds.isFinite, seconds < 1e15 else { return "for ever" }
        let all = Int64(max(0, seconds))
        return switch all {
        case ..<60: "\(all) s"
        case ..<3600: "\(all / 60) min"
        case ..<86400: "\(all / 3600) h"
        default: "\(all / 86400) d"
        }
    }

    /// Returns a rate per second: `0`, `0.2`, `12`, `3400`.
    static func rate(_ perSecond: Double) -> String {
        guard perSecond.isFinite, perSecond > 0 else { return "0" }
        if perSecond < 0.05 { return "<0.1" }
        return perSecond < 9.95 ? decimal(perSecond, places: 1) : "\(Int64(min(perSecond.rounded(), 1e18)))"
    }

    /// Returns a number, which must not be negative, with this number of decimal places.
    static func decimal(_ number: Double, places: Int) -> String {
        let power = (0..<places).reduce(Int64(1)) { power, _ in power * 10 }
        let scaled = Int64((number * Double(power)).rounded())
        let digits = String(scaled % power)
        return "\(scaled / power)." + String(repeating: "0", count: places - digits.count) + digits
    }
}

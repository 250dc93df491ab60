// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The parsers of option values that are numbers or times. Each takes the option's name for its error.
enum NumberArguments {
    /// Returns a whole number from 1 to 4,000,000; nil if the option was not given.
    static func count(_ text: String?, _ option: String) throws(UsageError) -> Int? {
        guard let text else { return nil }
        guard let number = Int(text), (1...4_000_000).contains(number) else {
            throw UsageError("\(option): '\(text)' is not a whole number from 1 to 4000000")
        }
        return number
    }

    /// Returns a time in seconds; nil if the option was not given. The standard maximum, 46 days, fits as milliseconds
    /// into the 32 bits of a timer.
    static func seconds(
        _ text: String?, _ option: String, from minSeconds: Double = 0.001, to maxSeconds: Double = 4_000_000
    ) throws(UsageError) -> Double? {
        guard let text else { return nil }
        guard let seconds = seconds(in: text) else {
            throw UsageError("\(option): '\(text)' is not a time such as 90, 0.5, 5m or 1h30m")
        }
        guard seconds >= minSeconds, seconds <= maxSeconds else {
            throw UsageError(
                "\(option): '\(text)' is not a time from \(shown(minSeconds)) to \(shown(maxSeconds)) seconds")
        }
        return seconds
    }

    /// Returns a time in whole seconds, as the service takes it in 32 bits; nil if the option was not given.
    static func wholeSeconds(_ text: String?, _ option: String) throws(UsageError) -> UInt32? {
        guard let seconds = try seconds(text, option, from: 1, to: Double(UInt32.max)) else { return nil }
        guard let whole = UInt32(exactly: seconds) else {
            throw UsageError("\(option): '\(text ?? "")' is not a whole number of seconds")
        }
        return whole
    }

    /// Returns the seconds in a text such as `90`, `0.5`, `250ms`, `5m`, `1h30m` or `2d`: a number of seconds, or
    /// numbers with units, the largest unit first.
    ///
    /// - Returns: nil for anything else.
    static func seconds(in text: String) -> Double? {
        if let seconds = decimal(text[...]) { return seconds }
        var rest = text[...]
        var (sum, last) = (0.0, Double.infinity)
        repeat {
            let number = rest.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
            let unit = rest.dropFirst(number.count).prefix { $0.isASCII && $0.isLetter }
            guard let value = decimal(number), let size = sizes[String(unit)], size < last else { return nil }
            sum += value * size
            last = size
            rest = rest.dropFirst(number.count + unit.count)
        } while !rest.isEmpty
        return sum
    }

    /// The units, in seconds.
    private static let sizes = ["d": 86_400.0, "h": 3600, "m": 60, "min": 60, "s": 1, "ms": 0.001]

    /// Reads digits with an optional point.
    private static func decimal(_ text: Substring) -> Double? {
        guard text.first?.isNumber ?? false, text.allSatisfy({ $0.isASCII && ($0.isNumber || $0 == ".") }) else {
            return nil
        }
        return Double(text)
    }

    /// Returns a number without a decimal point if it is whole.
    private static func shown(_ number: Double) -> String {
        number == number.rounded() ? "\(Int64(number))" : "\(number)"
    }
}

// SPDX-License-Identifier: Apache-2.0
/// The parsers of option values that are keywords, such as `--color never`. The keywords are the cases of an
/// enumeration.
enum ChoiceArguments {
    typealias Choice = RawRepresentable<String> & CaseIterable

    /// Returns all keywords, as a text for people.
    static func names<Value: Choice>(_: Value.Type) -> String {
        Value.allCases.map(\.rawValue).joined(separator: ", ")
    }

    /// Returns the value of an option; nil if it was not given.
    static func one<Value: Choice>(_ text: String?, _ option: String) throws(UsageError) -> Value? {
        guard let text else { return nil }
        return try value(text, option)
    }

    /// Returns the values of a repeatable option. Each argument is a keyword, or several separated by commas.
    static func several<Value: Choice>(_ texts: [String], _ option: String) throws(UsageError) -> [Value] {
        var values: [Value] = []
        for text in texts {
            for word in text.split(separator: ",", omittingEmptySubsequences: false) {
                values.append(try value(String(word), option))
            }
        }
        return values
    }

    private static func value<Value: Choice>(_ text: String, _ option: String) throws(UsageError) -> Value {
        guard let value = Value(rawValue: text) else {
            throw UsageError("\(option): '\(text)' is none of: \(names(Value.self))")
        }
        return value
    }
}

// SPDX-License-Identifier: Apache-2.0
/// Options whose values are some of a few words.
enum ChoiceArguments {
    typealias Choice = RawRepresentable<String> & CaseIterable

    /// All words, for a person.
    static func names<Value: Choice>(_: Value.Type) -> String {
        Value.allCases.map(\.rawValue).joined(separator: ", ")
    }

    /// The value of an option; nil when it was not given.
    static func one<Value: Choice>(_ text: String?, _ option: String) throws(UsageError) -> Value? {
        guard let text else { return nil }
        return try value(text, option)
    }

    /// The values of an option that may be given more than once, each a word or several with commas between them.
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

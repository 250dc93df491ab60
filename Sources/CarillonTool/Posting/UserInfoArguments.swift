// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonWire

/// The parser of userInfo in arguments of `carillon post`, and in lines of its standard input.
enum UserInfoArguments {
    /// Returns the userInfo of a command line.
    ///
    /// - Parameters:
    ///   - pairs: `KEY=VALUE`, with the type inferred from VALUE.
    ///   - strings: `KEY=VALUE`, always strings.
    ///   - json: a JSON object, which excludes the other two.
    static func userInfo(
        pairs: [String], strings: [String], json: String?
    ) throws(UsageError) -> [String: PropertyList] {
        if let json {
            guard pairs.isEmpty, strings.isEmpty else {
                throw UsageError("--json can't be combined with KEY=VALUE or --string")
            }
            do throws(PropertyListJSON.Failure) {
                return try PropertyListJSON.userInfo(from: json)
            } catch {
                throw UsageError("\(error)")
            }
        }
        var userInfo: [String: PropertyList] = [:]
        func set(_ pair: String, _ value: (String) throws(UsageError) -> PropertyList) throws(UsageError) {
            guard let separator = pair.firstIndex(of: "="), separator != pair.startIndex else {
                throw UsageError("'\(pair)' is not KEY=VALUE")
            }
            let key = String(pair[..<separator])
            guard userInfo[key] == nil else { throw UsageError("the key '\(key)' is given twice") }
            userInfo[key] = try value(String(pair[pair.index(after: separator)...]))
        }
        for pair in pairs { try set(pair) { text throws(UsageError) in try infer(text) } }
        for pair in strings { try set(pair) { text in .string(text) } }
        return userInfo
    }

    /// Returns the userInfo of a line of standard input: a JSON object, or `KEY=VALUE` pairs with blanks between them,
    /// quoted as in a shell.
    static func userInfo(line: String) throws(UsageError) -> [String: PropertyList] {
        let isJSON = line.first { $0 != " " && $0 != "\t" } == "{"
        return try userInfo(pairs: isJSON ? [] : ShellWords.split(line), strings: [], json: isJSON ? line : nil)
    }

    private static let blanks: [UInt8] = Array(" \t\r\n".utf8)

    /// Returns a VALUE with its inferred type: a number in the notation of JSON, a boolean for `true` and `false`, and
    /// otherwise a string.
    static func infer(_ text: String) throws(UsageError) -> PropertyList {
        switch text {
        case "true": return .boolean(true)
        case "false": return .boolean(false)
        default: break
        }
        // JSON allows blanks around a number, but here they belong to the text.
        guard let first = text.utf8.first, let last = text.utf8.last, !Self.blanks.contains(first),
            !Self.blanks.contains(last), case .number(let digits)? = try? JSON(text)
        else { return .string(text) }
        do throws(PropertyListJSON.Failure) {
            return try PropertyListJSON.number(digits)
        } catch {
            throw UsageError("\(error); --string makes it a string")
        }
    }
}

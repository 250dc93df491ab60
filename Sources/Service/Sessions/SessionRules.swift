// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The names that are exchanged with other sessions of the machine, from the group `[Sessions]` of the configuration
/// (G1). ``Sessions`` applies them. By default nothing is exchanged.
struct SessionRules: Equatable {
    /// The names whose posts may go to other sessions.
    var export: [NamePattern] = []
    /// The names that are imported from the sessions of a user, by user ID.
    var imports: [UInt32: [NamePattern]] = [:]
    /// The names whose imported values are retained here, by user ID. A name also has to be in ``imports``.
    var retained: [UInt32: [NamePattern]] = [:]

    /// Whether the rules require a connection to the system bus.
    var areNeeded: Bool { !export.isEmpty || !imports.isEmpty }

    /// Whether posts of a name may go to other sessions.
    func exports(_ name: String) -> Bool { export.contains { $0.matches(name) } }

    /// Whether a name is imported from the sessions of a user.
    func imports(_ name: String, of user: UInt32) -> Bool { imports[user]?.contains { $0.matches(name) } ?? false }

    /// Whether values of a name are imported from the sessions of a user and retained here.
    func keeps(_ name: String, of user: UInt32) -> Bool {
        imports(name, of: user) && retained[user]?.contains { $0.matches(name) } ?? false
    }

    /// Returns the error text for a post to all sessions whose name may not be exported; nil when it may.
    func refusal(toExport name: String) -> String? {
        guard !exports(name) else { return nil }
        return "'\(name.prefix(200))' may not go to other sessions (all-sessions): "
            + "export in [Sessions] does not contain it"
    }
}

/// The parser of the rules in the configuration file.
extension SessionRules {
    /// The names of the group: the documented one, and the same in lower case, which is accepted too. Other groups of
    /// the configuration have one name.
    static let groups = ["Sessions", "sessions"]

    /// The keys of the group.
    private enum Key: String, CaseIterable {
        case export = "export"
        case imports = "import"
        case retained = "import-retained"
    }

    /// Puts an entry of a valid file into force: it replaces the list of its key.
    mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        switch Key(rawValue: entry.key) {
        case .export: export = try NamePattern.list(entry, of: file)
        case .imports: imports = try Self.namesByUser(entry, of: file)
        case .retained: retained = try Self.namesByUser(entry, of: file)
        case nil:
            let known = Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "there is no key '\(entry.key)' in [\(entry.group)], only: \(known)")
        }
    }

    /// Applies an entry of a file with a fault, which may only restrict the rules: the list of its key becomes the
    /// intersection with the entry's list. A value that can't be parsed empties the list. An unknown key may be a
    /// misspelling of any key, so it empties all three lists.
    mutating func restrict(by entry: KeyFile.Entry, of file: KeyFile) {
        var other = SessionRules()
        try? other.apply(entry, of: file)
        let key = Key(rawValue: entry.key)
        if key == nil || key == .export { export = NamePattern.common(of: export, and: other.export) }
        if key == nil || key == .imports { Self.restrict(&imports, to: other.imports) }
        if key == nil || key == .retained { Self.restrict(&retained, to: other.retained) }
    }

    /// Restricts the lists of all users to their intersections with `others`.
    private static func restrict(_ names: inout [UInt32: [NamePattern]], to others: [UInt32: [NamePattern]]) {
        for (user, list) in names { names[user] = NamePattern.common(of: list, and: others[user] ?? []) }
        names = names.filter { !$0.value.isEmpty }
    }

    /// Parses a list such as `1000:org.example.*;com.example.Ding;anna:org.example.*`. A user stands before its first
    /// name, and the following names are for the same user until the next one.
    private static func namesByUser(
        _ entry: KeyFile.Entry, of file: KeyFile
    ) throws(KeyFile.Fault) -> [UInt32: [NamePattern]] {
        var names: [UInt32: [NamePattern]] = [:]
        var user: UInt32?
        for part in NamePattern.parts(of: entry.value) {
            var text = Substring(part)
            if let colon = text.firstIndex(of: ":") {
                user = try number(ofUser: text[..<colon], entry, file)
                text = text[text.index(after: colon)...].drop { $0.isWhitespace }
            }
            guard let user else {
                throw file.fault(entry, "'\(part)' for \(entry.key) follows no user (1000:org.example.*)")
            }
            // The names of notifications may contain these characters. In this list they are most likely mistakes.
            if let mark = text.first(where: { $0 == ":" || $0 == "," || $0.isWhitespace }) {
                let what = mark == ":" ? "a second colon" : mark == "," ? "a comma" : "white space"
                throw file.fault(
                    entry,
                    "'\(part)' for \(entry.key) has \(what); names are separated by ';' (1000:org.example.*;org.x.Ding)"
                )
            }
            names[user, default: []].append(try NamePattern.read(String(text), entry, of: file))
        }
        for (user, list) in names {
            let bytes = list.reduce(0) { $0 + $1.description.utf8.count }
            guard list.count <= maxNames, bytes <= maxBytes else {
                throw file.fault(
                    entry,
                    "\(entry.key) has more than \(maxNames) names, or \(maxBytes) bytes of names, of user \(user)")
            }
        }
        return names
    }

    /// The maximum number of names of one user, and their maximum total size in bytes. They are sent to the user's
    /// sessions in one signal.
    static let maxNames = 256
    static let maxBytes = 32 << 10

    /// Returns the ID of a user that is written as a number or a name.
    private static func number(
        ofUser text: Substring, _ entry: KeyFile.Entry, _ file: KeyFile
    ) throws(KeyFile.Fault) -> UInt32 {
        let text = String(text.filter { !$0.isWhitespace })
        // The system uses the greatest number for "no user".
        if let number = UInt32(text), number != .max { return number }
        guard !text.isEmpty, !text.allSatisfy(\.isNumber), let number = UserNames.number(of: text) else {
            throw file.fault(entry, "'\(text)' for \(entry.key) is not a user of this machine")
        }
        return number
    }
}

/// The lookup of users in the machine's user database.
enum UserNames {
    /// Returns the ID of the user with this name; nil if there is none.
    static func number(of name: String) -> UInt32? { getpwnam(name)?.pointee.pw_uid }

    /// Returns the user's name. Returns the number as text if there is no name, or it has more than 255 bytes.
    static func name(of number: UInt32) -> String {
        guard let entry = getpwuid(number), let name = entry.pointee.pw_name else { return "\(number)" }
        let text = String(cString: name)
        return text.isEmpty || text.utf8.count > 255 ? "\(number)" : text
    }
}

// SPDX-License-Identifier: Apache-2.0
/// The group `[Sessions]` of the configuration, and what docs/security.md says that it means (G1).
struct SessionsFile: Equatable {
    /// Patterns of names that may go out.
    var export: [String] = []
    /// Patterns of names that are taken from each user, by the user's number.
    var imports: [UInt32: [String]] = [:]
    /// Patterns of those of them that stay as values.
    var retained: [UInt32: [String]] = [:]

    /// The user of the simulated session. No machine that runs the simulation has this number, nor the next two.
    static let ownUser: UInt32 = 4_000_000
    static let root: UInt32 = 0
    static let users: [UInt32] = [ownUser, 4_000_001, 4_000_002, root]

    /// As the service finds it in the list of users.
    static func name(of user: UInt32) -> String { user == root ? "root" : "\(user)" }

    /// As it stands in `carillon.conf`; empty where it says nothing.
    var text: String {
        guard self != SessionsFile() else { return "" }
        func list(_ names: [UInt32: [String]]) -> String {
            names.sorted { $0.key < $1.key }
                .map { "\($0.key):" + $0.value.joined(separator: ";") }
                .joined(separator: ";")
        }
        return "[Sessions]\nexport=\(export.joined(separator: ";"))\nimport=\(list(imports))\n"
            + "import-retained=\(list(retained))\n"
    }

    func exports(_ name: String) -> Bool { export.contains { PolicyFile.matches($0, name) } }

    func imports(_ name: String, of user: UInt32) -> Bool {
        imports[user]?.contains { PolicyFile.matches($0, name) } == true
    }

    func keeps(_ name: String, of user: UInt32) -> Bool {
        imports(name, of: user) && retained[user]?.contains { PolicyFile.matches($0, name) } == true
    }
}

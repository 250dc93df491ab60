// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// What packagers and their tools look for.
@Suite("Licence identifiers", .limited)
struct LicenceTests {
    private static let folders = [
        "Sources", "Tests", "Benchmarks", "Examples", "tools", "data", "dbus-interfaces", "debian", "packaging", ".ci",
    ]
    /// Kinds of files that can have a comment, and the project writes.
    private static let suffixes = [
        "swift", "h", "modulemap", "c", "cpp", "js", "go", "rs", "vala", "java", "py", "rb", "pl", "lua", "el", "xml",
        "conf", "in", "build", "toml", "spec", "1",
    ]
    /// Of others' form, in which nothing can be added.
    private static let exceptions = ["shell.gresource.xml"]

    @Test("Every source file names its licence in one of its first lines")
    func identifiers() throws {
        var checked = 0
        for folder in Self.folders {
            let root = "\(Executables.packageRoot)/\(folder)"
            for name in FileManager.default.subpaths(atPath: root) ?? [] {
                let path = "\(root)/\(name)"
                guard let data = FileManager.default.contents(atPath: path) else { continue }
                let text = String(decoding: data.prefix(2000), as: UTF8.self)
                let suffix = URL(fileURLWithPath: name).pathExtension
                guard Self.suffixes.contains(suffix) || text.hasPrefix("#!") else { continue }
                guard !name.contains("__pycache__"), !Self.exceptions.contains(where: name.hasSuffix) else { continue }
                checked += 1
                let head = text.split(separator: "\n", omittingEmptySubsequences: false).prefix(7)
                #expect(head.contains { $0.contains("SPDX-License-Identifier: Apache-2.0") }, "\(folder)/\(name)")
            }
        }
        #expect(checked > 700)
    }
}

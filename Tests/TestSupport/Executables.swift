// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Where the files are that tests need: the built programs and the sources of this package.
public enum Executables {
    /// A program that this package builds could not be found.
    public struct NotFound: Error, CustomStringConvertible {
        public let description: String
    }

    /// The path of a built program of this package, such as `carillond`.
    ///
    /// It is looked for in the directory that the environment variable `CARILLON_BIN_DIR` names, beside the running
    /// test program, beside the test bundle that is named on its command line, and in `.build/debug`; the first that
    /// there is wins.
    ///
    /// - Throws: ``NotFound``, which names the directories.
    public static func path(of name: String) throws -> String {
        guard let path = directories.lazy.map({ "\($0)/\(name)" }).first(where: FileManager.default.isExecutableFile)
        else {
            throw NotFound(description: "\(name) is not built in any of \(directories.joined(separator: ", "))")
        }
        return path
    }

    /// The root directory of this package's sources.
    public static let packageRoot: String = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().path

    /// The documented D-Bus interface.
    public static let interfaceXML = packageRoot + "/dbus-interfaces/org.carillon.NotificationCenter1.xml"

    private static let directories: [String] = {
        var directories: [String] = []
        if let named = ProcessInfo.processInfo.environment["CARILLON_BIN_DIR"], !named.isEmpty {
            directories.append(named)
        }
        let bundles = CommandLine.arguments.filter { $0.contains(".xctest") }
        for program in ["/proc/self/exe"] + bundles {
            directories.append(URL(fileURLWithPath: program).resolvingSymlinksInPath().deletingLastPathComponent().path)
        }
        directories.append(packageRoot + "/.build/debug")
        return directories
    }()
}

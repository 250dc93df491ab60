// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation

/// A Swift file of `Sources/`, as text and as code: without what is in comments and string literals.
struct SourceFile: Sendable, CustomStringConvertible {
    /// The target's folder.
    let folder: String
    let name: String
    let lines: [String]
    /// As long as the text, line by line; comments and the insides of literals are blank.
    let code: String

    var description: String { "Sources/\(folder)/\(name)" }

    var module: String { Self.module(of: folder) }

    /// The module whose sources a folder has: with a prefix, so that it stands beside other packages in a program.
    static func module(of folder: String) -> String {
        if folder.lowercased().hasPrefix("carillon") || folder == "LocalNotifications" { return folder }
        let isC = folder.hasPrefix("C") && folder.dropFirst().first?.isUppercase == true && folder != "CBOR"
        return isC ? "CCarillon\(folder.dropFirst())" : "Carillon\(folder)"
    }

    init(folder: String, name: String, text: String) {
        self.folder = folder
        self.name = name
        lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        code = Self.withoutCommentsAndLiterals(text)
    }

    /// The folders of `Sources/`.
    static let folders: [String] = {
        let entries = try? FileManager.default.contentsOfDirectory(atPath: root)
        return (entries ?? []).sorted().filter { entry in
            var isDirectory: ObjCBool = false
            return FileManager.default.fileExists(atPath: "\(root)/\(entry)", isDirectory: &isDirectory)
                && isDirectory.boolValue
        }
    }()

    /// Every Swift file below `Sources/`, also in folders inside a target's.
    static let all: [SourceFile] = folders.flatMap { folder in
        let entries = FileManager.default.subpaths(atPath: "\(root)/\(folder)") ?? []
        return entries.sorted().filter { $0.hasSuffix(".swift") }.map { name in
            let text = try? String(contentsOfFile: "\(root)/\(folder)/\(name)", encoding: .utf8)
            return SourceFile(folder: folder, name: name, text: text ?? "")
        }
    }

    private static let root = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Sources").path

    // MARK: Blanking

    private enum State {
        case code
        case lineComment
        case blockComment(depth: Int)
        case literal(quotes: Int, hashes: Int)
    }

    /// Good enough for Swift as people write it: a literal with one quote ends with its line at the latest, so that
    /// what is misread (a quote in a regex) spoils no more than that line.
    private static func withoutCommentsAndLiterals(_ text: String) -> String {
        let characters = Array(text)
        var result = ""
        var state = State.code
        var index = 0
        func next(_ string: String) -> Bool {
            characters[index...].starts(with: string)
        }
        func keep(_ count: Int) {
            for character in characters[index..<min(index + count, characters.count)] { result.append(character) }
            index += count
        }
        func blank(_ count: Int) {
            for character in characters[index..<min(index + count, characters.count)] {
                result.append(character == "\n" ? "\n" : " ")
            }
            index += count
        }
        while index < characters.count {
            switch state {
            case .code:
                let hashes = characters[index...].prefix { $0 == "#" }.count
                let quotes = characters[(index + hashes)...].prefix { $0 == "\"" }.count
                if quotes > 0 {
                    let opening = quotes >= 3 ? 3 : 1
                    let isEmpty = quotes == 2 && hashes == 0
                    keep(hashes + (isEmpty ? 2 : opening))
                    if !isEmpty { state = .literal(quotes: opening, hashes: hashes) }
                } else if next("//") {
                    state = .lineComment
                } else if next("/*") {
                    blank(2)
                    state = .blockComment(depth: 1)
                } else {
                    keep(max(1, hashes))
                }
            case .lineComment:
                if characters[index].isNewline { state = .code }
                blank(1)
            case .blockComment(let depth):
                if next("/*") {
                    state = .blockComment(depth: depth + 1)
                    blank(2)
                } else if next("*/") {
                    state = depth == 1 ? .code : .blockComment(depth: depth - 1)
                    blank(2)
                } else {
                    blank(1)
                }
            case .literal(let quotes, let hashes):
                let end = String(repeating: "\"", count: quotes) + String(repeating: "#", count: hashes)
                if next(end) {
                    keep(end.count)
                    state = .code
                } else if next("\\" + String(repeating: "#", count: hashes)) {
                    blank(hashes + 2)
                } else if quotes == 1, characters[index].isNewline {
                    state = .code
                } else {
                    blank(1)
                }
            }
        }
        return result
    }
}

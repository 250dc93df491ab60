// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Safety rules of the sources", .limited)
struct SafetyRulesTests {
    @Test(
        "@unchecked Sendable and nonisolated(unsafe) have their reason in a comment within two lines",
        arguments: SourceFile.all)
    func reasons(file: SourceFile) {
        for number in linesWithoutReason(file) { Issue.record("\(file):\(number + 1) gives no reason") }
    }

    @Test(
        "The check of reasons reports exactly the lines without a reason",
        arguments: [
            ("// Sendable: locked.\nfinal class A: @unchecked Sendable {}", []),
            ("final class A: @unchecked Sendable {\n    // Sendable: locked.\n}", []),
            ("nonisolated(unsafe) var a = 1  // written before threads start", []),
            ("/// What it is.\nfinal class A: @unchecked Sendable {}", [1]),
            ("final class A: @unchecked Sendable {}", [0]),
            ("// Far away.\n\n\n\nnonisolated(unsafe) var a = 1", [4]),
            ("extension A: @retroactive @unchecked Sendable {}", [0]),
            ("// It is no @unchecked Sendable.", []),
        ])
    func reasonsChecked(text: String, lines: [Int]) {
        #expect(linesWithoutReason(SourceFile(folder: "", name: "", text: text)) == lines)
    }

    @Test("OpaquePointer appears in no public signature", arguments: SourceFile.all)
    func opaquePointers(file: SourceFile) {
        for signature in publicSignatures(in: file.code) where signature.contains("OpaquePointer") {
            Issue.record("\(file): \(signature)")
        }
    }

    @Test(
        "The check of signatures finds exactly the public signatures with OpaquePointer",
        arguments: [
            ("public let a: OpaquePointer", true),
            ("public private(set) var a: [OpaquePointer] = []", true),
            ("public init(\n    a: Int,\n    b: OpaquePointer?\n) {\n}", true),
            ("public func a() -> (Int, OpaquePointer) { b }", true),
            ("public func a(b: Int)\n    -> OpaquePointer\n{\n}", true),
            ("public protocol A {\n    func a() -> OpaquePointer\n}", true),
            ("public enum A {\n    case a(OpaquePointer)\n}", true),
            ("public typealias A = OpaquePointer", true),
            ("public func a() -> Int {\n    let b: OpaquePointer? = nil\n}", false),
            ("public final class A {\n    private let b: OpaquePointer\n    init(b: OpaquePointer) {}\n}", false),
            ("public let a: Int\nlet b: OpaquePointer", false),
        ])
    func opaquePointersChecked(text: String, isFound: Bool) {
        #expect(publicSignatures(in: text).contains { $0.contains("OpaquePointer") } == isFound)
    }

    @Test(
        "Only the modules DBus and BusNames make names without a check",
        arguments: SourceFile.all.filter { !["DBus", "BusNames"].contains($0.folder) })
    func uncheckedNames(file: SourceFile) {
        #expect(!file.code.contains("unchecked:"), "\(file)")
    }

    // MARK: Reading

    /// The numbers, from 0, of the lines that switch a check of the compiler off without a `//` comment near. A `///`
    /// comment says what a thing is, not why this is right.
    private func linesWithoutReason(_ file: SourceFile) -> [Int] {
        let code = file.code.split(separator: "\n", omittingEmptySubsequences: false)
        return code.indices.filter { number in
            guard code[number].contains("@unchecked Sendable") || code[number].contains("nonisolated(unsafe)") else {
                return false
            }
            let near = max(0, number - 2)...min(code.count - 1, number + 2)
            return !near.contains { line in
                // A comment is where the text goes on behind the code.
                let comment = file.lines[line].dropFirst(code[line].reversed().drop { $0 == " " }.count)
                    .drop { $0 == " " }
                return comment.hasPrefix("//") && !comment.hasPrefix("///") && comment.count > 10
            }
        }
    }

    /// Every public declaration up to its body, the whole of a public protocol, and the cases of enumerations.
    private func publicSignatures(in code: String) -> [String] {
        var signatures = code.matches(of: /\bcase\s[^\n]*/).map { String($0.0) }
        for match in code.matches(of: /\b(?:public|open|package)\b(?!\()/) {
            var signature = ""
            var depth = 0
            var braces = 0
            for character in code[match.range.lowerBound...] {
                switch character {
                case "(", "[": depth += 1
                case ")", "]": depth -= 1
                case "{": braces += 1
                case "}": braces -= 1
                default: break
                }
                let isProtocol = signature.contains(/\bprotocol\b/)
                if character == "{", !isProtocol { break }
                if character == "}", isProtocol, braces == 0 { break }
                signature.append(character)
                // A line that ends outside of parentheses ends a stored property; a function goes on to its body.
                if character == "\n", depth == 0, !isProtocol, !signature.contains(/\b(?:func|init|subscript)\b/) {
                    break
                }
            }
            signatures.append(signature)
        }
        return signatures
    }
}

@Suite("Linkage of the service and the command", .limited)
struct LinkageTests {
    @Test(
        "Both programs link libdbus and GLib, and neither Foundation, Observation, X, ncurses nor mosquitto",
        arguments: ["carillond", "carillon"])
    func libraries(program: String) throws {
        let path = try Executables.path(of: program)
        let result = try Command.run("ldd", [path])
        try #require(result.exitCode == 0, "\(result)")
        let libraries = result.standardOutput
        #expect(libraries.contains("libdbus-1.so"))
        #expect(libraries.contains("libglib-2.0.so"))
        #expect(!libraries.contains("Foundation"), "\(libraries)")
        #expect(!libraries.contains("swiftObservation"), "\(libraries)")
        #expect(!libraries.contains("libicu"), "\(libraries)")
        #expect(!libraries.contains("libxcb"), "\(libraries)")
        #expect(!libraries.contains("ncurses"), "\(libraries)")
        #expect(!libraries.contains("mosquitto"), "\(libraries)")
        #expect(!libraries.contains("not found"), "\(libraries)")
    }

    @Test(
        "Neither the service nor the command is statically linked with Foundation",
        arguments: ["carillond", "carillon"])
    func symbols(program: String) throws {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: try Executables.path(of: program)))
        // The prefix of every mangled name of its Swift half, and a symbol of its C half.
        for symbol in ["$s10Foundation", "$s20FoundationEssentials", "CFRunLoopRunInMode", "$s11Observation"] {
            #expect(bytes.range(of: Data(symbol.utf8)) == nil, "\(symbol)")
        }
        #expect(bytes.range(of: Data("$s12CarillonWire".utf8)) != nil, "the binary is stripped?")
    }
}

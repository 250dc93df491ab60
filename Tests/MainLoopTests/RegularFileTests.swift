// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// What is read as a file is one, of this user, and no larger than it may be.
@Suite("E1, E2: access to regular files", .limited)
struct RegularFileTests {
    /// Something that is no file, and how it is made.
    struct Obstacle: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let make: @Sendable (String) throws -> Void
    }

    static let obstacles: [Obstacle] = [
        Obstacle(testDescription: "a pipe that nobody is at") { #expect(mkfifo($0, 0o600) == 0) },
        Obstacle(testDescription: "a directory") { #expect(mkdir($0, 0o700) == 0) },
        Obstacle(testDescription: "a link to a device") { #expect(symlink("/dev/zero", $0) == 0) },
        Obstacle(testDescription: "a link to a terminal's device") { #expect(symlink("/dev/tty", $0) == 0) },
        Obstacle(testDescription: "a link to a directory") { #expect(symlink("/", $0) == 0) },
        Obstacle(testDescription: "a socket") { path in
            let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(descriptor) }
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
            let result = withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                }
            }
            try #require(result == 0)
        },
    ]

    @Test("Pipes, directories, devices and sockets are refused at once, even through a link", arguments: obstacles)
    func noFile(_ obstacle: Obstacle) throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/file"
        try obstacle.make(path)
        #expect(throws: FileError.self) { try RegularFile.contents(of: path, atMost: 1000) }
        #expect(throws: FileError.self) { try RegularFile(path, for: .log) }
        #expect(throws: FileError.self) { try RegularFile(path, for: .table) }
        #expect(throws: KeyFile.Fault.self) { try KeyFile(path: path) }
    }

    @Test("A new log replaces an existing pipe, link or socket, and follows no link")
    func new() throws {
        for obstacle in Self.obstacles where obstacle.testDescription != "a directory" {
            let directory = try TemporaryDirectory()
            let path = directory.path + "/file"
            try obstacle.make(path)
            let file = try #require(try RegularFile(path, for: .newLog))
            try file.append([1, 2, 3])
            #expect(file.isInPlace && !file.isReplaced)
            #expect(try RegularFile.contents(of: path, atMost: 3) == [1, 2, 3])
        }
    }

    @Test("Configuration files may be links, and state files may not")
    func links() throws {
        let directory = try TemporaryDirectory()
        try directory.write("text", to: "file")
        let path = directory.path + "/link"
        #expect(symlink("file", path) == 0)
        #expect(try RegularFile.contents(of: path, atMost: 100) == Array("text".utf8))
        #expect(throws: FileError.self) { try RegularFile(path, for: .log) }
        #expect(throws: FileError.self) { try RegularFile(path, for: .table) }
        #expect(try RegularFile.contents(of: directory.path + "/none", atMost: 100) == nil)
        #expect(try RegularFile.contents(of: directory.path + "/file/none", atMost: 100) == nil)
    }

    @Test("A file larger than the limit is refused, even a sparse one")
    func size() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/file"
        try directory.write(String(repeating: "x", count: 100), to: "file")
        #expect(try RegularFile.contents(of: path, atMost: 100)?.count == 100)
        let failure = #expect(throws: FileError.self) { try RegularFile.contents(of: path, atMost: 99) }
        #expect(failure?.reason == .tooLarge(limit: 99))
        #expect(truncate(path, 3 << 30) == 0)
        #expect(throws: FileError.self) { try RegularFile.contents(of: path, atMost: 1 << 20) }
    }

    @Test("A locked file can't be locked again, and a file object detects its replacement and its removal")
    func lock() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/file"
        let first = try #require(try RegularFile(path, for: .log))
        #expect(try first.lock())
        let second = try #require(try RegularFile(path, for: .log))
        #expect(try !second.lock())
        let other = try #require(try RegularFile(path + ".new", for: .newLog))
        try other.rename(to: path)
        #expect(other.path == path && other.isInPlace && !first.isInPlace && first.isReplaced)
        other.remove()
        #expect(!first.isInPlace && !first.isReplaced)
    }
}

/// Configuration files: what they may be, and what they cost.
@Suite("E1, E2: key files", .limited)
struct KeyFileTests {
    private func read(_ text: String) throws -> KeyFile {
        let directory = try TemporaryDirectory()
        try directory.write(text, to: "file")
        return try #require(try KeyFile(path: directory.path + "/file"))
    }

    private func fault(_ text: String) -> KeyFile.Fault? {
        #expect(throws: KeyFile.Fault.self) { try read(text) }
    }

    @Test("Groups, keys, values and comments are parsed as by GKeyFile")
    func format() throws {
        let file = try read(
            """
            # comment

            [One]
            key=value
              spaced  =  a b  \r
            empty=
            #key=none
            [Two]
            key=\\s\\ta\\\\b
            bad=\\q
            key=2
            k=a=b
            """)
        #expect(
            file.entries.map { "\($0.line) [\($0.group)] \($0.key)=\($0.value)" } == [
                "4 [One] key=value", "5 [One] spaced=a b", "6 [One] empty=", "10 [Two] bad=\\q", "11 [Two] key=2",
                "12 [Two] k=a=b",
            ])
        #expect(try read("").entries.isEmpty)
        #expect(try read("[A]\nk=\\s\\t\\n\\r\\\\").entries.first?.value == " \t\n\r\\")
    }

    @Test(
        "A fault in a key file has its line number",
        arguments: [
            ("[A]\nrubbish\n", 2), ("key=1\n[A]", 1), ("\n\n[A\nk=1", 3), ("[]", 1), ("[A]\n=1", 2), ("[A]b]\n", 1),
            ("[A]\nk=1\n# c\nrest", 4),
        ])
    func lines(text: String, line: Int) {
        #expect(fault(text)?.line == line)
    }

    @Test("Invalid UTF-8 or a zero byte is a fault of its line, and any bytes are allowed in a comment")
    func noText() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/file"
        for (bytes, line) in [([0xFF, 0xFE], 1), ([0], 1), (Array("[A]\nk=\u{0}\nl=1".utf8), 2)] as [([UInt8], Int)] {
            try Data(bytes).write(to: URL(filePath: path))
            let fault = #expect(throws: KeyFile.Fault.self) { try KeyFile(path: path) }
            #expect(fault?.line == line)
            let file = try #require(KeyFile(readableOf: path))
            #expect(file.entries.map(\.key) == (line == 2 ? ["", "l"] : []) && file.hasUnknownEntries == (line == 1))
        }
        try Data(Array("[A]\n# Gr".utf8) + [0xFC] + Array("n\nk=1".utf8)).write(to: URL(filePath: path))
        #expect(try KeyFile(path: path)?.entries.map(\.key) == ["k"])
    }

    @Test("A key file of up to 1 MiB is read in linear time for any contents")
    func cost() async throws {
        let size = KeyFile.maxBytes
        let texts = [
            "a mistake at the end": "[A]\n" + String(repeating: "# comment\n", count: size / 10 - 10) + "mistake",
            "many empty lines": String(repeating: "\n", count: size - 10) + "mistake",
            "one line": String(repeating: "x", count: size),
            "one value": "[A]\nk=" + String(repeating: "x", count: size - 10),
            "one blank line": String(repeating: " ", count: size - 1) + "x",
            "many keys": "[A]\n" + (0..<100_000).map { "k\($0)=1\n" }.joined().prefix(size - 10),
            "one key many times": "[A]\n" + String(repeating: "k=1\n", count: size / 4 - 10),
            "many groups": String(repeating: "[A]\n", count: size / 4),
        ]
        for (what, text) in texts {
            #expect(text.utf8.count <= size, "\(what)")
            let directory = try TemporaryDirectory()
            try directory.write(text, to: "file")
            // Milliseconds, unoptimised and beside others; what is not linear in it would have no end.
            do {
                try await onOwnThread(within: .event) { _ = try? KeyFile(path: directory.path + "/file") }
            } catch {
                Issue.record("\(what): \(error)")
            }
        }
        #expect(fault(String(repeating: "#", count: size + 1))?.line == nil)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Foundation
import Testing

@testable import CarillonService

/// What a service lets go of, and what it must not.
@Suite("Release of unused memory pages", .limited)
struct UnusedPagesTests {
    private static let size = 256 << 10

    /// A private mapping of a file of nothing but the letter a, all of it looked at.
    private func map() throws -> UnsafeMutablePointer<UInt8> {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString).path
        try Data(repeating: 0x61, count: Self.size).write(to: URL(fileURLWithPath: path))
        defer { unlink(path) }
        let descriptor = open(path, O_RDONLY)
        try #require(descriptor >= 0)
        defer { close(descriptor) }
        let start = try #require(mmap(nil, Self.size, PROT_READ, MAP_PRIVATE, descriptor, 0))
        try #require(start != MAP_FAILED)
        let bytes = start.assumingMemoryBound(to: UInt8.self)
        #expect((0..<Self.size).allSatisfy { bytes[$0] == 0x61 })
        return bytes
    }

    /// Kilobytes of the mapping at an address that are resident.
    private func resident(_ bytes: UnsafeMutablePointer<UInt8>) throws -> Int {
        // Its size is not known before it is read.
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: "/proc/self/smaps"))
        let lines = String(decoding: try file.readToEnd() ?? Data(), as: UTF8.self).split(separator: "\n")
        let head = String(UInt(bitPattern: bytes), radix: 16) + "-"
        let rest = lines.drop { !$0.hasPrefix(head) }
        let line = try #require(rest.first { $0.hasPrefix("Rss:") })
        return try #require(line.split(separator: " ").dropFirst().first.flatMap { Int($0) })
    }

    @Test("Unchanged pages of a file are released and can be read again; changed pages remain resident")
    func letsGo() throws {
        let (same, changed) = (try map(), try map())
        defer { for mapping in [same, changed] { munmap(mapping, Self.size) } }
        try #require(mprotect(changed, Self.size, PROT_READ | PROT_WRITE) == 0)
        changed[0] = 0x62
        try #require(mprotect(changed, Self.size, PROT_READ) == 0)
        #expect(try resident(same) == Self.size >> 10)
        UnusedPages.releaseAll()
        #expect(try resident(same) == 0)
        #expect(try resident(changed) == Self.size >> 10)
        #expect(changed[0] == 0x62 && changed[Self.size - 1] == 0x61)
        #expect((0..<Self.size).allSatisfy { same[$0] == 0x61 })
    }
}

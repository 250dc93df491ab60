// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonService
@testable import CarillonSimulation

/// The model of the disk does what a file system does to a process that dies, and to one that finds it full.
@Suite("Model of the disk", .limited)
struct DiskModelTests {
    private let world = World(seed: 1)
    private let disk: Disk

    init() throws {
        disk = Disk(world)
        try ProcessFiles(disk, of: process()).makeDirectory("/d")
    }

    private func process() -> LoopProcess { LoopProcess(world, id: 1, name: "test") }

    @Test("Bytes of a dead process remain on the disk, and the write during its death is cut at some byte")
    func torn() throws {
        var lengths: Set<Int> = []
        for moment in 0..<200 {
            let process = process()
            let file = try ProcessFiles(disk, of: process).open("/d/log", for: .newLog)
            try file.append([1, 2, 3])
            process.kill(afterOperations: 0)
            world.run(until: Int64(moment))
            #expect(throws: FileError.self) { try file.append([UInt8](repeating: 4, count: 20)) }
            #expect(process.isDead)
            #expect(throws: FileError.self) { try file.append([5]) }
            let bytes = try #require(disk.files["/d/log"]?.bytes)
            #expect(bytes.starts(with: [1, 2, 3]) && !bytes.contains(5))
            lengths.insert(bytes.count)
        }
        #expect(lengths.isSubset(of: Set(3...23)))
        #expect(lengths.count > 10)
    }

    @Test("A full disk accepts a part of a write, and allocated space can still be written")
    func full() throws {
        let files = ProcessFiles(disk, of: process())
        let table = try files.open("/d/table", for: .newTable)
        try table.allocate(64)
        disk.capacity = 70
        let log = try files.open("/d/log", for: .newLog)
        let error = #expect(throws: FileError.self) { try log.append([UInt8](repeating: 1, count: 10)) }
        #expect(error?.code == 28)  // ENOSPC
        #expect(try log.size() == 6)
        try table.write([1, 2, 3, 4, 5, 6, 7, 8], at: 0)
        #expect(throws: FileError.self) { try table.write([9], at: 64) }
        #expect(try table.read(at: 56, atMost: 100) == [8, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test("A lock ends with its process, and a replaced file is recognized as replaced")
    func locks() throws {
        let (first, second) = (process(), process())
        let log = try ProcessFiles(disk, of: first).open("/d/log", for: .log)
        #expect(try log.lock())
        let other = try ProcessFiles(disk, of: second).open("/d/log", for: .log)
        #expect(try !other.lock())
        first.kill()
        #expect(try other.lock())
        let new = try ProcessFiles(disk, of: second).open("/d/log.new", for: .newLog)
        try new.rename(to: "/d/log")
        #expect(new.isInPlace && !other.isInPlace && other.isReplaced)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonService

/// What one event has to keep is written together, before anything of it leaves (E3).
@Suite("E3: combined writes of one event's state", .limited)
struct GatheredStateTests: StateTests {
    @Test("Held notifications sent to many clients take one write of the counts and one write of the log")
    func oneWrite() throws {
        let directory = try TemporaryDirectory()
        let files = WatchedFiles()
        let store = try open(directory, in: files)
        let (center, names) = try clients(10, of: store)
        for name in names { try suspend(name, in: center, store) }
        var effects = try post("Ding", in: center)
        carryOut(&effects, in: store)
        for name in names { try center.setSuspended(false, of: name, effects: &effects) }
        files.writes = []
        carryOut(&effects, in: store)
        #expect(files.writes == ["counts", "log"])
    }

    @Test("The counts of clients in distant slots are written, and no other client's counts change")
    func farApart() throws {
        let directory = try TemporaryDirectory()
        var store: RecoveryStore? = try open(directory, in: WatchedFiles())
        let (center, names) = try clients(100, of: try #require(store))
        var effects: [Effect] = []
        for name in names where [3, 4, 50, 99].contains(names.firstIndex(of: name)) {
            _ = try center.addObserver(
                of: name, name: "Ding", object: "", options: ObserverOptions(), effects: &effects)
        }
        effects += try post("Ding", in: center)
        center.sendAllReady(effects: &effects)
        carryOut(&effects, in: try #require(store))
        store = nil
        let next = DistributedCenter()
        _ = try open(directory, in: WatchedFiles()).restore(into: next)
        var later: [Effect] = []
        next.finishRestoring(effects: &later)
        // Nobody knows whether those arrived.
        let told = later.compactMap { effect -> ClientName? in
            if case .dropped(let client, 1, _, .serviceRestarted, 1) = effect { client } else { nil }
        }
        #expect(Set(told) == Set([3, 4, 50, 99].map { names[$0] }))
    }

    @Test("After a crash between the writes of counts and log, the notifications are sent later with new numbers")
    func betweenCountsAndLog() throws {
        let directory = try TemporaryDirectory()
        let files = WatchedFiles()
        var store: RecoveryStore? = try open(directory, in: files)
        let (center, names) = try clients(1, of: try #require(store))
        try suspend(names[0], in: center, try #require(store))
        var effects = try post("A", in: center) + post("B", in: center)
        carryOut(&effects, in: try #require(store))
        try center.setSuspended(false, of: names[0], effects: &effects)
        files.keepsLog = false
        carryOut(&effects, in: try #require(store))
        store = nil

        let next = DistributedCenter()
        #expect(try open(directory, in: WatchedFiles()).restore(into: next) == 1)
        var later: [Effect] = []
        next.finishRestoring(effects: &later)
        try next.setSuspended(false, of: names[0], effects: &later)
        let told = later.compactMap { effect -> UInt64? in
            if case .dropped(_, let count, _, .serviceRestarted, 2) = effect { count } else { nil }
        }
        #expect(told == [2])
        let delivered = later.compactMap { effect -> String? in
            if case .deliver(let delivery) = effect { "\(delivery.notification.name)\(delivery.sequence)" } else { nil }
        }
        #expect(delivered == ["A3", "B4"])
    }

    // MARK: Steps

    private func open(_ directory: TemporaryDirectory, in files: WatchedFiles) throws -> RecoveryStore {
        try RecoveryStore(directory: directory.path, in: files, busID: "b", takesLock: false)
    }

    private func clients(_ count: Int, of store: RecoveryStore) throws -> (DistributedCenter, [ClientName]) {
        let center = DistributedCenter()
        center.remembersChanges = true
        _ = store.restore(into: center)
        var effects: [Effect] = []
        let names = (1...count).map { ClientName(unchecked: ":1.\($0)") }
        let hold = ObserverOptions(suspensionBehavior: .hold)
        for name in names {
            _ = try center.addObserver(
                of: name, name: count == 100 ? "Dong" : "", object: "", options: hold, effects: &effects)
        }
        carryOut(&effects, in: store)
        return (center, names)
    }

    private func suspend(_ name: ClientName, in center: DistributedCenter, _ store: RecoveryStore) throws {
        var effects: [Effect] = []
        try center.setSuspended(true, of: name, effects: &effects)
        carryOut(&effects, in: store)
    }

    private func post(_ name: String, in center: DistributedCenter) throws -> [Effect] {
        var effects: [Effect] = []
        _ = try center.post(name: name, object: "", userInfo: try userInfo(name), from: ":1.9", effects: &effects)
        return effects
    }

    /// As the service does it.
    private func carryOut(_ effects: inout [Effect], in store: RecoveryStore) {
        store.keep(effects)
        effects = []
    }
}

/// Those of the machine, of which it is noted what is written.
private final class WatchedFiles: StateFiles {
    private let files = SystemFiles()
    var writes: [String] = []
    /// Whether what is appended arrives.
    var keepsLog = true

    func open(_ path: String, for opening: RegularFile.Opening) throws(FileError) -> any StateFile {
        WatchedFile(try files.open(path, for: opening), of: self)
    }
    func makeDirectory(_ path: String) throws(FileError) { try files.makeDirectory(path) }
    func names(in directory: String) -> [String] { files.names(in: directory) }
    func status(of path: String) -> StateFileStatus? { files.status(of: path) }
    func remove(_ path: String) { files.remove(path) }
    func isListening(at socket: [UInt8]) -> Bool? { files.isListening(at: socket) }
}

private final class WatchedFile: StateFile {
    private let file: any StateFile
    private let files: WatchedFiles

    init(_ file: any StateFile, of files: WatchedFiles) {
        self.file = file
        self.files = files
    }

    func append(_ bytes: [UInt8]) throws(FileError) {
        files.writes.append("log")
        if files.keepsLog { try file.append(bytes) }
    }
    func write(_ words: ArraySlice<UInt64>, at offset: Int) throws(FileError) {
        files.writes.append("counts")
        try file.write(words, at: offset)
    }
    var path: String { file.path }
    func size() throws(FileError) -> Int { try file.size() }
    var isInPlace: Bool { file.isInPlace }
    var isReplaced: Bool { file.isReplaced }
    func lock() throws(FileError) -> Bool { try file.lock() }
    func read(at offset: Int, atMost count: Int) throws(FileError) -> [UInt8] {
        try file.read(at: offset, atMost: count)
    }
    func allocate(_ count: Int) throws(FileError) { try file.allocate(count) }
    func removeAll() throws(FileError) { try file.removeAll() }
    func rename(to path: String) throws(FileError) { try file.rename(to: path) }
    func remove() { file.remove() }
}

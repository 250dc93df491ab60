// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import CarillonService

/// The files that services left for buses that are gone.
@Suite("E3: state of other buses", .serialized, .limited)
struct AbandonedStateTests: StateTests {
    @Test("E3: the next service removes the state of a dead bus and keeps the usable state of live buses")
    func otherBuses() throws {
        let (gone, idle, busy, new) = (try PrivateBus(), try PrivateBus(), try PrivateBus(), try PrivateBus())
        let runtime = ["XDG_RUNTIME_DIR": try #require(new.environment["XDG_RUNTIME_DIR"])]
        func serve(_ bus: PrivateBus) throws -> ServiceProcess { try ServiceProcess(on: bus, environment: runtime) }
        var clients: [Client] = []
        for bus in [gone, idle, busy] {
            let service = try serve(bus)
            clients.append(try Client(on: bus))
            try clients.last!.addObserver("Ding")
            try service.kill()
        }
        let goesOn = try serve(busy)
        gone.stop()
        let directory = try #require(runtime["XDG_RUNTIME_DIR"]) + "/carillon"
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory).count == 6)

        let service = try serve(new)
        // It serves when it has looked at them.
        _ = try Client(on: new).listClients()
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory).count == 6)
        try service.waitForLog("removed the state of 1 buses")
        let back = try serve(idle)
        #expect(try clients[1].post("Ding") == 1, "\(back.transcript)")
        try goesOn.kill()
        let next = try serve(busy)
        #expect(try clients[2].post("Ding") == 1, "\(next.transcript)")
    }

    @Test("E3: the state of a bus is removed if another bus has its address")
    func sameAddress() throws {
        let directory = try TemporaryDirectory()
        let bus = try PrivateBus()
        for address in [bus.address, "unix:path=\(directory.path)/%62us", "unix:abstract=carillon-\(getpid())"] {
            try leave("aa", at: address, in: directory)
            try expectLeft(["bb.counts", "bb.log"], by: "bb", at: address, in: directory)
        }
        // Something listens there.
        try leave("aa", at: bus.address, in: directory)
        try leave("bb", at: "unix:path=\(directory.path)/other", in: directory)
        #expect(try names(directory) == ["aa.counts", "aa.log", "bb.counts", "bb.log"])
    }

    @Test("E3, E4: of buses that can't be checked, only the newest states are kept, up to a number and a size")
    func unknown() throws {
        let directory = try TemporaryDirectory()
        for number in 1...20 {
            let id = "a\(number)"
            try leave(id, at: number % 2 == 0 ? "tcp:host=localhost,port=1" : "", in: directory)
            // The order in which they were written, also where a clock is coarse.
            let date = Date(timeIntervalSince1970: 1_000_000 + Double(number))
            for name in try names(directory) where name == "\(id).log" {
                try FileManager.default.setAttributes([.modificationDate: date], ofItemAtPath: directory.entry(name))
            }
        }
        try directory.write("not ours", to: "readme.log.txt")
        let expected =
            (13...20).flatMap { ["a\($0).counts", "a\($0).log"] } + ["bb.counts", "bb.log", "readme.log.txt"]
        try expectLeft(expected.sorted(), by: "bb", at: "", in: directory)
        try directory.write(String(repeating: "x", count: 2 << 20), to: "a20.log")
        var limits = Limits()
        limits[.stateBytes] = 1 << 20
        try expectLeft(["bb.counts", "bb.log", "readme.log.txt"], by: "bb", at: "", in: directory, limits: limits)
    }

    /// What is there when a service has come and gone. A child that another test starts at this moment has the locks of
    /// this process, so that the state looks as if a service had it: then another service comes.
    private func expectLeft(
        _ expected: [String], by id: String, at address: String, in directory: TemporaryDirectory,
        limits: Limits = Limits()
    ) throws {
        try eventually("\(expected) are left, with \(address)") {
            try leave(id, at: address, in: directory, limits: limits)
            return try names(directory) == expected
        }
    }

    /// Keeps a state, and ends without removing it. What other services left is looked at meanwhile.
    private func leave(
        _ id: String, at address: String, in directory: TemporaryDirectory, limits: Limits = Limits()
    ) throws {
        let store = try open(directory, busID: id, address: address, limits: limits)
        _ = store.restore(into: DistributedCenter(limits: limits))
    }

    private func names(_ directory: TemporaryDirectory) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
    }
}

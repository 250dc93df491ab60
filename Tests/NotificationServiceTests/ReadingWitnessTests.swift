// SPDX-License-Identifier: Apache-2.0
import BusNames
import DBus
import NotificationCore
import TestLimits
import Testing

@testable import NotificationService

/// How the service finds out whether a client reads that never answers a Ping, on a kernel that is the test's.
@Suite("B6: the sockets of a client that never answers", .limited)
struct ReadingWitnessTests {
    /// A process with so many sockets, the first of which lead to the bus.
    private final class Kernel: SocketTable {
        /// Bytes that wait unread in each socket of the process to the bus.
        var unread: [UInt32]
        let others: Int
        private(set) var systemCalls = 0

        private static let bus = Array("bus".utf8)
        private static let service: UInt32 = 1
        private static let process: UInt32 = 10
        private static let peers: UInt32 = 1_000_000

        init(unread: [UInt32], others: Int = 0) {
            self.unread = unread
            self.others = others
        }

        subscript(inode: UInt32) -> UnixSocket? {
            systemCalls += 2
            if inode >= Self.peers {
                let isOfBus = inode - Self.peers < Self.process + UInt32(unread.count)
                return UnixSocket(peer: inode - Self.peers, name: isOfBus ? Self.bus : Array("other".utf8))
            }
            var socket = UnixSocket(peer: inode + Self.peers)
            let index = Int(inode) - Int(Self.process)
            if unread.indices.contains(index) { socket.unreadBytes = unread[index] }
            return socket
        }

        func inodes(of _: UInt32) -> [UInt32]? {
            let count = unread.count + others
            systemCalls += 2 + count
            return (0..<UInt32(count)).map { Self.process + $0 }
        }

        func inode(of _: Int32) -> UInt32? { Self.service }
    }

    private final class Scene {
        let bus = QuietBus()
        let witness: ReadingWitness
        private(set) var findings: [Bool] = []
        /// The steps of each look.
        private(set) var steps: [Int] = []

        init(_ kernel: Kernel?) {
            witness = ReadingWitness(bus: bus, socket: { 3 }, sockets: kernel)
            witness.isOnTheWay = { _ in false }
            witness.onFinding = { [unowned self] _, hasRead in findings.append(hasRead) }
            witness.meter.eventEnded = { [unowned self] _, steps in self.steps.append(steps) }
        }

        func find(_ client: UniqueName = ":1.7") {
            witness.find(client)
            while let request = bus.next("GetConnectionCredentials") {
                let reply = Message.forgedReply(to: client, serial: 1)
                var writer = MessageWriter(reply)
                writer.array(of: "{sv}") { writer in
                    writer.entry("ProcessID", UInt32(4711))
                    writer.entry("UnixUserID", UInt32(1000))
                }
                request.completion?(.success(reply))
            }
        }
    }

    @Test("A client has read when nothing lies unread twice in a row")
    func read() {
        let kernel = Kernel(unread: [100])
        let scene = Scene(kernel)
        scene.find()
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings.isEmpty)
        kernel.unread = [0]
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings == [true])
    }

    @Test("Nothing is found while the bus may not have handed on all")
    func onTheWay() {
        let scene = Scene(Kernel(unread: [0]))
        scene.witness.isOnTheWay = { _ in true }
        scene.find()
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings.isEmpty && scene.steps.allSatisfy { $0 == 0 })
        scene.witness.isOnTheWay = { _ in false }
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings == [true])
    }

    @Test("Where the kernel does not tell, a window passes in a second")
    func blind() {
        let scene = Scene(nil)
        scene.find()
        scene.bus.pass(milliseconds: 900)
        #expect(scene.findings.isEmpty)
        scene.bus.pass(milliseconds: 200)
        #expect(scene.findings == [false])
    }

    @Test("Bytes that do not change while a window is sent are another connection's")
    func another() {
        let kernel = Kernel(unread: [0, 300])
        let scene = Scene(kernel)
        scene.find()
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings == [false], "a window is let pass")
        scene.find()
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings == [false, true])
    }

    #if DEBUG || CARILLON_METER
        @Test("E8: a look goes through few sockets within the budget")
        func cheap() {
            let scene = Scene(Kernel(unread: [100], others: 100))
            scene.find()
            scene.bus.pass(milliseconds: 10_000)
            #expect(scene.steps.count > 5 && scene.steps.allSatisfy { $0 < StepMeter.budget })
            // Found once, a socket is looked at alone.
            #expect(scene.steps.dropFirst().allSatisfy { $0 <= 40 })
        }

        /// Known, and to be mended: all is looked at in one event. docs/testing.md has the table.
        @Test("E8: a look exceeds the budget for many sockets", arguments: [(100_000, 1), (0, 3000)])
        func dear(others: Int, connections: Int) throws {
            let scene = Scene(Kernel(unread: .init(repeating: 100, count: connections), others: others))
            scene.find()
            scene.bus.pass(milliseconds: 10)
            let steps = try #require(scene.steps.max())
            #expect(steps > StepMeter.budget, "within the budget: leaves the table of those that are known")
        }
    #endif
}

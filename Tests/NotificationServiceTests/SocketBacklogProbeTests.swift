// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import CarillonService

/// How the service finds out whether a client reads that never answers a Ping, on a kernel that is the test's.
@Suite("B6: socket backlog probe for clients that never answer", .limited)
struct SocketBacklogProbeTests {
    /// Processes with so many sockets, the first of which lead to the bus. Unchecked, as its list: one
    /// question at a time uses them, and what a test changes it changes before the first.
    private final class Kernel: SocketTable, @unchecked Sendable {
        // Sendable: the tests ask it on their own thread, but for one that has nothing in it to change.

        /// Bytes that wait unread in each socket of a process to the bus.
        var unread: [UInt32]
        var others: Int
        /// Whether descriptors can be seen, and for which processes that never ends.
        var isVisible = true
        var silent: Set<UInt32> = []
        /// Places in a listing that are left out of it, and where it ends too early.
        var leftOut: (_ inode: UInt32) -> Bool = { _ in false }
        var endOfListing = Int.max
        /// What had a descriptor at the same time, at most.
        private(set) var maxOpen = 0
        private var open = 0 { didSet { maxOpen = max(maxOpen, open) } }
        private let never = DispatchSemaphore(value: 0)
        private(set) var systemCalls = 0
        /// How often the descriptors of a process were looked through, and how many of them.
        private(set) var searches = 0
        private(set) var searched = 0

        private static let bus = Array("bus".utf8)
        private static let service: UInt32 = 1
        private static let first: UInt32 = 10
        private static let peers: UInt32 = 1_000_000

        init(unread: [UInt32], others: Int = 0) {
            self.unread = unread
            self.others = others
        }

        /// Called when it has answered about a socket.
        var whenAsked: (() -> Void)?

        subscript(inode: UInt32) -> UnixSocket? {
            systemCalls += 2
            look()
            defer { whenAsked?() }
            return socket(inode)
        }

        private func socket(_ inode: UInt32) -> UnixSocket? {
            if inode >= Self.peers {
                let isOfBus = inode - Self.peers < Self.first + UInt32(unread.count)
                return UnixSocket(peer: inode - Self.peers, name: isOfBus ? Self.bus : Array("other".utf8))
            }
            let index = Int(inode) - Int(Self.first)
            guard index < unread.count + others else { return nil }
            var socket = UnixSocket(peer: inode + Self.peers)
            if unread.indices.contains(index) { socket.unreadBytes = unread[index] }
            return socket
        }

        func descriptors(of processID: UInt32) -> (any DescriptorList)? {
            systemCalls += 1
            if silent.contains(processID) { never.wait() }
            guard isVisible else { return nil }
            searches += 1
            return List(self)
        }

        func inode(of _: Int32) -> UInt32? { Self.service }

        func all() -> (any SocketList)? {
            systemCalls += 2
            return Listing(self)
        }

        /// What the calls took, of their own clock.
        private(set) var processorTime = Duration.zero
        /// What one takes for each socket.
        var timePerSocket = Duration.zero

        private func look() { processorTime += timePerSocket * (unread.count + others) }

        private final class Listing: SocketList, @unchecked Sendable {
            // Sendable: as the kernel.
            let kernel: Kernel
            var place = 0
            private(set) var systemCalls = 0

            init(_ kernel: Kernel) {
                self.kernel = kernel
                kernel.open += 1
            }

            deinit { kernel.open -= 1 }

            func next() -> [(inode: UInt32, socket: UnixSocket)]? {
                systemCalls += 1
                let end = min(place + 100, kernel.unread.count + kernel.others)
                guard place < min(end, kernel.endOfListing) else { return nil }
                defer { place = end }
                kernel.processorTime += kernel.timePerSocket * 100
                return (place..<end).flatMap { index in
                    let inode = Kernel.first + UInt32(index)
                    return [inode, inode + Kernel.peers].compactMap { inode in
                        kernel.leftOut(inode) ? nil : kernel.socket(inode).map { (inode, $0) }
                    }
                }
            }
        }

        private final class List: DescriptorList, @unchecked Sendable {
            // Sendable: as the kernel.
            let kernel: Kernel
            let end: Int
            var next = 0
            private(set) var systemCalls = 0

            init(_ kernel: Kernel) {
                self.kernel = kernel
                end = kernel.unread.count + kernel.others
                kernel.open += 1
            }

            deinit { kernel.open -= 1 }

            func nextSockets(among count: Int) -> [UInt32]? {
                let end = min(next + count, end)
                guard next < end else { return nil }
                defer { next = end }
                systemCalls += end - next
                kernel.searched += end - next
                return (next..<end).map { Kernel.first + UInt32($0) }
            }
        }
    }

    private struct Finding: Equatable {
        let client: UniqueName
        let hasRead: Bool
    }

    private final class Scene {
        let bus = QuietBus()
        private(set) var backlogProbe: SocketBacklogProbe!
        private(set) var found: [Finding] = []
        /// The steps of each event.
        private(set) var steps: [Int] = []

        var findings: [Bool] { found.map(\.hasRead) }

        init(_ kernel: Kernel?, usesThreads: Bool = false, bound: UInt32 = 2000) {
            backlogProbe = SocketBacklogProbe(
                bus: bus, socket: { 3 }, sockets: { kernel },
                work: BlockingWork(on: bus.context, priority: .default, bound: bound, usesThreads: usesThreads))
            backlogProbe.mayBeInBus = { _ in false }
            backlogProbe.onFinding = { [unowned self] client, hasRead in
                found.append(Finding(client: client, hasRead: hasRead))
            }
            backlogProbe.meter.eventEnded = { [unowned self] _, steps in self.steps.append(steps) }
        }

        func find(_ client: UniqueName = ":1.7", of processID: UInt32 = 4711) {
            backlogProbe.find(client)
            while let request = bus.next("GetConnectionCredentials") {
                let reply = Message.forgedReply(to: client, serial: 1)
                var writer = MessageWriter(reply)
                writer.array(of: "{sv}") { writer in
                    writer.entry("ProcessID", processID)
                    writer.entry("UnixUserID", UInt32(1000))
                }
                request.completion?(.success(reply))
            }
        }
    }

    private static func client(_ number: Int) -> UniqueName { UniqueName(rawValue: ":1.\(number)")! }

    @Test("A client has read its window when two looks in a row find no unread bytes")
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

    @Test("The probe reports no result while the bus may not have delivered all messages")
    func onTheWay() {
        let kernel = Kernel(unread: [0])
        let scene = Scene(kernel)
        scene.backlogProbe.mayBeInBus = { _ in true }
        scene.find()
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings.isEmpty && kernel.searches == 0)
        scene.backlogProbe.mayBeInBus = { _ in false }
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings == [true])
    }

    @Test("Without socket information from the kernel, a window passes after a second")
    func blind() {
        let scene = Scene(nil)
        scene.find()
        scene.bus.pass(milliseconds: 900)
        #expect(scene.findings.isEmpty)
        scene.bus.pass(milliseconds: 200)
        #expect(scene.findings == [false])
    }

    @Test("For a process with invisible descriptors, sixteen windows pass per second, the oldest first")
    func manyBlind() {
        let kernel = Kernel(unread: [0])
        kernel.isVisible = false
        let scene = Scene(kernel)
        for number in 1...100 { scene.find(Self.client(number)) }
        scene.bus.pass(milliseconds: 900)
        #expect(scene.found.isEmpty)
        scene.bus.pass(milliseconds: 200)
        #expect(scene.found == (1...16).map { Finding(client: Self.client($0), hasRead: false) })
        for number in 1...16 { scene.find(Self.client(number)) }
        scene.bus.pass(milliseconds: 1100)
        #expect(scene.found.count == 32)
        scene.bus.pass(milliseconds: 60_000)
        #expect(scene.found.count == 116 && scene.findings.allSatisfy { !$0 })
    }

    @Test("Unread bytes that do not change while a window is sent belong to another connection")
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

    @Test("A closed socket is no longer probed; if all are closed, other sockets are searched for")
    func closed() {
        let kernel = Kernel(unread: [100, 100])
        let scene = Scene(kernel)
        scene.find()
        scene.bus.pass(milliseconds: 100)
        kernel.unread = [0]
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings == [true] && kernel.searches == 1)
        kernel.unread = []
        scene.find()
        scene.bus.pass(milliseconds: 900)
        #expect(scene.findings == [true] && kernel.searches > 1)
        kernel.unread = [0]
        scene.bus.pass(milliseconds: 30_000)
        #expect(scene.findings.first == true && scene.findings.count == 2)
    }

    @Test("All connections of a process share one search and one series of looks; a new connection is searched for")
    func shared() {
        let kernel = Kernel(unread: [UInt32](repeating: 100, count: 10))
        let scene = Scene(kernel)
        for number in 1...10 { scene.find(Self.client(number)) }
        scene.bus.pass(milliseconds: 1000)
        #expect(kernel.searches == 1 && kernel.searched == 10)
        kernel.unread = [UInt32](repeating: 0, count: 10)
        scene.bus.pass(milliseconds: 3000)
        #expect(scene.found == (1...10).map { Finding(client: Self.client($0), hasRead: true) })
        let before = kernel.systemCalls
        for number in 1...10 { scene.find(Self.client(number)) }
        scene.bus.pass(milliseconds: 3000)
        #expect(scene.found.count == 20 && kernel.searches == 1)
        #expect(kernel.systemCalls - before <= 10 * 2 * 4, "two looks, perhaps three")
        kernel.unread.append(100)
        scene.find(Self.client(11))
        scene.bus.pass(milliseconds: 900)
        #expect(scene.found.count == 20 && kernel.searches == 2, "the new one has not read")
        kernel.unread[10] = 0
        scene.bus.pass(milliseconds: 3000)
        #expect(scene.found.last == Finding(client: Self.client(11), hasRead: true))
    }

    @Test(
        "Sockets missing in a listing are queried one by one: one end of a connection, the other, or all behind its end",
        arguments: [0, 1, 2])
    func leftOut(kind: Int) {
        let kernel = Kernel(unread: [UInt32](repeating: 100, count: 40))
        if kind == 2 {
            kernel.endOfListing = 0
        } else {
            kernel.leftOut = { $0 % 2 == 0 && ($0 > 1_000_000) == (kind == 1) }
        }
        let scene = Scene(kernel)
        for number in 1...40 { scene.find(Self.client(number)) }
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.found.isEmpty && kernel.searches == 1)
        for index in 0..<40 where index != 12 { kernel.unread[index] = 0 }
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.found.isEmpty && kernel.searches == 1, "one has not read, and none is forgotten")
        kernel.unread[12] = 0
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings == [Bool](repeating: true, count: 40) && kernel.searches == 1)
    }

    @Test("A look in progress does not answer a question that arrives during it")
    func askedMeanwhile() {
        let kernel = Kernel(unread: [0])
        let scene = Scene(kernel)
        scene.find()
        scene.bus.pass(milliseconds: 1000)
        #expect(scene.findings == [true])
        var looks = 0
        kernel.whenAsked = { [unowned scene] in
            looks += 1
            if looks == 1 { scene.find() }
            if looks == 2 { kernel.unread = [100] }
        }
        scene.find()
        scene.bus.pass(milliseconds: 1000)
        #expect(looks > 2 && scene.findings == [true], "the first look was for the question before")
        kernel.unread = [0]
        scene.bus.pass(milliseconds: 3000)
        #expect(scene.findings == [true, true])
    }

    @Test("At most 16 descriptors are open for any number of probed processes, and every question is answered")
    func manyProcesses() {
        let kernel = Kernel(unread: [UInt32](repeating: 0, count: 20), others: 1000)
        let scene = Scene(kernel)
        for number in 1...200 { scene.find(Self.client(number), of: UInt32(1000 + number)) }
        scene.bus.pass(milliseconds: 10)
        for number in 101...150 { scene.backlogProbe.forget(Self.client(number)) }
        scene.bus.pass(milliseconds: 120_000)
        #expect(kernel.maxOpen <= 16 && kernel.searches >= 150)
        #expect(scene.findings == [Bool](repeating: true, count: 150))
        for number in 1...200 { scene.backlogProbe.forget(Self.client(number)) }
        scene.find(Self.client(300), of: 3000)
        scene.bus.pass(milliseconds: 3000)
        #expect(scene.findings.count == 151 && scene.backlogProbe.keptCount == 2)
    }

    @Test("A forgotten connection gets no answer and leaves no state behind")
    func forgotten() {
        let kernel = Kernel(unread: [100])
        let scene = Scene(kernel)
        scene.find()
        scene.bus.pass(milliseconds: 100)
        scene.backlogProbe.forget(":1.7")
        kernel.unread = [0]
        let before = kernel.systemCalls
        scene.bus.pass(milliseconds: 10_000)
        #expect(scene.findings.isEmpty && scene.backlogProbe.keptCount == 0 && kernel.systemCalls == before)
    }

    @Test("If the kernel never answers for a process, its window passes, and other processes are still probed")
    func stuck() throws {
        let kernel = Kernel(unread: [0])
        kernel.silent = [4711]
        let scene = Scene(kernel, usesThreads: true, bound: 20_000)
        scene.find(Self.client(1))
        // Its thread never returns, however much time passes.
        scene.bus.pass(milliseconds: 30_000)
        #expect(scene.found == [Finding(client: Self.client(1), hasRead: false)])
        scene.find(Self.client(2), of: 4712)
        // A thread that does return has its time: the clock of the stage goes no faster than that of the machine.
        try eventually("the other is told", every: .milliseconds(1)) {
            scene.bus.pass(milliseconds: 1)
            return scene.found.count == 2
        }
        #expect(scene.found.last == Finding(client: Self.client(2), hasRead: true))
    }

    #if DEBUG || CARILLON_METER
        @Test(
            "E8: an event probes few sockets, and all probes together remain within the budget of a second",
            arguments: [(100_000, 1, 0), (0, 3000, 0), (100, 1, 0), (100_000, 1, 50), (0, 3000, 50)])
        func cheap(others: Int, connections: Int, nanosecondsPerSocket: Int) throws {
            let kernel = Kernel(unread: .init(repeating: 100, count: connections), others: others)
            kernel.timePerSocket = .nanoseconds(nanosecondsPerSocket)
            let scene = Scene(kernel)
            for number in 1...connections { scene.find(Self.client(number)) }
            scene.bus.pass(milliseconds: 10_000)
            #expect(kernel.systemCalls + kernel.searched <= 11 * SocketBacklogProbe.systemCallsPerSecond)
            #expect(kernel.processorTime <= .seconds(11 * SocketBacklogProbe.processorShare))
            #expect(scene.steps.allSatisfy { $0 < StepMeter.budget / 20 })
            kernel.unread = .init(repeating: 0, count: connections)
            scene.bus.pass(milliseconds: 60_000)
            #expect(scene.findings == .init(repeating: true, count: connections), "all are told in the end")
        }

        @Test("E8: a process with many sockets delays the probes of other processes by one work slice at a time")
        func fair() {
            let kernel = Kernel(unread: [0], others: 100_000)
            let scene = Scene(kernel)
            scene.find(Self.client(1), of: 4711)
            scene.bus.pass(milliseconds: 100)
            kernel.others = 0
            scene.find(Self.client(2), of: 4712)
            scene.bus.pass(milliseconds: 300)
            #expect(scene.found == [Finding(client: Self.client(2), hasRead: true)])
        }
    #endif
}

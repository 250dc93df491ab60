// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// Policy that changes while clients have much that it does not allow any more.
@Suite("P3, E8: revocation of many observers", .limited)
struct PolicyRevocationsTests {
    private let stage: ServiceStage
    private let confined: [StageClient]
    private let free: StageClient
    private static let observers = 3000

    init() throws {
        stage = try ServiceStage { $0.policy.openNames = [.exactly("Open")] }
        let stage = stage
        confined = (0..<4).map { number in
            stage.join(.init(confinement: .sandbox("org.example.Boxed\(number)")))
        }
        free = stage.join()
        try free.observe("Open")
        for client in confined {
            for _ in 0..<Self.observers { client.send(AddObserver(name: "Open", object: "").message()) }
        }
        try stage.run("all are registered") {
            stage.service.center?.statistics.observers == UInt64(4 * Self.observers + 1)
        }
    }

    private var revoked: [Int] { confined.map { $0.dropped.reduce(0) { $0 + $1.observers.count } } }

    @Test("Observers are revoked in slices, and each one is named once")
    func inParts() throws {
        stage.configure { $0.policy.openNames = [] }
        #expect(revoked.reduce(0, +) < 4 * Self.observers, "not in one event")
        try stage.run("all is taken") { revoked == Array(repeating: Self.observers, count: 4) }
        #expect(confined.allSatisfy { $0.dropped.allSatisfy { $0.count == 0 } })
        #expect(confined.allSatisfy { Set($0.dropped.flatMap(\.observers)).count == Self.observers })
        #expect(free.dropped.isEmpty)
        #expect(try free.post("Open") == 1)
    }

    @Test("ReloadConfiguration is answered after all forbidden observers have been removed")
    func answered() throws {
        stage.change { $0.policy.openNames = [] }
        try free.call(ReloadConfiguration())
        #expect(stage.service.center?.statistics.observers == 1)
        #expect(try free.post("Open") == 1)
    }

    @Test("The observers of all clients are revoked even if policy changes again and again")
    func again() throws {
        for round in 0..<8 {
            stage.configure { $0.policy.openNames = [.exactly("Other\(round)")] }
            stage.pass(milliseconds: 1)
        }
        #expect(stage.service.center?.statistics.observers == 1)
        #expect(revoked == Array(repeating: Self.observers, count: 4))
    }

    @Test("Observers that are allowed again before their revocation are kept")
    func allowedAgain() throws {
        stage.configure { $0.policy.openNames = [] }
        stage.configure { $0.policy.openNames = [.exactly("Open")] }
        stage.pass(milliseconds: 100)
        let left = stage.service.center?.statistics.observers ?? 0
        #expect(left > 1 && Int(left) == 1 + 4 * Self.observers - revoked.reduce(0, +))
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// When what was posted `when-idle` leaves its poster's queue.
@Suite("Q2, Q7: when-idle posts", .limited)
struct IdlePostingTests {
    private let stage: ServiceStage
    private let observer: StageClient
    private let others: StageClient
    /// Too many to be posted at once.
    private static let posts = 200

    init() throws {
        stage = try ServiceStage()
        (observer, others) = (stage.join(), stage.join())
        try observer.observe("Ding")
        var options = PostOptions()
        options.postingStyle = .whenIdle
        let poster = stage.join()
        for number in 0..<Self.posts { try poster.post("Ding", "\(number)", options: options) }
    }

    private var arrived: [String] { observer.notifications.map(\.object) }

    /// Somebody calls every so many milliseconds.
    private func trickle(calls: Int, every milliseconds: Int64, _ body: () -> Void = {}) throws {
        for _ in 0..<calls {
            try others.call(ListClients())
            stage.pass(milliseconds: milliseconds)
            body()
        }
    }

    @Test("When-idle posts wait while calls arrive, and are posted in order afterwards")
    func quiet() throws {
        try trickle(calls: 20, every: 40) { #expect(arrived == []) }
        stage.pass(milliseconds: 100)
        #expect(arrived == (0..<Self.posts).map(String.init))
    }

    @Test("A call during the posting of when-idle posts delays the rest until the service is idle, without a loss")
    func interrupted() throws {
        try stage.run("the first of them") { !arrived.isEmpty }
        #expect(arrived.count < Self.posts)
        try others.call(ListClients())
        let begun = arrived.count
        #expect(begun < Self.posts)
        try trickle(calls: 10, every: 40) { #expect(arrived.count == begun) }
        stage.pass(milliseconds: 100)
        #expect(arrived == (0..<Self.posts).map(String.init))
    }

    @Test("Endless calls delay when-idle posts only for a limited time")
    func trickling() throws {
        try trickle(calls: 200, every: 40)
        #expect(arrived == (0..<Self.posts).map(String.init))
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// A call that is refused may have found something first: that the time of a value is over. It is told and kept as ever.
@Suite("R1, G5: expired values found by a refused call", .limited)
struct RefusedEventTests {
    private func value(forSeconds seconds: UInt32? = nil) -> PostOptions {
        var options = PostOptions()
        options.retention = Retention()
        options.expiresAfter = seconds
        return options
    }

    @Test("A refused post that finds an expired value sends ValuesRemoved to a client that follows values")
    func told() throws {
        let stage = try ServiceStage { $0.limits[.retainedPerClient] = 1 }
        let poster = stage.join()
        try poster.post("Kept", options: value())
        try stage.join().post("Short", options: value(forSeconds: 1))
        let follower = stage.join()
        #expect(try follower.call(FollowValues(most: 10)).map(\.name) == ["Kept", "Short"])
        stage.pass(milliseconds: 2000)

        var error = #expect(throws: BusError.self) { try poster.post("Another", options: value()) }
        #expect(error?.centerError == .limitExceeded)
        stage.settle()
        #expect(follower.messages.count { $0.member == "ValuesRemoved" } == 1)

        // Once, until it asks again.
        error = #expect(throws: BusError.self) { try poster.post("Another", options: value()) }
        #expect(error?.centerError == .limitExceeded)
        stage.settle()
        #expect(follower.messages.count { $0.member == "ValuesRemoved" } == 1)
        #expect(try follower.call(FollowValues(most: 10)).map(\.name) == ["Kept"])
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonDBus
@testable import CarillonClient

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Posts that leave from the threads that make them, while the line is idle.
@Suite("Posts sent on the bus by the posting thread, without the session", .limited)
struct SessionLineTests {
    private final class Line {
        let stage = SessionTests.Stage()
        private let ends: (Int32, Int32)

        init() throws {
            var both: [Int32] = [-1, -1]
            try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &both) == 0)
            ends = (both[0], both[1])
            stage.bus.directSender = DirectSender(descriptor: both[0], isBusy: false)
            // The first request has the session ask the service, which makes it ready.
            stage.start()
            try stage.ask(.post(OutgoingPost(name: "Ding")))
            _ = stage.bus.connection.takeSent()
        }

        deinit {
            close(ends.0)
            close(ends.1)
        }

        /// Posts, and tells nobody.
        ///
        /// - Returns: whether the session would have to be told.
        func post(_ completion: Request.Completion<Result<Int, ServiceError>>? = nil) throws -> Bool {
            try stage.outbox.append(.post(OutgoingPost(name: "Ding", completion: completion)))
        }

        /// How many bytes left past the session.
        func take() -> Int {
            var bytes = [UInt8](repeating: 0, count: 1 << 16)
            return max(0, recv(ends.1, &bytes, bytes.count, Int32(MSG_DONTWAIT)))
        }
    }

    @Test("A post leaves directly while the line is idle; the eighth requests an answer through the session")
    func passes() throws {
        let line = try Line()
        for _ in 0..<6 {
            #expect(try !line.post())
            #expect(line.take() > 0)
        }
        #expect(try line.post())
        #expect(line.take() == 0)
        line.stage.session.pump()
        #expect(line.stage.bus.connection.takeSent() == ["Post?"])
        #expect(try !line.post(), "all are confirmed")
        #expect(line.take() > 0)
        #expect(!line.stage.session.mayStop(), "the bus may not have read it")
        #expect(line.stage.bus.connection.takeSent() == ["GetId?"])
    }

    @Test("A stopping session waits until the bus has read the directly sent posts")
    func stopping() throws {
        let line = try Line()
        // The bus is asked about the first post, and answers at once.
        #expect(!line.stage.session.mayStop())
        #expect(line.stage.session.mayStop())
        line.stage.session.pump()
        _ = line.stage.bus.connection.takeSent()
        #expect(try !line.post())
        #expect(line.take() > 0)
        #expect(!line.stage.session.mayStop())
        #expect(line.stage.bus.connection.takeSent() == ["GetId?"])
        #expect(line.stage.session.mayStop())
    }

    @Test("D4: a post does not leave directly behind waiting requests, or if its answer is awaited")
    func order() throws {
        let line = try Line()
        let key = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
        #expect(try line.stage.outbox.append(.register(key)))
        #expect(try line.post())
        #expect(line.take() == 0)
        line.stage.session.pump()
        #expect(line.stage.bus.connection.takeSent() == ["AddObserver?", "Post"])
        #expect(try line.post { _ in })
        #expect(line.take() == 0)
        line.stage.session.pump()
        #expect(try !line.post())
        #expect(line.take() > 0)
    }

    @Test("E3: after a change of the service or the end of the bus, posts wait for the session")
    func changes() throws {
        let line = try Line()
        line.stage.changeToSilentService()
        #expect(try line.post())
        #expect(line.take() == 0)
        let other = try Line()
        other.stage.bus.connection.onDisconnect?()
        #expect(try other.post())
        #expect(other.take() == 0)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonService

/// Callers whose process has files of its own, which have to be asked who it is and may not answer (E4).
@Suite("E4: callers whose files do not respond", .limited)
struct CallersTests {
    /// Holds a thread until it is told to go on.
    private final class Obstacle: Sendable {
        private let semaphore = DispatchSemaphore(value: 0)

        func wait() {
            semaphore.wait()
            semaphore.signal()
        }

        func end() { semaphore.signal() }
    }

    private static func sandbox(of client: StageClient, _ stage: ServiceStage) -> String? {
        stage.service.center?.posterStatuses(most: 100) { $0 == client.name }.first?.identity.sandbox
    }

    /// An observer, and an application whose files do not answer before they are told to.
    private final class Scene {
        let stage: ServiceStage
        let obstacle = Obstacle()
        let observer: StageClient
        let slow: StageClient

        init() throws {
            stage = try ServiceStage()
            observer = stage.join()
            slow = stage.join(
                .init(confinement: .sandbox("org.example.Slow"), obstacle: { [obstacle] in obstacle.wait() }))
            try observer.observe("org.example.Slow.Ding")
        }

        deinit { obstacle.end() }
    }

    @Test("Calls of a caller wait until its files respond, and calls of other callers do not wait")
    func others() throws {
        let scene = try Scene()
        let (stage, observer, slow) = (scene.stage, scene.observer, scene.slow)
        let posts = try (1...2).map {
            slow.send(try PostCall(name: "org.example.Slow.Ding", object: "slow \($0)").message())
        }
        let other = stage.join()
        #expect(try other.post("org.example.Slow.Ding", "other") == 1)
        #expect(slow.answer(to: posts[0]) == nil)
        #expect(observer.objects == ["other"])
        scene.obstacle.end()
        try settle(stage) { slow.answer(to: posts[1]) != nil }
        #expect(observer.objects == ["other", "slow 1", "slow 2"])
        #expect(Self.sandbox(of: slow, stage) == "org.example.Slow")
    }

    @Test("A caller whose files do not respond is served unidentified after a second, and identified later")
    func later() throws {
        let scene = try Scene()
        let (stage, observer, slow) = (scene.stage, scene.observer, scene.slow)
        let post = slow.send(try PostCall(name: "org.example.Slow.Ding", object: "1").message())
        stage.pass(milliseconds: 990)
        #expect(slow.answer(to: post) == nil)
        stage.pass(milliseconds: 20)
        #expect(slow.answer(to: post) != nil)
        // Nothing is asked meanwhile, and nothing waits.
        #expect(try slow.post("org.example.Slow.Ding", "2") == 1)
        #expect(observer.objects == ["1", "2"])
        #expect(Self.sandbox(of: slow, stage) == nil)
        scene.obstacle.end()
        try settle(stage) {
            slow.send(Self.ping)
            return Self.sandbox(of: slow, stage) == "org.example.Slow"
        }
    }

    @Test("A caller whose files do not respond is served unidentified as soon as too many of its bytes wait")
    func much() throws {
        let scene = try Scene()
        let (stage, observer, slow) = (scene.stage, scene.observer, scene.slow)
        let large = String(repeating: "x", count: 100_000)
        for number in 1...2 {
            slow.send(try PostCall(name: "org.example.Slow.Ding", object: "\(number)", text: large).message())
        }
        stage.settle()
        #expect(observer.objects.isEmpty)
        for number in 3...4 {
            slow.send(try PostCall(name: "org.example.Slow.Ding", object: "\(number)", text: large).message())
        }
        stage.settle()
        #expect(observer.objects == ["1", "2", "3", "4"])
    }

    @Test("E5: waiting calls of an unidentified caller survive a disconnection of the service")
    func disconnected() throws {
        let scene = try Scene()
        let (stage, observer, slow) = (scene.stage, scene.observer, scene.slow)
        for number in 1...3 {
            slow.send(try PostCall(name: "org.example.Slow.Ding", object: "\(number)").message())
        }
        stage.settle()
        #expect(observer.objects.isEmpty)
        try stage.disconnect()
        scene.obstacle.end()
        try settle(stage) { observer.objects.count >= 3 }
        #expect(observer.objects == ["1", "2", "3"])
    }

    @Test("Waiting calls of an unidentified caller are served before its departure, and no state remains")
    func leaves() throws {
        let scene = try Scene()
        let (stage, observer, slow) = (scene.stage, scene.observer, scene.slow)
        slow.send(AddObserver(name: "org.example.Slow.Dong", object: "").message())
        slow.send(try PostCall(name: "org.example.Slow.Ding", object: "1").message())
        stage.settle()
        stage.leave(slow)
        stage.settle()
        #expect(observer.objects.isEmpty)
        scene.obstacle.end()
        try settle(stage) { observer.objects == ["1"] }
        stage.pass(milliseconds: 5000)
        #expect(stage.service.center?.clientStatuses.map(\.name) == [observer.name])
    }

    private static var ping: Message {
        Message.methodCall(to: Wire.busName, path: Wire.path, interface: "org.freedesktop.DBus.Peer", member: "Ping")
    }

    /// A thread of its own finds it out, in the time of the machine.
    private func settle(_ stage: ServiceStage, until isDone: () -> Bool) throws {
        try eventually("it is found out", every: .milliseconds(1)) {
            stage.turn()
            return isDone()
        }
        stage.settle()
    }
}

extension StageClient {
    fileprivate var objects: [String] { notifications.map(\.object) }
}

extension PostCall {
    /// With a text in its userInfo.
    fileprivate init(name: String, object: String, text: String) throws {
        try self.init(name: name, object: object, userInfo: ["text": .string(text)])
    }
}

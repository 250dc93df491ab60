// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonService

@Suite("E4: many unidentified callers", .limited)
struct ManyCallersTests {
    private final class Scene {
        let bus = QuietBus()
        let callers: Callers
        private(set) var handled: [String] = []
        private(set) var told: [UniqueName] = []
        var onHandled: (() -> Void)?

        init() {
            callers = Callers(bus: bus, table: NoProcesses(), lookups: ProcessLookups(on: bus.context))
            callers.onKnown = { [unowned self] name, _ in told.append(name) }
            callers.handle = { [unowned self] message in
                note(message)
                onHandled?()
            }
        }

        /// A call of a connection arrives. Returns whether it is handled at once.
        @discardableResult
        func call(_ caller: Int) -> Bool {
            let name = UniqueName(unchecked: ":1.\(caller)")
            return arrive(Wire.methodCall("Call").carried(from: AnyBusName(name), serial: 1))
        }

        /// A connection has left.
        @discardableResult
        func leave(_ caller: Int) -> Bool {
            arrive(OwnerChange.departure(of: UniqueName(unchecked: ":1.\(caller)")))
        }

        private func arrive(_ message: Message) -> Bool {
            let isAdmitted = callers.admit(message)
            if isAdmitted { note(message) }
            return isAdmitted
        }

        private func note(_ message: Message) {
            handled.append(message.sender.map { "\($0)" } ?? "\(OwnerChange(message)?.departed?.rawValue ?? "?") left")
        }

        /// The bus tells so many who they are, in its order.
        func answer(_ count: Int = .max) {
            var left = count
            while left > 0, let question = bus.next("GetConnectionCredentials") {
                let reply = Wire.methodCall("Reply")
                var writer = MessageWriter(reply)
                writer.array(of: "{sv}") { writer in
                    writer.dictEntry { writer in
                        writer.append("ProcessID")
                        writer.variant(of: "u") { $0.append(UInt32(7)) }
                    }
                }
                question.completion?(.success(reply))
                left -= 1
            }
            while bus.context.iterate(mayBlock: false) {}
        }
    }

    @Test("D4: messages behind those of a few unidentified callers are handled in the bus's order")
    func few() {
        let scene = Scene()
        scene.call(1)
        scene.answer()
        #expect(scene.handled == [":1.1"] && scene.call(1))
        for caller in 2...4 { scene.call(caller) }
        #expect(!scene.call(1) && !scene.leave(1))
        scene.answer(2)
        #expect(scene.handled.dropFirst(2) == [":1.2", ":1.3"])
        scene.answer()
        #expect(scene.handled.dropFirst(4) == [":1.4", ":1.1", ":1.1 left"])
        #expect(!scene.callers.isAnythingWaiting)
    }

    @Test("D4, M6: messages behind a thousand calls of one unidentified caller are handled in the bus's order")
    func muchOfFew() {
        let scene = Scene()
        scene.call(1)
        scene.answer()
        for _ in 0..<1000 { scene.call(2) }
        #expect(!scene.call(1), "it may be a word of one that knows what the other has sent")
        scene.answer()
        #expect(scene.handled == [":1.1"] + Array(repeating: ":1.2", count: 1000) + [":1.1"])
    }

    @Test(
        "E4: an identified caller does not wait behind many unidentified callers, and its own messages keep their order"
    )
    func many() {
        let scene = Scene()
        for caller in [1, 2] { scene.call(caller) }
        scene.answer()
        for caller in 3...20 { scene.call(caller) }
        #expect(!scene.call(2))
        for caller in 21...60 { scene.call(caller) }
        let before = scene.handled.count
        #expect(scene.call(1) && scene.call(1))
        #expect(!scene.call(2), "it would pass its own call")
        #expect(!scene.call(30) && !scene.leave(30) && scene.leave(1))
        #expect(scene.handled.dropFirst(before) == [":1.1", ":1.1", ":1.1 left"])
        scene.answer()
        let rest = scene.handled.dropFirst(before + 3)
        let expected =
            (3...20).map { ":1.\($0)" } + [":1.2"] + (21...60).map { ":1.\($0)" } + [":1.2", ":1.30", ":1.30 left"]
        #expect(Array(rest) == expected)
        #expect(!scene.callers.isAnythingWaiting && scene.call(2))
    }

    @Test("E4: a caller that is forgotten while its calls wait is identified again, and later callers are served")
    func forgotten() {
        let scene = Scene()
        for _ in 0..<40 { scene.call(1) }
        scene.call(2)
        scene.onHandled = { [unowned scene] in if scene.handled.count <= 2 { scene.callers.forget(":1.1") } }
        scene.answer()
        #expect(scene.handled == Array(repeating: ":1.1", count: 40) + [":1.2"])
        #expect(scene.told == [":1.1", ":1.1", ":1.1", ":1.2"])
        #expect(scene.callers[":1.1"] != nil && !scene.callers.isAnythingWaiting)
        scene.callers.forget(":1.1")
        #expect(scene.callers[":1.1"] == nil && scene.callers.identity(of: ":1.1") != nil)
    }

    @Test("D8: a caller that is forgotten while only its departure waits is not added to the table again")
    func forgottenBehindItsEnd() {
        let scene = Scene()
        scene.call(1)
        scene.answer()
        for caller in 2...4 { scene.call(caller) }
        #expect(!scene.leave(1))
        scene.callers.forget(":1.1")
        scene.answer()
        #expect(scene.handled == [":1.1", ":1.2", ":1.3", ":1.4", ":1.1 left"])
        #expect(scene.callers[":1.1"] == nil && scene.callers.identity(of: ":1.1") != nil)
    }

    @Test("E4: the size of the waiting messages of unidentified callers is reported until they are handled")
    func kept() {
        let scene = Scene()
        var kept = 0
        scene.callers.onKeptBytesChanged = { kept = $0 }
        for caller in 1...40 { scene.call(caller) }
        let size = kept / 40
        #expect(size > 50 && kept == size * 40)
        scene.answer(10)
        #expect(kept == size * 30)
        scene.answer()
        #expect(kept == 0)
    }
}

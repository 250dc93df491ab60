// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonThreadDelivery
import Testing

@Suite("T1: order across several modes", .limited)
struct ModeLanesTests {
    private let context = MainContext()
    private var modes: ContextModes { ContextModes(of: context) }

    @Test("The next item is the first that the mode allows, and the other items keep their positions")
    func order() {
        var lanes = ModeLanes<Int>()
        let own = ModeSet.of(["own"])
        let all: [ModeSet] = [.ofDefault, own, .ofCommon, own, .ofDefault]
        for (number, set) in all.enumerated() { lanes.append(number, in: set) }
        #expect(lanes.laneCount == 3)
        #expect(lanes.popFirst(in: modes) == 0)
        context.pushMode("own")
        #expect(lanes.popFirst(in: modes) == 1)
        context.popMode("own")
        #expect(lanes.popFirst(in: modes) == 2)
        #expect(lanes.popFirst(in: modes) == 4)
        #expect(lanes.popFirst(in: modes) == nil && !lanes.hasAllowed(in: modes))
        #expect(lanes.popOldest() == 3)
        #expect(lanes.isEmpty)
    }

    @Test("A limit excludes the items appended behind it")
    func limit() {
        var lanes = ModeLanes<Int>()
        lanes.append(1, in: .ofDefault)
        let limit = lanes.nextNumber
        lanes.append(2, in: .ofDefault)
        #expect(lanes.popFirst(in: modes, before: limit) == 1)
        #expect(lanes.popFirst(in: modes, before: limit) == nil && !lanes.hasAllowed(in: modes, before: limit))
        let isLeft = lanes.hasAllowed(in: modes)
        #expect(isLeft)
    }

    @Test("Sets of modes without waiting items leave no lanes behind")
    func unusedModes() {
        var lanes = ModeLanes<Int>()
        for number in 0..<1_000 {
            lanes.append(number, in: .of([RunLoopMode("mode \(number)")]))
            #expect(lanes.popOldest() == number)
        }
        #expect(lanes.laneCount <= 1)
        for number in 0..<1_000 { lanes.append(number, in: .of([RunLoopMode("mode \(number)")])) }
        lanes.removeAll { $0 != 500 }
        #expect(lanes.count == 1 && lanes.laneCount == 1)
        #expect(lanes.removeAll() == [500] && lanes.laneCount == 0)
    }

    @Test("Equal sets of modes are one object while the object is held")
    func modeSets() {
        let set = ModeSet.of(["a", "b"])
        #expect(ModeSet.of(["b", "a"]) === set)
        #expect(ModeSet.of([.common]) === ModeSet.ofCommon && ModeSet.of([.default]) === ModeSet.ofDefault)
        weak let watched = ModeSet.of(["nobody holds this"])
        #expect(watched == nil)
        withExtendedLifetime(set) {}
    }
}

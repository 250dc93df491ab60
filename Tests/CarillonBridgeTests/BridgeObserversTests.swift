// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("The bridge's observers of the session during replays of retained values", .limited)
struct BridgeObserversTests {
    private func kind(_ name: String) -> RegistrationKey {
        RegistrationKey(name: ExactText(name), object: nil, options: ObserverOptions())
    }

    private func begun() -> (BridgeObservers, [RegistrationKey]) {
        var observers = BridgeObservers()
        let (ended, begun) = observers.want([kind("a"), kind("b")])
        #expect(ended == [])
        return (observers, begun)
    }

    @Test("A replay registers new observers, and the earlier ones end when the replay has arrived")
    func replay() {
        var (observers, first) = begun()
        let replay = observers.replay()
        #expect(replay.ended == [] && Set(replay.begun.map(\.name)) == Set(first.map(\.name)))
        #expect(Set(replay.begun).isDisjoint(with: first))
        let ended = observers.caughtUp(behind: replay.lastEarlierNumber)
        #expect(Set(ended) == Set(first))
        let again = observers.caughtUp(behind: replay.lastEarlierNumber)
        #expect(again == [])
    }

    @Test("After an interrupted replay the earlier observers remain until the next replay has arrived")
    func serviceEnds() {
        var (observers, first) = begun()
        let lost = observers.replay()
        let next = observers.replay()
        #expect(next.ended == [], "what the next service sends may be for the earlier ones alone")
        let ended = observers.caughtUp(behind: next.lastEarlierNumber)
        #expect(Set(ended) == Set(first + lost.begun))
        #expect(Set(ended).isDisjoint(with: next.begun))
    }

    @Test("The end of the first of two overlapping replays does not end the observers of the second")
    func overlap() {
        var (observers, first) = begun()
        let (one, two) = (observers.replay(), observers.replay())
        let ended = observers.caughtUp(behind: one.lastEarlierNumber)
        #expect(Set(ended) == Set(first))
        let others = observers.caughtUp(behind: two.lastEarlierNumber)
        #expect(Set(others) == Set(one.begun))
    }

    @Test("The number of earlier observers of one kind is limited, however often a service ends")
    func bound() {
        var (observers, _) = begun()
        var known = Set(observers.replay().begun)
        for _ in 0..<100 {
            let replay = observers.replay()
            known.formUnion(replay.begun)
            known.subtract(replay.ended)
        }
        let left = observers.removeAll()
        #expect(left.count == 2 * (1 + BridgeObservers.maxEarlier))
        #expect(known.isSubset(of: left))
    }

    @Test("Observers of a kind that is no longer exported end together with the earlier ones")
    func wanted() {
        var (observers, first) = begun()
        let replay = observers.replay()
        let (ended, begun) = observers.want([kind("b"), kind("c")])
        #expect(Set(ended) == Set((first + replay.begun).filter { $0.name == ExactText("a") }))
        #expect(begun.map(\.name) == [ExactText("c")])
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("The bridge's observers of the session, over replays of its values", .limited)
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

    @Test("A replay has new ones, and the earlier ones go when all has arrived")
    func replay() {
        var (observers, first) = begun()
        let replay = observers.replay()
        #expect(replay.ended == [] && Set(replay.begun.map(\.name)) == Set(first.map(\.name)))
        #expect(Set(replay.begun).isDisjoint(with: first))
        let ended = observers.caughtUp(behind: replay.mark)
        #expect(Set(ended) == Set(first))
        let again = observers.caughtUp(behind: replay.mark)
        #expect(again == [])
    }

    @Test("Where the service ends meanwhile the earlier ones stay until the next replay is over")
    func serviceEnds() {
        var (observers, first) = begun()
        let lost = observers.replay()
        let next = observers.replay()
        #expect(next.ended == [], "what the next service sends may be for the earlier ones alone")
        let ended = observers.caughtUp(behind: next.mark)
        #expect(Set(ended) == Set(first + lost.begun))
        #expect(Set(ended).isDisjoint(with: next.begun))
    }

    @Test("Of two replays that overlap the first does not end what the second is for")
    func overlap() {
        var (observers, first) = begun()
        let (one, two) = (observers.replay(), observers.replay())
        let ended = observers.caughtUp(behind: one.mark)
        #expect(Set(ended) == Set(first))
        let others = observers.caughtUp(behind: two.mark)
        #expect(Set(others) == Set(one.begun))
    }

    @Test("However often a service ends, few of a kind wait for their end")
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

    @Test("A kind that is exported no more ends with its earlier observers")
    func wanted() {
        var (observers, first) = begun()
        let replay = observers.replay()
        let (ended, begun) = observers.want([kind("b"), kind("c")])
        #expect(Set(ended) == Set((first + replay.begun).filter { $0.name == ExactText("a") }))
        #expect(begun.map(\.name) == [ExactText("c")])
    }
}

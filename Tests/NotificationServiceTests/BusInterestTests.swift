// SPDX-License-Identifier: Apache-2.0
import DBus
import Glibc
import NotificationCore
import NotificationWire
import TestSupport
import Testing

/// What others want (G4), on real buses.
@Suite("G4: what others want, on the bus", .serialized, .timeLimit(.minutes(20)))
struct BusInterestTests {
    @Test("Asked, told of a change, and asked again, across a SIGKILL of the service", arguments: BusKind.available)
    func followed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (bridge, observer) = (try Client(on: bus), try Client(on: bus))
        try observer.addObserver("Dong")
        #expect(try bridge.call(FollowInterest()) == DistributedCenter.Wanted(names: ["Dong"], any: false))
        try observer.addObserver("Ding")
        try observer.addObserver("")
        try bridge.run("word: \(first.transcript)") { bridge.interestChanges == 1 }
        #expect(try bridge.call(FollowInterest(most: 1)) == DistributedCenter.Wanted(names: ["Ding"], any: true))
        #expect(try bridge.call(FollowInterest(after: "Ding", most: 9)).names == ["Dong"])

        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        try bridge.run("word: \(second.transcript)") { bridge.interestChanges == 2 }
        #expect(try bridge.call(FollowInterest()).names == ["Ding", "Dong"])
        #expect(try observer.call(RemoveObservers(name: "Ding", object: "")) == 1)
        try bridge.run("word: \(second.transcript)") { bridge.interestChanges == 3 }
        #expect(try bridge.call(FollowInterest()).names == ["Dong"])
    }
}

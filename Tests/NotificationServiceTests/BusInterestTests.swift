// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Glibc
import Testing

/// What others want (G4), on real buses.
@Suite("G4: FollowInterest and FollowValues, on the bus", .serialized, .limited)
struct BusInterestTests {
    @Test(
        "FollowInterest lists the observed names, and InterestChanged reports changes, also after a SIGKILL",
        arguments: BusKind.available)
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

    @Test(
        "G5: FollowValues lists the values, and ValuesRemoved reports removals, also after a SIGKILL",
        arguments: BusKind.available)
    func values(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (bridge, poster) = (try Client(on: bus), try Client(on: bus))
        func post(_ name: String, by client: Client, from host: String? = nil, whileConnected: Bool = false) throws {
            var options = PostOptions()
            options.retention = Retention(whileConnected: whileConnected)
            options.origin = try OutsideOrigin(host: host, user: nil)
            try client.call(try PostCall(name: name, object: "x", options: options))
        }
        func listed() throws -> [String] { try bridge.call(FollowValues()).map { $0.name + ($0.host ?? "") } }
        for name in ["A", "B"] { try post(name, by: poster) }
        try post("A", by: bridge, from: "alpha")
        #expect(try listed() == ["A", "B", "Aalpha"])
        #expect(try bridge.call(FollowValues(after: 0, most: 1)).count == 1)
        #expect(try bridge.call(RemoveRetainedFrom(host: "alpha", user: "", name: "A", object: "x")) == 1)
        try post("B", by: poster)
        #expect(try poster.call(RemoveRetained(name: "A", object: "")) == 1)
        try bridge.run("word: \(first.transcript)") { bridge.valueRemovals == 1 }
        #expect(try listed() == ["B"])
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        try bridge.run("word: \(second.transcript)") { bridge.valueRemovals == 2 }
        #expect(try listed() == ["B"])
        do {
            let brief = try Client(on: bus)
            try post("C", by: brief, whileConnected: true)
            #expect(try listed() == ["B", "C"])
        }
        try bridge.run("word: \(second.transcript)") { bridge.valueRemovals == 3 }
        #expect(try listed() == ["B"])
    }
}

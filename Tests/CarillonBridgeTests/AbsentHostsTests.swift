// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("R8: values of hosts that are absent for long", .limited)
struct AbsentHostsTests {
    private final class Lab {
        let clock = StageClock()
        let context: MainContext
        private(set) var hosts: AbsentHosts!
        private(set) var ended: [String] = []
        /// By how much the time of the day is another one.
        var shift: Int64 = 1_700_000_000_000_000

        init(after seconds: UInt32 = 1_000) {
            context = MainContext(clock: clock)
            hosts = AbsentHosts(after: seconds, context: context, time: { [unowned self] in now }) { [unowned self] in
                ended += $0.map(\.text)
            }
        }

        var now: Int64 { clock.microseconds + shift }
        func pass(seconds: Int64) { clock.pass(seconds: seconds, on: context) }
    }

    private let desk = Origin(host: "desk", user: "u")!
    private let shed = Origin(host: "shed", user: "u")!

    @Test("Values of an absent host end once after the maximum absence, and are requested when the host returns")
    func ends() {
        let lab = Lab()
        lab.hosts.connected()
        let first = [lab.hosts.follow(desk, isOnline: true), lab.hosts.follow(shed, isOnline: false)]
        #expect(first == [false, false])
        lab.pass(seconds: 500)
        _ = lab.hosts.follow(desk, isOnline: false)
        lab.pass(seconds: 499)
        #expect(lab.ended == [] && !lab.hosts.isOver(shed))
        lab.pass(seconds: 2)
        #expect(lab.ended == ["shed/u"] && lab.hosts.isOver(shed) && !lab.hosts.isOver(desk))
        lab.pass(seconds: 300)
        let isBack = [lab.hosts.follow(desk, isOnline: true), lab.hosts.follow(shed, isOnline: true)]
        #expect(isBack == [false, true] && !lab.hosts.isOver(shed))
        lab.pass(seconds: 5_000)
        #expect(lab.ended == ["shed/u"] && lab.hosts.saved().isEmpty && !lab.clock.isAwaited)
    }

    @Test("No values end without a connection, or before the broker has had time to show the hosts online")
    func connections() {
        let lab = Lab()
        lab.hosts.connected()
        _ = lab.hosts.follow(desk, isOnline: false)
        _ = lab.hosts.follow(shed, isOnline: false)
        lab.hosts.connectionEnded()
        lab.pass(seconds: 5_000)
        #expect(lab.ended == [])
        lab.hosts.connected()
        lab.pass(seconds: 90)
        #expect(lab.ended == [])
        _ = lab.hosts.follow(desk, isOnline: true)
        lab.pass(seconds: 10)
        #expect(lab.ended == ["shed/u"])
    }

    @Test("An absence continues across bridge processes, and ended values are ignored after a restart")
    func restored() {
        let lab = Lab()
        lab.hosts.restore([desk: lab.now - 2_000_000_000, shed: lab.now - 990_000_000])
        #expect(lab.hosts.isOver(desk) && !lab.hosts.isOver(shed))
        _ = lab.hosts.follow(shed, isOnline: false)
        lab.hosts.connected()
        lab.pass(seconds: 94)
        #expect(lab.ended == [])
        lab.pass(seconds: 2)
        #expect(lab.ended == ["desk/u", "shed/u"] && lab.hosts.saved().count == 2)
        // One of the future, as the time of the day was set since.
        let other = Lab()
        other.hosts.restore([desk: other.now + 50_000_000_000])
        other.hosts.connected()
        other.pass(seconds: 1_001)
        #expect(other.ended == ["desk/u"])
    }

    @Test("No values end by an absence before the machine knows the time of day")
    func unknownTime() {
        let lab = Lab()
        let shift = lab.shift
        let saved = [desk: lab.now - 900_000_000]
        lab.shift = 0
        lab.hosts.restore(saved)
        lab.hosts.connected()
        _ = lab.hosts.follow(shed, isOnline: false)
        lab.pass(seconds: 20)
        lab.shift = shift
        lab.pass(seconds: 90)
        #expect(lab.ended == ["desk/u"], "one that was not there for a thousand seconds")
        lab.pass(seconds: 800)
        #expect(lab.ended == ["desk/u"])
        lab.pass(seconds: 200)
        #expect(lab.ended == ["desk/u", "shed/u"])
    }

    @Test("Hosts that are online when the bridge ends are saved with that time")
    func present() {
        let lab = Lab()
        lab.hosts.connected()
        _ = lab.hosts.follow(desk, isOnline: false)
        let saved = lab.hosts.saved(present: [shed, desk])
        #expect(saved[shed] == lab.now && saved[desk] == lab.now && lab.hosts.saved().count == 1)
    }

    @Test("A reloaded bridge does not take hosts that are online for absent ones")
    func reloaded() {
        let lab = Lab()
        lab.hosts.restore([desk: lab.now, shed: lab.now], unless: { $0 == desk })
        lab.hosts.connected()
        lab.pass(seconds: 5_000)
        #expect(lab.ended == ["shed/u"] && !lab.hosts.isOver(desk))
    }

    @Test("Values never end with the maximum absence 0")
    func never() {
        let lab = Lab(after: 0)
        lab.hosts.connected()
        lab.hosts.restore([shed: 0])
        _ = lab.hosts.follow(desk, isOnline: false)
        lab.pass(seconds: 10_000_000)
        #expect(lab.ended == [] && !lab.hosts.isOver(shed) && !lab.clock.isAwaited)
    }

    @Test("The limit of absent hosts keeps space for other machines when one machine has many users")
    func many() {
        let lab = Lab()
        for number in 0..<10_000 { _ = lab.hosts.follow(Origin(host: "greedy", user: "u\(number)")!, isOnline: false) }
        _ = lab.hosts.follow(desk, isOnline: false)
        #expect(lab.hosts.saved()[desk] != nil && lab.hosts.saved().count <= HostTable.maxHosts)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonTestLimits
import Testing

@testable import CarillonClient

/// Whose signals a client believes while the service becomes another.
@Suite("Owners of the service's name", .limited)
struct ServiceOwnersTests {
    private let names = (1...40).map { UniqueName(rawValue: ":1.\($0)")! }

    @Test("E6: the owner, and those before it until one has answered; nobody else")
    func belief() {
        var owners = ServiceOwners()
        #expect(!owners.trusts(names[0]))
        owners.answered(names[0])
        #expect(owners.present == names[0])
        for owner in [nil, names[1], nil, names[2]] { _ = owners.change(to: owner) }
        for name in names[0...2] { #expect(owners.trusts(name)) }
        #expect(!owners.trusts(names[3]))
        owners.answered(names[2])
        for name in names[0...1] { #expect(!owners.trusts(name)) }
        #expect(owners.trusts(names[2]))
        owners.reset()
        #expect(owners.present == nil && !owners.trusts(names[2]))
    }

    @Test("The same owner again is no change; one that has it again is not also a former one")
    func sameAgain() {
        var owners = ServiceOwners()
        let changes = [names[0], names[0], names[1], names[0]].map { owners.change(to: $0) }
        #expect(changes == [true, false, true, true])
        owners.markForeign()
        _ = owners.change(to: nil)
        #expect(!owners.trusts(names[0]), "it turned out to be another program")
        #expect(owners.trusts(names[1]))
    }

    @Test("E1: whoever takes the name and gives it up without end does not make it grow; the latest count")
    func bound() {
        var owners = ServiceOwners()
        for name in names { _ = owners.change(to: name) }
        #expect(owners.present == names.last)
        #expect(names.filter(owners.trusts) == names.suffix(17), "the present one and 16 before it")
    }
}

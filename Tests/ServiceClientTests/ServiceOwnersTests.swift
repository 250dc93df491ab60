// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonTestLimits
import Testing

@testable import CarillonClient

/// Whose signals a client believes while the service becomes another.
@Suite("Owners of the service's name", .limited)
struct ServiceOwnersTests {
    private let names = (1...40).map { UniqueName(rawValue: ":1.\($0)")! }

    @Test("E6: only the present owner is trusted, and former owners until the present one has answered")
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

    @Test("A repeated owner is no change, and a returning owner does not also count as a former one")
    func sameAgain() {
        var owners = ServiceOwners()
        let changes = [names[0], names[0], names[1], names[0]].map { owners.change(to: $0) }
        #expect(changes == [true, false, true, true])
        owners.markForeign()
        _ = owners.change(to: nil)
        #expect(!owners.trusts(names[0]), "it turned out to be another program")
        #expect(owners.trusts(names[1]))
    }

    @Test("E1: only the latest 16 former owners are remembered, for any number of changes")
    func bound() {
        var owners = ServiceOwners()
        for name in names { _ = owners.change(to: name) }
        #expect(owners.present == names.last)
        #expect(names.filter(owners.trusts) == names.suffix(17), "the present one and 16 before it")
    }
}

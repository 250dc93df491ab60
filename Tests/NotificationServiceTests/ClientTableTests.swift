// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonService

@Suite("Table indexed by clients' numbers", .limited)
struct ClientTableTests {
    @Test("A number that another client had before yields no entry of that client")
    func numbers() {
        var table = ClientTable<Int>()
        let (one, other): (ClientName, ClientName) = (":1.1", ":1.2")
        #expect(table[one, 0] == nil && table[one, 1000] == nil)
        table[one, 3] = 33
        table[other, 5] = 55
        #expect(table[one, 3] == 33 && table[other, 5] == 55)
        #expect(table[other, 3] == nil && table[one, 5] == nil && table[one, 4] == nil)
        table[other, 3] = 23
        #expect(table[other, 3] == 23 && table[one, 3] == nil)
        table[other, 3] = nil
        #expect(table[other, 3] == nil && table[other, 5] == 55)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@Suite("E1: limits", .limited)
struct LimitsTests {
    @Test("E1: the table of limits has one row per key, with a valid name, a default, a hard maximum and a reason")
    func table() {
        #expect(Limits.table.map(\.key) == Limits.Key.allCases)
        #expect(Set(Limits.table.map(\.key.rawValue)).count == Limits.table.count)
        for row in Limits.table {
            #expect(row.standard > 0)
            #expect(row.hardMaximum >= row.standard, "\(row.key)")
            #expect(!row.reason.isEmpty, "\(row.key)")
            #expect(row.key.rawValue.wholeMatch(of: /[a-z]+(-[a-z]+)*/) != nil, "\(row.key)")
            #expect(Limits.row(row.key).standard == row.standard)
        }
    }

    @Test(
        "E1: each limit starts at its default, and setting one limit changes no other", arguments: Limits.Key.allCases)
    func values(key: Limits.Key) {
        var limits = Limits()
        for other in Limits.Key.allCases { #expect(limits[other] == Limits.row(other).standard) }
        limits[key] = 7
        for other in Limits.Key.allCases {
            #expect(limits[other] == (other == key ? 7 : Limits.row(other).standard), "\(other)")
        }
    }

    @Test("E1: every limit has the expected default and hard maximum")
    func standardValues() {
        let rows = Limits.table.map { "\($0.key.rawValue) \($0.standard) \($0.hardMaximum)" }
        #expect(
            rows == [
                "clients 4096 65536", "observers 262144 4194304", "observers-per-client 16384 1048576",
                "observer-bytes 134217728 4294967296", "observer-bytes-per-client 16777216 1073741824",
                "queued-per-client 131072 1048576", "queued-bytes-per-client 67108864 1073741824",
                "queued-bytes 134217728 4294967296", "queued-posts-per-client 131072 1048576",
                "queued-post-bytes-per-client 67108864 1073741824", "queued-post-bytes 134217728 4294967296",
                "answer-bytes-per-client 8388608 1073741824", "answer-bytes 33554432 4294967296",
                "in-flight-bytes 33554432 1073741824", "waiting-call-bytes 134217728 4294967296",
                "retained 32768 262144", "retained-per-client 4096 65536", "retained-bytes 33554432 268435456",
                "retained-bytes-per-client 4194304 67108864",
                "state-bytes 67108864 1073741824", "memory-bytes 268435456 17179869184", "name-length 1024 65536",
                "object-length 4096 65536",
                "user-info-bytes 1048576 16777216", "user-info-depth 16 20", "posts-per-call 16384 65536",
                "channels-per-process 16 1024",
            ])
    }

    @Test("E1: a limit set above its hard maximum is reduced to the hard maximum", arguments: Limits.table.map(\.key))
    func hardMaximum(key: Limits.Key) {
        var limits = Limits()
        let maximum = Limits.row(key).hardMaximum
        limits[key] = maximum
        #expect(limits[key] == maximum)
        limits[key] = maximum + 1
        #expect(limits[key] == maximum)
        limits[key] = .max
        #expect(limits[key] == maximum)
        limits[key] = 0
        #expect(limits[key] == 0)
    }

    @Test(
        "E1: a value at the limit is accepted, and the error beyond it names the limit and its value",
        arguments: Limits.Key.allCases)
    func check(key: Limits.Key) throws {
        var limits = Limits()
        limits[key] = 10
        try limits.check(key, 0)
        try limits.check(key, 10)
        #expect(throws: CenterError.limitExceeded(key, value: 10)) { try limits.check(key, 11) }
        #expect(CenterError.limitExceeded(key, value: 10).description == "over the limit \(key.rawValue) = 10")
    }
}

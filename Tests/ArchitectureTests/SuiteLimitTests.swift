// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// A test that does not end fails, whatever it does meanwhile.
@Suite("Limits of suites", .timeLimit(.minutes(20)))
struct SuiteLimitTests {
    /// Their tests wait for nothing, so `.timeLimit` can't interrupt them, and stay on one thread, as `.watched` needs.
    private static let synchronous: Set<String> = [
        "NotificationCoreTests", "NotificationWireTests", "ServiceClientTests", "CollectionsTests", "JSONTests",
    ]

    @Test("Every suite has a limit, and that of a synchronous one can end it")
    func everySuite() throws {
        let root = Executables.packageRoot + "/Tests"
        let files = try #require(FileManager.default.subpaths(atPath: root)).filter { $0.hasSuffix("Tests.swift") }
        var count = 0
        for file in files.sorted() {
            let text = try String(contentsOfFile: "\(root)/\(file)", encoding: .utf8)
            let isSynchronous = Self.synchronous.contains(file.split(separator: "/").first.map(String.init) ?? "")
            for suite in text.matches(of: /(?m)^@Suite[^{]*/).map(\.0) {
                count += 1
                // What is in the file of the limit itself tests that.
                if isSynchronous, !file.hasSuffix("WatchdogTests.swift") {
                    #expect(suite.contains(".watched"), "\(file): \(suite)")
                } else {
                    #expect(suite.contains(".timeLimit("), "\(file): \(suite)")
                }
            }
            let tests = text.matches(of: /(?m)^    @Test/).count
            #expect(tests == 0 || text.contains(/(?m)^(?:@Suite|extension\ )/), "\(file) has tests without a suite")
        }
        #expect(count > 100)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// A test that does not end fails, whatever it does meanwhile.
@Suite("Time limits of suites", .limited)
struct SuiteLimitTests {
    @Test("Every suite has the .limited trait")
    func everySuite() throws {
        let root = Executables.packageRoot + "/Tests"
        let files = try #require(FileManager.default.subpaths(atPath: root)).filter { $0.hasSuffix("Tests.swift") }
        var count = 0
        for file in files.sorted() {
            let text = try String(contentsOfFile: "\(root)/\(file)", encoding: .utf8)
            for suite in text.matches(of: /(?m)^@Suite[^{]*/).map(\.0) {
                count += 1
                #expect(suite.contains(".limited"), "\(file): \(suite)")
                #expect(!suite.contains(".timeLimit("), "\(file): \(suite): it counts what others take")
            }
            let tests = text.matches(of: /(?m)^    @Test/).count
            #expect(tests == 0 || text.contains(/(?m)^(?:@Suite|extension\ )/), "\(file) has tests without a suite")
        }
        #expect(count > 100)
    }
}

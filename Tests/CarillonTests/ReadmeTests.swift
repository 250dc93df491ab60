import Foundation
import TestSupport
import Testing

@Suite("The example of README.md", .timeLimit(.minutes(20)))
struct ReadmeTests {
    @Test("It is the program in Examples, which hears its own post and prints it")
    func example() async throws {
        let root = URL(fileURLWithPath: Executables.packageRoot)
        let source = try String(
            contentsOf: root.appendingPathComponent("Examples/swift/Saved/main.swift"), encoding: .utf8)
        let readme = try String(contentsOf: root.appendingPathComponent("README.md"), encoding: .utf8)
        #expect(readme.contains("```swift\n\(source)```"))

        let bus = try PrivateBus(.dbusDaemon, activations: [.service()])
        let result = try await onOwnThread {
            try Command.run(
                try Executables.path(of: "example-saved"), [], environment: bus.environment)
        }
        #expect(result.exitCode == 0 && result.standardOutput == "saved: report.txt 4711\n", "\(result)")
    }
}

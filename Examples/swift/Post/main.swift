// SPDX-License-Identifier: Apache-2.0
//
// carillon-example-post [OBJECT [BYTES]]: posts that a file was saved, as a value that stays for those who come later.
import Carillon
import Foundation

let arguments = CommandLine.arguments.dropFirst()
guard let bytes = Int(arguments.dropFirst().first ?? "4711") else {
    fail("not a number of bytes: \(arguments.joined(separator: " "))")
}
do {
    // Waits until the service has accepted it. There is one of the same name that returns at once, with no outcome.
    let receivers: Int = try await DistributedNotificationCenter.default().postAndWait(
        named: .init("com.example.Saved"), object: arguments.first ?? "report.txt",
        userInfo: ["bytes": bytes, "clean": true, "title": "Annual report — 2026"], retention: .untilReplaced)
    print("reached \(receivers)")
} catch .disconnected, .serviceUnavailable {
    exit(1)  // The library's log says so.
} catch {
    fail("\(error)")
}

func fail(_ message: String) -> Never {
    FileHandle.standardError.write(Data("post: \(message)\n".utf8))
    exit(1)
}

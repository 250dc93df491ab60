// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What the kernel says about the memory of a process.
public enum ProcessMemory {
    /// The resident set of a process in bytes (`VmRSS`).
    ///
    /// - Throws: when there is no such process.
    public static func residentBytes(of pid: pid_t) throws -> Int {
        try field("VmRSS", of: pid)
    }

    /// The part of the resident set that is private memory and not files (`RssAnon`): heap and stacks, without the
    /// pages of shared libraries that come and go.
    ///
    /// - Throws: when there is no such process.
    public static func anonymousBytes(of pid: pid_t) throws -> Int {
        try field("RssAnon", of: pid)
    }

    private static func field(_ name: String, of pid: pid_t) throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)
        for line in status.split(separator: "\n") where line.hasPrefix("\(name):") {
            let words = line.split(whereSeparator: { $0 == " " || $0 == "\t" })
            if words.count == 3, words[2] == "kB", let kibibytes = Int(words[1]) {
                return kibibytes * 1024
            }
        }
        throw NotInTime("/proc/\(pid)/status has no \(name): the process is ending")
    }
}

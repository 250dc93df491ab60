// SPDX-License-Identifier: Apache-2.0

/// The lines that libmosquitto logs while it connects. ``LibraryHandle`` collects them, because libmosquitto's error
/// codes do not distinguish failures of TLS; the log contains OpenSSL's errors.
struct ConnectionLog {
    private var lines: [String] = []

    /// Adds a line, if it is one of the first eight.
    mutating func append(_ line: String) {
        // A connection attempt logs a few lines at most.
        if lines.count < 8 { lines.append(line) }
    }

    /// Returns the problem that libmosquitto found, as a text for people; nil for none.
    func problem(of settings: MQTTClient.Settings) -> String? {
        // `hasPrefix` is used because `contains` with a text would link the parser of regular expressions.
        if lines.contains(where: { $0.hasPrefix("Error: host name verification failed") }) {
            return "the certificate was issued for another host than \(settings.host)"
        }
        if let file = settings.tls?.authorityFile, lines.contains(where: { $0.hasPrefix("Error: Unable to load CA") }) {
            return "\(file) has no certificates"
        }
        var words: [String] = []
        for line in lines {
            let word = Self.words(of: line)
            if !words.contains(word) { words.append(word) }
        }
        if words.contains(where: { $0.hasPrefix("certificate verify failed") }) {
            let authority = settings.tls?.authorityFile.map { "in \($0)" } ?? "that the system trusts"
            return
                "certificate verify failed: the certificate of \(settings.host) is not signed by an authority \(authority), or is not valid now"
        }
        if words.contains(where: { Self.wordsForOtherProtocols.contains($0) }) {
            return "\(settings.host) does not speak TLS on port \(settings.port)"
        }
        return words.isEmpty ? nil : words.joined(separator: "; ")
    }

    /// The errors of OpenSSL for a peer that does not speak TLS. Version 3.2 changed the text, so both are listed.
    private static let wordsForOtherProtocols = [
        "wrong version number", "packet length too long", "record layer failure",
    ]

    /// Returns the description at the end of a line of OpenSSL, and other lines without their prefix.
    private static func words(of line: String) -> String {
        // OpenSSL Error[0]: error:0A000086:SSL routines::certificate verify failed
        if line.hasPrefix("OpenSSL Error") { return line.split(separator: ":").last.map(String.init) ?? line }
        return line.hasPrefix("Error: ") ? String(line.dropFirst(7)) : line
    }
}

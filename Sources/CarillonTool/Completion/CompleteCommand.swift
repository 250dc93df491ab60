// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// `carillon complete -- WORD ...`, for the scripts in `data/completions`: the completion of the last word, which is
/// unfinished.
///
/// The first line is the kind of the completions. `words` is followed by the words, one in a line, each with a tab and
/// a description if it has one. `files` lets the shell complete file names itself. Faulty command lines are not
/// reported, because the user is still typing.
enum CompleteCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        // Without the option parser, because the words are those of another command line.
        guard arguments.first == "--", let current = arguments.last, arguments.count > 1 else {
            throw UsageError("complete is for shells: complete -- WORD ...")
        }
        let line = CommandWords(before: arguments[1...].dropLast())
        switch line.wanted(for: current) {
        case .files: return Output.write("files") ? .done : .outputFailed
        case .words(let candidates, let prefix): return write(candidates, current, prefix)
        case .known(let kind, let prefix): return write(ServiceWords.find(kind), current, prefix)
        }
    }

    /// - Parameter prefix: the part of the word before the candidates.
    private static func write(_ candidates: [Candidate], _ current: String, _ prefix: String) -> ExitCode {
        var lines = ["words"]
        var seen: Set<String> = []
        for candidate in candidates {
            let word = prefix + candidate.word
            // Shells read candidates line by line, and users do not type names with such characters.
            guard word.utf8.starts(with: current.utf8), word.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }),
                seen.insert(word).inserted
            else { continue }
            let description = NotificationFormat.harmless(candidate.description)
            lines.append(description.isEmpty ? word : "\(word)\t\(description)")
        }
        return Output.write(lines.joined(separator: "\n")) ? .done : .outputFailed
    }
}

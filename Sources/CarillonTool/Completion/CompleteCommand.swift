// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// `carillon complete -- WORD ...`: prints the possible completions of the last WORD, which is unfinished. The shell
/// scripts in `data/completions` call it; the help does not list it.
///
/// The first line of the output is the kind of the completions:
///
/// - `words`: a line for each word follows, with a tab and a description if the word has one.
/// - `files`: the shell completes file names itself.
///
/// Faulty command lines are not reported, because the user is still typing.
enum CompleteCommand {
    static func run(_ arguments: [String]) throws(UsageError) -> ExitCode {
        // The option parser is not used, because the words belong to another command line.
        guard arguments.first == "--", let current = arguments.last, arguments.count > 1 else {
            throw UsageError("complete is for shells: complete -- WORD ...")
        }
        let line = IncompleteCommandLine(before: arguments[1...].dropLast())
        switch line.completions(for: current) {
        case .files: return Output.write("files") ? .done : .outputFailed
        case .words(let candidates, let prefix): return write(candidates, current, prefix)
        case .known(let kind, let prefix): return write(ServiceCompletions.find(kind), current, prefix)
        }
    }

    /// Prints the candidates that begin with the typed word.
    ///
    /// - Parameters:
    ///   - current: the typed word.
    ///   - prefix: the beginning of the typed word that stays before each candidate.
    private static func write(_ candidates: [Candidate], _ current: String, _ prefix: String) -> ExitCode {
        var lines = ["words"]
        var seen: Set<String> = []
        for candidate in candidates {
            let word = prefix + candidate.word
            // Words with control characters are left out, since shells read one word from each line.
            guard word.utf8.starts(with: current.utf8), word.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }),
                seen.insert(word).inserted
            else { continue }
            let description = NotificationFormat.harmless(candidate.description)
            lines.append(description.isEmpty ? word : "\(word)\t\(description)")
        }
        return Output.write(lines.joined(separator: "\n")) ? .done : .outputFailed
    }
}

// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The poster of `carillon post --lines` and `carillon replay`: it reads lines from a descriptor as they arrive, and
/// posts one notification for each on one connection.
///
/// It connects a ``LineReader`` with a ``PostStream``, and pauses the reader while too many posts are unanswered. An
/// invalid line, or a line whose post is refused, is reported with its number; the other lines are posted nevertheless.
final class LinePoster {
    /// Converts a line to a post and its delay after the first post; nil if the line contains no post.
    typealias Conversion = (_ line: String) throws(UsageError) -> (outgoing: OutgoingPost, delay: Duration)?

    private let session: CommandSession
    private let source: String
    private let convert: Conversion
    private var stream: PostStream!
    private var reader: LineReader!
    private var lineNumber = 0

    /// - Parameters:
    ///   - source: the name of the file, the prefix of line numbers in error messages; empty for standard input.
    ///   - showsProgress: whether a terminal shows the number of posts so far.
    ///   - report: receives the number of clients that each post matched.
    ///   - convert: converts a line to a post.
    init(
        session: CommandSession, reading descriptor: Int32, source: String = "", showsProgress: Bool,
        report: @escaping (Int) -> Void, convert: @escaping Conversion
    ) {
        self.session = session
        self.source = source
        self.convert = convert
        stream = PostStream(session: session, showsProgress: showsProgress, report: report) { [unowned self] in
            reader.resume()
        }
        reader = LineReader(descriptor) { [unowned self] in
            take($0)
        } ended: { [unowned self] end in
            switch end {
            case .ofInput: break
            case .tooLong: stream.fail("the line is too long", label(lineNumber + 1))
            case .failure(let reason): stream.fail(reason, source.isEmpty ? "standard input" : source)
            }
            stream.end()
        }
    }

    func start() { stream.start() }

    /// Converts and posts a line.
    private func take(_ line: ArraySlice<UInt8>) {
        lineNumber += 1
        do throws(UsageError) {
            guard let text = String(validating: line, as: UTF8.self) else { throw UsageError("it is not valid UTF-8") }
            guard let (outgoing, delay) = try convert(text) else { return }
            stream.add(PostStream.Item(outgoing: outgoing, label: label(lineNumber), delay: delay))
            if stream.isFull { reader.pause() }
        } catch {
            stream.fail("\(error)", label(lineNumber))
        }
    }

    /// Returns the name of a line in error messages.
    private func label(_ number: Int) -> String { source.isEmpty ? "line \(number)" : "\(source):\(number)" }
}

import DBus
import MainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon post --lines`: posts once for each line of standard input, as it comes, on one connection.
///
/// A line that is wrong, or whose post is refused, is reported with its number; the others are posted all the same.
final class LinePoster: PolledSourceDelegate {
    /// Posts without an answer at most; more lines are not read until some have one.
    private static let window = 256
    /// A line beyond it can't be posted anyway: it is larger than any userInfo.
    private static let longestLine = 80 << 20

    private let session: BusSession
    private let post: PostArguments
    private var source: PolledSource!
    /// The registration of standard input, while it is read.
    private var tag: PolledSource.Tag?
    private var input: [UInt8] = []
    private var lineNumber = 0
    private var unanswered = 0
    private var hasEnded = false
    private var hasFailed = false

    init(session: BusSession, post: PostArguments) {
        self.session = session
        self.post = post
    }

    func start() {
        session.finishWhenInterrupted { .interrupted }
        source = PolledSource(delegate: self, priority: .default, context: session.connection.context)
        read()
    }

    private func read() {
        guard tag == nil, !hasEnded else { return }
        tag = source.add(descriptor: STDIN_FILENO, waitingFor: [.readable, .hangUp, .error])
    }

    private func pause() {
        if let tag { source.remove(tag) }
        tag = nil
    }

    func hasPendingWork() -> Bool { false }

    func dispatch() {
        if let tag, !source.occurred(on: tag).isEmpty { takeInput() }
    }

    private func takeInput() {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
        if count < 0, errno == EINTR || errno == EAGAIN { return }
        guard count > 0 else {
            hasEnded = true
            pause()
            if !input.isEmpty { take(line: input[...]) }
            input = []
            return finishIfDone()
        }
        input += buffer[..<count]
        var rest = input[...]
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            take(line: rest[..<end])
            rest = rest[(end + 1)...]
        }
        input = Array(rest)
        if input.count > Self.longestLine {
            fail("the line is too long")
            return session.finish(.usage)
        }
        if unanswered >= Self.window { pause() }
    }

    private func take(line: ArraySlice<UInt8>) {
        lineNumber += 1
        let number = lineNumber
        do throws(UsageError) {
            guard let text = String(validating: line, as: UTF8.self) else { throw UsageError("it is no UTF-8") }
            let message = try post.message(adding: try UserInfoArguments.userInfo(line: text))
            unanswered += 1
            session.connection.call(message) { [self] result in
                unanswered -= 1
                switch result {
                case .success(let reply): post.report(reply)
                case .failure(let error) where error.name.rawValue.hasPrefix("org.carillon.Error."):
                    fail(error.message, line: number)
                case .failure(let error): return session.fail(error)
                }
                if unanswered < Self.window / 2 { read() }
                finishIfDone()
            }
        } catch {
            fail("\(error)", line: number)
        }
    }

    private func fail(_ reason: String, line: Int? = nil) {
        hasFailed = true
        printError("carillon: line \(line ?? lineNumber + 1): \(reason)")
    }

    private func finishIfDone() {
        if hasEnded, unanswered == 0 { session.finish(hasFailed ? .usage : .done) }
    }
}

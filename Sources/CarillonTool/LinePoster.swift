import DBus
import MainLoop
import ServiceClient

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// `carillon post --lines`: posts once for each line of standard input, as it comes, on one connection.
///
/// A line that is wrong, or whose post is refused, is reported with its number; the others are posted all the same.
final class LinePoster: PolledSourceDelegate, @unchecked Sendable {
    // Sendable: the command has one thread.
    /// Posts without an answer at most; more lines are not read until some have one.
    private static let window = 256
    /// A line beyond it can't be posted anyway: it is larger than any userInfo.
    private static let longestLine = 80 << 20

    private let session: CommandSession
    private let post: PostArguments
    private var source: PolledSource!
    /// The registration of standard input, while it is read.
    private var tag: PolledSource.Tag?
    private var input: [UInt8] = []
    private var lineNumber = 0
    private var unanswered = 0
    private var hasEnded = false
    private var hasFailed = false

    init(session: CommandSession, post: PostArguments) {
        self.session = session
        self.post = post
    }

    func start() {
        session.finishWhenInterrupted { .interrupted }
        source = PolledSource(delegate: self, priority: .default, context: .default)
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
            let outgoing = try post.outgoing(adding: try UserInfoArguments.userInfo(line: text))
            unanswered += 1
            session.submit(.post(outgoing.completed { [self] in answered($0, line: number) }))
        } catch {
            fail("\(error)", line: number)
        }
    }

    private func answered(_ result: Result<Int, ServiceError>, line: Int) {
        unanswered -= 1
        switch result {
        case .success(let receivers): post.report(receivers, on: session)
        case .failure(.refused(let error)) where error.isRefusal: fail(error.message, line: line)
        case .failure(let error): return session.fail(error)
        }
        if unanswered < Self.window / 2 { read() }
        finishIfDone()
    }

    private func fail(_ reason: String, line: Int? = nil) {
        hasFailed = true
        printError("carillon: line \(line ?? lineNumber + 1): \(reason)")
    }

    private func finishIfDone() {
        if hasEnded, unanswered == 0 { session.finish(hasFailed ? .usage : .done) }
    }
}

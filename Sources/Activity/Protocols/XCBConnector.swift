// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Synchronization

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// An attempt to connect to an X server, on a thread of its own: it loads libxcb and calls `xcb_connect`, which blocks
/// as long as the server does not answer. ``X11Source`` starts it; the result arrives on the loop's thread.
///
/// The thread ends with the attempt, and uses no part of the service except this object. There is at most one attempt
/// at a time, so a server that never answers blocks only one thread.
final class XCBConnector: PolledSourceDelegate, @unchecked Sendable {
    // Sendable: the thread uses `outcome`, which has a lock, and the write end, which is set before it starts. All
    // other members belong to the thread of the loop.
    typealias Success = (library: XCBLibrary, connection: XCBLibrary.Connection, screen: Int32)

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// The state that the two threads share.
    private struct Outcome: @unchecked Sendable {
        // Sendable: a connection has one owner at a time, and libxcb locks it; it passes to the loop's thread once.
        var result: Result<Success, Failure>?
        /// Whether the result is not wanted any more.
        var isAbandoned = false
    }

    /// Whether any attempt of this process is running.
    private static let isRunning = Mutex(false)

    private let display: String
    private let completion: (Result<Success, Failure>) -> Void
    private let outcome = Mutex(Outcome())
    /// The ends of a pipe. The thread writes a byte to wake the loop when it has finished.
    private let readEnd: Int32
    private let writeEnd: Int32
    private var source: PolledSource?

    /// Starts an attempt.
    ///
    /// - Parameters:
    ///   - display: The value of DISPLAY.
    ///   - authority: The file with the server's cookie; nil for the default file.
    ///   - completion: Called from the loop, unless ``abandon()`` was called before. It takes ownership of the
    ///     connection.
    /// - Returns: nil if an earlier attempt is still running, or the system cannot create a thread.
    static func start(
        display: String, authority: String?, context: MainContext,
        completion: @escaping (Result<Success, Failure>) -> Void
    ) -> XCBConnector? {
        var ends: [Int32] = [-1, -1]
        guard isRunning.withLock({ !$0 }), pipe(&ends) == 0 else { return nil }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        let connector = XCBConnector(display, ends, completion)
        let source = PolledSource(delegate: connector, priority: .default, context: context)
        _ = source.add(descriptor: ends[0], waitingFor: .readable)
        connector.source = source
        var thread = pthread_t()
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        pthread_attr_setstacksize(&attributes, 256 << 10)
        defer { pthread_attr_destroy(&attributes) }
        isRunning.withLock { $0 = true }
        // libxcb reads the file's path from this variable. It is set before the thread starts, because the environment
        // must not change while another thread reads it.
        if let authority { setenv("XAUTHORITY", authority, 1) }
        let box = Unmanaged.passRetained(connector).toOpaque()
        guard pthread_create(&thread, &attributes, connectOnThread, box) == 0 else {
            Unmanaged<XCBConnector>.fromOpaque(box).release()
            isRunning.withLock { $0 = false }
            return nil
        }
        return connector
    }

    private init(_ display: String, _ ends: [Int32], _ completion: @escaping (Result<Success, Failure>) -> Void) {
        self.display = display
        self.completion = completion
        (readEnd, writeEnd) = (ends[0], ends[1])
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Abandons the attempt: the completion is not called, and the thread closes the connection when it has one.
    func abandon() {
        source = nil
        let result = outcome.withLock { outcome in
            outcome.isAbandoned = true
            defer { outcome.result = nil }
            return outcome
        }.result
        if case .success(let success)? = result { success.library.disconnect(success.connection) }
    }

    func hasPendingWork() -> Bool { false }

    /// Receives the result, when the thread has written to the pipe.
    func dispatch() {
        source = nil
        let result = outcome.withLock { outcome in
            defer { outcome.result = nil }
            return outcome
        }.result
        if let result { completion(result) }
    }

    /// The body of the thread.
    fileprivate func run() {
        let result = connect()
        Self.isRunning.withLock { $0 = false }
        let isAbandoned = outcome.withLock { outcome in
            if !outcome.isAbandoned { outcome.result = result }
            return outcome.isAbandoned
        }
        if isAbandoned {
            if case .success(let success) = result { success.library.disconnect(success.connection) }
        } else {
            _ = write(writeEnd, [1], 1)
        }
    }

    /// Loads the library and connects; it may block.
    private func connect() -> Result<Success, Failure> {
        do throws(XCBLibrary.Missing) {
            let library = try XCBLibrary()
            var screen: Int32 = 0
            // libxcb documents that the result is never nil: a failed connection carries an error, which is read below.
            // The guard unwraps the optional that Swift makes of each C pointer.
            guard let connection = library.connect(display, &screen) else {
                return .failure(Failure(description: "out of memory"))
            }
            let error = library.hasError(connection)
            guard error == 0 else {
                library.disconnect(connection)
                return .failure(Failure(description: "can't connect to the X server \(display) (error \(error))"))
            }
            return .success((library, connection, screen))
        } catch {
            return .failure(Failure(description: error.description))
        }
    }
}

private func connectOnThread(_ data: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    // The process's signals must be delivered to the loop's thread.
    var signals = sigset_t()
    sigfillset(&signals)
    pthread_sigmask(SIG_SETMASK, &signals, nil)
    Unmanaged<XCBConnector>.fromOpaque(data!).takeRetainedValue().run()
    return nil
}

// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import Synchronization

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Loads libxcb and connects to an X server, on a thread of its own: both may take their time, and `xcb_connect` waits
/// for a server that does not answer for as long as that does not.
///
/// The thread ends with the attempt. It takes nothing of the service along but this object. There is one at a time: a
/// server that never answers holds one thread, however often another attempt is made.
final class XCBConnector: PolledSourceDelegate, @unchecked Sendable {
    // Sendable: the thread uses `outcome`, which has a lock, and the write end, which is set before it starts; the rest
    // belongs to the thread of the loop.
    typealias Success = (library: XCBLibrary, connection: XCBLibrary.Connection, screen: Int32)

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    private struct Outcome: @unchecked Sendable {
        // Sendable: a connection belongs to whoever has it, and libxcb locks it; it is handed over once.
        var result: Result<Success, Failure>?
        var isAbandoned = false
    }

    private static let isRunning = Mutex(false)

    private let display: String
    private let completion: (Result<Success, Failure>) -> Void
    private let outcome = Mutex(Outcome())
    private let readEnd: Int32
    private let writeEnd: Int32
    private var source: PolledSource?

    /// - Parameters:
    ///   - authority: the file with the server's cookie; nil for the usual one.
    ///   - completion: called from the loop, unless ``abandon()`` comes first. It owns the connection.
    /// - Returns: nil when an earlier attempt has not ended, or the system has no thread for this one.
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
        // By this variable libxcb finds the file. Nobody reads the environment meanwhile: no such thread runs yet.
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

    /// Nobody waits for it any more.
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

    func dispatch() {
        source = nil
        let result = outcome.withLock { outcome in
            defer { outcome.result = nil }
            return outcome
        }.result
        if let result { completion(result) }
    }

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

    private func connect() -> Result<Success, Failure> {
        do throws(XCBLibrary.Missing) {
            let library = try XCBLibrary()
            var screen: Int32 = 0
            // Never nil: a connection that failed has an error instead.
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
    // Signals are for the thread of the loop.
    var signals = sigset_t()
    sigfillset(&signals)
    pthread_sigmask(SIG_SETMASK, &signals, nil)
    Unmanaged<XCBConnector>.fromOpaque(data!).takeRetainedValue().run()
    return nil
}

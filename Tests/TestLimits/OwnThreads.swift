// SPDX-License-Identifier: Apache-2.0
import Glibc

/// Runs each job of a task on a thread of its own, which is over then.
///
/// The pool of tasks has as many threads as the machine has processors. Tests that block would hold them, and a task that
/// awaits something waits for a thread each time that it goes on. One on this executor does not.
public final class OwnThreads: TaskExecutor {
    /// Of no test.
    static let shared = OwnThreads(of: nil)
    /// Of the test that runs, if one does.
    public static var current: OwnThreads { RunningTest.current.map(OwnThreads.init(of:)) ?? shared }

    private let test: RunningTest?

    init(of test: RunningTest?) {
        self.test = test
    }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        startThread { [self] in
            let number = test?.jobBegan()
            job.runSynchronously(on: asUnownedTaskExecutor())
            if let number { test?.jobEnded(number) }
        }
    }
}

/// Runs something on a new thread.
func startThread(_ body: @escaping @Sendable () -> Void) {
    final class Work {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    var thread = pthread_t()
    let code = pthread_create(
        &thread, nil,
        { work in
            Unmanaged<Work>.fromOpaque(work!).takeRetainedValue().body()
            return nil
        }, Unmanaged.passRetained(Work(body)).toOpaque())
    precondition(code == 0, "no thread for a test: \(String(cString: strerror(code)))")
    pthread_detach(thread)
}

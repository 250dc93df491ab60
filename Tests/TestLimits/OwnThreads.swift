// SPDX-License-Identifier: Apache-2.0
import Glibc
import Synchronization

/// Runs each job of a task on a thread that does nothing else meanwhile.
///
/// The pool of tasks has as many threads as the machine has processors. Tests that block would hold them, and a task that
/// awaits something waits for a thread each time that it goes on. One on this executor does not.
public final class OwnThreads: TaskExecutor {
    /// Of no test.
    public static let shared = OwnThreads(of: nil)

    private let test: RunningTest?

    init(of test: RunningTest?) {
        self.test = test
    }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        Worker.run { [self] in
            let number = test?.jobBegan()
            job.runSynchronously(on: asUnownedTaskExecutor())
            if let number { test?.jobEnded(number) }
        }
    }
}

/// A thread, which waits for more when it has nothing to do.
private final class Worker: Sendable {
    private static let idle = Mutex<[Worker]>([])
    /// So many wait; others end.
    private static let mostIdle = 32

    private let work: Mutex<(@Sendable () -> Void)?>
    private nonisolated(unsafe) let bell = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)

    static func run(_ work: @escaping @Sendable () -> Void) {
        if let worker = idle.withLock({ $0.popLast() }) {
            worker.work.withLock { $0 = work }
            sem_post(worker.bell)
            return
        }
        var thread = pthread_t()
        let worker = Unmanaged.passRetained(Worker(work))
        let code = pthread_create(
            &thread, nil,
            { worker in
                Unmanaged<Worker>.fromOpaque(worker!).takeRetainedValue().serve()
                return nil
            }, worker.toOpaque())
        precondition(code == 0, "no thread for a test: \(String(cString: strerror(code)))")
        pthread_detach(thread)
    }

    private init(_ work: @escaping @Sendable () -> Void) {
        self.work = Mutex(work)
        sem_init(bell, 0, 0)
    }

    deinit {
        sem_destroy(bell)
        bell.deallocate()
    }

    private func serve() {
        while let work = work.withLock({ $0.take() }) {
            work()
            let isKept = Self.idle.withLock { idle in
                if idle.count < Self.mostIdle { idle.append(self) }
                return idle.last === self
            }
            guard isKept else { return }
            while sem_wait(bell) != 0 {}
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Runs each job of a task on a thread of its own.
///
/// The pool of tasks has as many threads as the machine has processors. Tests that block hold them for seconds, and a
/// task that awaits something waits for a thread each time that it goes on. One on this executor does not.
final class ThreadPerJob: TaskExecutor {
    static let shared = ThreadPerJob()

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        Thread { job.runSynchronously(on: self.asUnownedTaskExecutor()) }.start()
    }
}

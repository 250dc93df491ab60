// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Says at which seed the process was when an assertion ended it, or when it did not come to the end of that.
enum CrashNote {
    /// - Parameters:
    ///   - run: the run in two words.
    ///   - command: shows it.
    ///   - mostSeconds: of processor time, which end the process, as virtual time does not pass in a loop without an end; 0 for
    ///     none.
    static func set(_ run: String, _ command: String, maxSeconds: Int = 0) {
        limit(seconds: maxSeconds)
        if crashText == nil {
            crashText = .allocate(capacity: 512)
            // On a stack of its own: it may be the stack that is used up.
            var stack = stack_t()
            stack.ss_size = 64 << 10
            stack.ss_sp = .allocate(byteCount: stack.ss_size, alignment: 16)
            sigaltstack(&stack, nil)
            var action = sigaction()
            action.__sigaction_handler.sa_handler = writeCrashText
            action.sa_flags = SA_ONSTACK
            for number in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT, SIGPROF, SIGALRM] {
                sigaction(number, &action, nil)
            }
        }
        let text = "\(run) ended the process\n  to see it: \(command)\n"
        crashTextLength = text.utf8.count
        text.withCString { _ = strcpy(crashText!, $0) }
    }

    /// Ends the process after so much processor time from now on, 0 for never; and after ten times as much real time,
    /// where it waits for something that never comes.
    static func limit(seconds: Int) {
        alarm(UInt32(seconds) * 10)
        var time = itimerval()
        time.it_value.tv_sec = seconds
        #if canImport(Glibc)
            setitimer(Int32(ITIMER_PROF.rawValue), &time, nil)
        #else
            setitimer(ITIMER_PROF, &time, nil)
        #endif
    }
}

// One thread, and a signal handler that only reads.
nonisolated(unsafe) private var crashText: UnsafeMutablePointer<CChar>?
nonisolated(unsafe) private var crashTextLength = 0
private let timeText: StaticString = "it went on for too long:\n"

private func writeCrashText(_ number: Int32) {
    if number == SIGPROF || number == SIGALRM {
        _ = write(STDERR_FILENO, timeText.utf8Start, timeText.utf8CodeUnitCount)
    }
    _ = write(STDERR_FILENO, crashText, crashTextLength)
    signal(number, SIG_DFL)
    raise(number)
}

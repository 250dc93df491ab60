#if THREAD_SANITIZER
    import MainLoop

    // As MainLoop's file of this name says.
    typealias Mutex<Value: ~Copyable> = SanitizedMutex<Value>
#endif

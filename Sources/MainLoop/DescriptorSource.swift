// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// A source on a ``MainContext`` that runs its action while a descriptor is readable, in some modes only (M3). The main
/// dispatch queue on GLib's loop uses it, and so does the terminal of `carillon top`.
///
/// While the action may not run, the descriptor is not polled, because a readable descriptor would wake the loop again
/// and again. The action may run for 2 ms in each cycle of the loop (``LoopCycles``), in addition to the budget of the
/// sharing sources. Then the source *rests*: it is not ready until the next cycle. A nested loop inside the action does
/// not run the action again.
///
/// Threads: create and release it on any thread.
package final class DescriptorSource: Sendable {
    private let source: AttachedSource

    /// - Parameters:
    ///   - descriptor: the descriptor, which the caller keeps. If it is closed or becomes invalid, the source ends by
    ///     itself.
    ///   - modes: the modes in which the action may run; nil means every mode.
    ///   - onMainThreadOnly: whether the source ignores the descriptor while another thread runs the context.
    ///   - action: called on the thread that runs `context`.
    package init(
        on context: MainContext, descriptor: Int32, priority: EventSource.Priority = .default,
        modes: Set<RunLoopMode>? = [.common], onMainThreadOnly: Bool = false, action: @escaping @Sendable () -> Void
    ) {
        CycleSources.install(on: context)
        let core = DescriptorCore(
            context: context.state, descriptor: descriptor, modes: modes, onMainThreadOnly: onMainThreadOnly,
            action: action)
        source = AttachedSource(core, on: context, priority: priority)
    }
}

/// The state of a ``DescriptorSource``, which GLib's source holds.
private final class DescriptorCore: SourceHandler, @unchecked Sendable {
    // Sendable: only the thread that runs the context uses the variables; GLib's lock of the context orders the
    // accesses.
    private let context: ContextState
    private let descriptor: Int32
    private let gate: ModeGate?
    private let onMainThreadOnly: Bool
    private let action: @Sendable () -> Void
    /// The registration of the descriptor, while it is polled.
    private var tag: gpointer?
    /// The cycle in which the source rests; nil before the first rest.
    private var restingCycle: LoopCycles.Number?
    /// The running time of the action in its last cycle, in nanoseconds, and the number of that cycle.
    private var used: Int64 = 0
    private var usedCycle: LoopCycles.Number = -1
    /// Whether the descriptor was closed or reported an error; the source then ends.
    private var isInvalid = false

    init(
        context: ContextState, descriptor: Int32, modes: Set<RunLoopMode>?, onMainThreadOnly: Bool,
        action: @escaping @Sendable () -> Void
    ) {
        self.context = context
        self.descriptor = descriptor
        gate = modes.map(ModeGate.init)
        self.onMainThreadOnly = onMainThreadOnly
        self.action = action
    }

    private var mayRun: Bool {
        !isInvalid && (gate?.allows(in: ContextModes(context)) ?? true)
            && (!onMainThreadOnly || MainContext.isMainThread)
    }

    func prepare(_ source: Source) -> SourceReadiness {
        context.cycles.iterationBegins()
        let shallPoll = mayRun && restingCycle != context.cycles.number
        if shallPoll, tag == nil {
            tag = g_source_add_unix_fd(source, descriptor, G_IO_IN)
        } else if !shallPoll, let tag {
            // The descriptor leaves the poll completely: poll reports hang-ups and errors even if no condition is
            // awaited, and GLib dispatches a source whose descriptor has anything to report.
            g_source_remove_unix_fd(source, tag)
            self.tag = nil
        }
        // GLib dispatches the source when the descriptor is ready.
        return .waiting
    }

    func dispatch(_ source: Source) -> Bool {
        guard let tag, mayRun else { return true }
        let occurred = g_source_query_unix_fd(source, tag)
        guard occurred.rawValue & (G_IO_NVAL.rawValue | G_IO_ERR.rawValue | G_IO_HUP.rawValue) == 0 else {
            isInvalid = true
            return false
        }
        let cycles = context.cycles
        let began = cycles.clock()
        action()
        let cycle = cycles.number
        used = (usedCycle == cycle ? used : 0) + (cycles.clock() - began)
        usedCycle = cycle
        if used >= ShareMeter.share {
            restingCycle = cycle
            cycles.rest()
        }
        return true
    }
}

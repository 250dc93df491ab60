// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A method that observes, of whichever object: where it has to run, and how it is called there.
package struct ObserverMethod<Target: AnyObject>: @unchecked Sendable {
    // Sendable: a target's method is called only where the program asked for its observer to run.
    private let isolationOf: (Target) -> (any Actor)?
    private let call: (Target, () -> Notification) -> Void

    /// A method that takes the notification.
    package init(_ method: @escaping (Target) -> @isolated(any) (Notification) -> Void) {
        isolationOf = { method($0).isolation }
        call = { target, notification in
            // It runs where its isolation is. The language offers only `await` to call it; the function is the same, as in
            // the standard library's `MainActor.assumeIsolated`.
            unsafeBitCast(method(target), to: ((Notification) -> Void).self)(notification())
        }
    }

    /// A method that takes it as the class of Foundation.
    package init(_ method: @escaping (Target) -> @isolated(any) (NSNotification) -> Void) {
        isolationOf = { method($0).isolation }
        call = { target, notification in
            let value = notification()
            let object = NSNotification(name: value.name, object: value.object, userInfo: value.userInfo)
            unsafeBitCast(method(target), to: ((NSNotification) -> Void).self)(object)
        }
    }

    /// A method that takes nothing.
    package init(_ method: @escaping (Target) -> @isolated(any) () -> Void) {
        isolationOf = { method($0).isolation }
        call = { target, _ in unsafeBitCast(method(target), to: (() -> Void).self)() }
    }

    /// The actor that it has to run on; nil where it may run anywhere.
    package func isolation(of target: Target) -> (any Actor)? {
        isolationOf(target)
    }

    /// Calls it; where it has an isolation, there.
    package func callAsFunction(_ target: Target, _ notification: () -> Notification) {
        call(target, notification)
    }
}

// SPDX-License-Identifier: Apache-2.0
import CCarillonMainQueue

/// Whether the `deinit` of an object has begun, so that no new strong reference to the object may be taken. Threads:
/// any that may use the object.
package func isEnding(_ object: AnyObject) -> Bool {
    swift_isDeallocating(Unmanaged.passUnretained(object).toOpaque())
}

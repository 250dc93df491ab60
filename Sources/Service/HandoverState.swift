// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The handover state: everything that the service takes from one connection to the next, when the bus closed the first
/// and is still running (E5).
///
/// It is the state that would have survived the process, and the queued messages. The state on disk, if any, stays
/// open, so that no other process takes it.
struct HandoverState {
    /// The ID of the bus. Unique names denote the same clients on this bus only.
    let busID: String
    let center: DistributedCenter
    let store: RecoveryStore?
    /// The configuration. The limits in force stay so, also when the files have a fault by now.
    let configuration: ConfigurationKeeper
    /// The connection to other sessions, which continues meanwhile.
    let sessions: Sessions
    /// Calls that were read and not served, in their order.
    let calls: [Message]
    /// The size from which the bus is not known to carry a notification, in bytes (``DistributedCenter/maxBytes``).
    let maxBytes: Int
    /// The size of the largest notification in flight, in bytes; it may be the reason for which the bus closed the
    /// connection.
    let largest: Int
}

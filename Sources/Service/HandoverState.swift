// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The handover state: the state that the service takes to a new connection when the bus has closed the old one and is
/// still running (E5).
///
/// ``ServiceLink/handOver()`` makes it when a link ends, ``Service`` keeps it between two links, and the next link
/// restores it. It has the state that would survive the end of the process, and the method calls that were not served.
/// The recovery log stays open and locked meanwhile, so that no other process takes the state.
struct HandoverState {
    /// The ID of the bus. On another bus the unique names denote other clients, so the state is not used there.
    let busID: String
    /// The core of the ended link, which handles no more events.
    let center: DistributedCenter
    /// The store of the recovery log; nil where no state is persisted.
    let store: RecoveryStore?
    /// The configuration in force. It is not read again, because its files may have a fault by now.
    let configuration: ConfigurationKeeper
    /// The connection to the services of other sessions, which stays open meanwhile.
    let sessions: Sessions
    /// The method calls that were read and not served, in their order.
    let calls: [Message]
    /// The size in bytes from which notifications are not sent but reported as lost, because the bus closes the
    /// connection over them; `Int.max` where no limit is known (``DistributedCenter/maxBytes``).
    let maxBytes: Int
    /// The size of the largest notification in flight, in bytes. It may be the reason why the bus closed the
    /// connection, so the next link tests whether the bus carries this size (``MessageSizeTest``).
    let largest: Int
}

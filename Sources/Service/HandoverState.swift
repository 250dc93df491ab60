// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// What the service takes from one connection to the next, when the bus closed the first and lives on (E5).
///
/// It is what would have survived the process, and what waited for its turn as well. The state on disk, where there is
/// one, stays open, so that nobody else takes it up meanwhile.
struct HandoverState {
    /// Unique names are the same clients on this bus alone.
    let busID: String
    let center: DistributedCenter
    let store: RecoveryStore?
    /// The limits in force stay so, also when the files have a fault now.
    let configuration: ConfigurationKeeper
    /// Which goes on meanwhile.
    let sessions: Sessions
    /// Calls that were read and not served, in their order.
    let calls: [Message]
    /// What the bus is known to carry (``DistributedCenter/maxBytes``).
    let maxBytes: Int
    /// The size of the largest notification that was on its way; it may be why the bus closed the connection.
    let largest: Int
}

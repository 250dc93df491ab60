// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The name, object and origin of a notification. A newer notification of the same key replaces an older one: as a
/// retained value (R1), as a held notification that coalesces (S1), or during a minimum interval (R5).
///
/// The origin is a part of the key, so that a notification from another session or machine never replaces one of this
/// session (G3). Texts are compared byte for byte.
public struct NotificationKey: Hashable, Sendable {
    private let exactName: ExactText
    private let exactObject: ExactText
    /// The session or machine from which the notification came; nil for this session.
    public let origin: OutsideOrigin?

    public var name: String { exactName.text }
    /// The empty string means "no object".
    public var object: String { exactObject.text }

    public init(name: String, object: String, origin: OutsideOrigin? = nil) {
        exactName = ExactText(name)
        exactObject = ExactText(object)
        #if CARILLON_PLANTED
            // Injects a fault, in builds that test whether the simulation finds it (E7).
            var origin = PlantedFault.strikes(.originIgnored) ? nil : origin
            if let host = origin?.host, PlantedFault.strikes(.userIgnored) {
                origin = try? OutsideOrigin(host: host, user: nil)
            }
        #endif
        self.origin = origin
    }
}

extension Notification {
    /// The key of this notification.
    public var key: NotificationKey { NotificationKey(name: name, object: object, origin: identity?.origin) }
}

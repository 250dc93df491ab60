// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The key by which one notification replaces another: as a retained value (R1), as a held notification (S1), or as a
/// notification that waits for an interval (R5). Notifications of different origins never replace each other; this
/// session is an origin too (G3).
public struct NotificationKey: Hashable, Sendable {
    private let exactName: ExactText
    private let exactObject: ExactText
    /// Nil for this session.
    public let origin: OutsideOrigin?

    public var name: String { exactName.text }
    /// The empty string means "no object".
    public var object: String { exactObject.text }

    public init(name: String, object: String, origin: OutsideOrigin? = nil) {
        exactName = ExactText(name)
        exactObject = ExactText(object)
        #if CARILLON_PLANTED
            var origin = PlantedFault.strikes(.placeIgnored) ? nil : origin
            if let host = origin?.host, PlantedFault.strikes(.userIgnored) {
                origin = try? OutsideOrigin(host: host, user: nil)
            }
        #endif
        self.origin = origin
    }
}

extension Notification {
    public var kind: NotificationKey { NotificationKey(name: name, object: object, origin: identity?.origin) }
}

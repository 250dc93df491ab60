// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// What makes one notification take the place of another: as a value (R1), where it is held (S1), or behind an interval
/// (R5). What comes from elsewhere never takes the place of what is of this session, nor of what is from another place (G3).
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

import NotificationCore
import NotificationWire

/// About how much memory a userInfo keeps, in bytes: for bounds on what waits, which need no exact figure.
func approximateByteCount(of userInfo: [String: PropertyList]) -> Int {
    userInfo.reduce(0) { $0 + $1.key.utf8.count + 64 + approximateByteCount(of: $1.value) }
}

private func approximateByteCount(of value: PropertyList) -> Int {
    switch value {
    case .string(let text): text.utf8.count
    case .data(let bytes): bytes.count
    case .array(let elements): elements.reduce(0) { $0 + 32 + approximateByteCount(of: $1) }
    case .dictionary(let entries): approximateByteCount(of: entries)
    default: 0
    }
}

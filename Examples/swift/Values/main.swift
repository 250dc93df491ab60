// SPDX-License-Identifier: Apache-2.0
//
// carillon-example-values [ROOM LEVEL]: sets the lamp of a room; without arguments it prints the lamps of all rooms, whenever one of
// them changes.
import Carillon
import Foundation
import Observation

struct Lamp: Codable, Sendable {
    var level: Int
}

let name = Notification.Name("com.example.Lamp")
let arguments = CommandLine.arguments.dropFirst()
if let room = arguments.first, let level = arguments.dropFirst().first.flatMap({ Int($0) }) {
    let lamp = DistributedValue<Lamp>(named: name, object: room)
    do {
        try await lamp.set(Lamp(level: level))
    } catch {
        FileHandle.standardError.write(Data("values: \(error)\n".utf8))
        exit(1)
    }
} else {
    let lamps = DistributedValues<Lamp>(named: name)
    show(lamps)
    // Changes by other programs come on the main thread, which waits here and not in a blocking call.
    while true { try await Task.sleep(for: .seconds(3_600)) }
}

/// Prints what there is, and again when it has changed.
@MainActor func show(_ lamps: DistributedValues<Lamp>) {
    let rooms = withObservationTracking {
        lamps.values
    } onChange: {
        Task { @MainActor in show(lamps) }
    }
    print(rooms.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value.level)" }.joined(separator: " "))
    fflush(nil)
}

// SPDX-License-Identifier: Apache-2.0
// instead of:
//     let cancellable = DistributedNotificationCenter.default().publisher(for: .init("com.example.x")).sink { _ in }
import Carillon
import Foundation

func publisher() -> DistributedNotificationCenter.Observation {
    DistributedNotificationCenter.default().observe(.init("com.example.x")) { _ in }
}

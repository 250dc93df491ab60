// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

func mainRunLoop() {
    let center = DistributedNotificationCenter.default()
    center.addObserver(forName: .init("com.example.stop"), object: nil, queue: .main) { _ in exit(0) }
    RunLoop.main.run()
}

// SPDX-License-Identifier: Apache-2.0
// unchanged
#if canImport(Carillon)
    import Carillon
#endif
import Foundation

#if os(macOS) || canImport(Carillon)
    let tellsOthers = true

    func tellOthers() { DistributedNotificationCenter.default().post(name: .init("com.example.hello"), object: nil) }
#else
    let tellsOthers = false
    func tellOthers() {}
#endif

// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// The process of the service, for the status of the `carillon` command.
extension ServiceSession {
    /// Asks the bus for the process of the service. `completion` receives nil when the name has no owner, or when the
    /// bus does not report the process.
    public func findServiceProcess(_ completion: @escaping (UInt32?) -> Void) {
        guard let connection else { return completion(nil) }
        connection.nameOwner(of: Wire.busName) { [weak connection] result in
            guard let connection, case .success(let owner) = result else { return completion(nil) }
            connection.processID(of: owner) { result in
                guard case .success(let processID) = result, processID > 0 else { return completion(nil) }
                completion(processID)
            }
        }
    }
}

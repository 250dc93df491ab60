// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// The name of a client, which is the unique name of one D-Bus connection.
public typealias ClientName = UniqueName

// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// A client's name: a client is one D-Bus connection.
public typealias ClientName = UniqueName

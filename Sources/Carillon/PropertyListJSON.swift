// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// Property lists as JSON, as the `carillon` command reads and prints them.
public typealias PropertyListJSON = CarillonWire.PropertyListJSON

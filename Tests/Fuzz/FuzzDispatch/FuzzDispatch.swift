// SPDX-License-Identifier: Apache-2.0
import CarillonFuzzSupport

/// Any messages, in any order, from a few clients, to the object of the service: see the README beside.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    Fuzzer.run(bytes, count) { input in
        let world = World(configuration: input.byte())
        while !input.isAtEnd { world.step(&input) }
        world.finish()
    }
}

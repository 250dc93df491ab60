// SPDX-License-Identifier: Apache-2.0
#ifndef CARILLON_CCBOR_SHIM_H
#define CARILLON_CCBOR_SHIM_H

#include <cbor.h>

#endif

// SPDX-License-Identifier: Apache-2.0
#ifndef CARILLON_CMOSQUITTO_SHIM_H
#define CARILLON_CMOSQUITTO_SHIM_H

#include <mosquitto.h>
#include <mqtt_protocol.h>

#endif

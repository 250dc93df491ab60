// SPDX-License-Identifier: Apache-2.0
// Posts a notification: post [OBJECT [BYTES]]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

#define CENTER "org.carillon.NotificationCenter1"

int main(int argc, char **argv) {
    const char *object = argc > 1 ? argv[1] : "report.txt";
    int64_t bytes = argc > 2 ? strtoll(argv[2], NULL, 10) : 4711;
    sd_bus *bus;
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply;
    uint32_t reached;

    int result = sd_bus_open_user(&bus);
    if (result < 0) {
        fprintf(stderr, "no session bus: %s\n", strerror(-result));
        return 1;
    }
    // Each dictionary begins with the number of its entries; an entry is a key, a type and a value. The option has the
    // service keep it as the value of this name and object, for observers that come later.
    result = sd_bus_call_method(bus, CENTER, "/org/carillon/NotificationCenter1", CENTER, "Post", &error, &reply,
                                "ssa{sv}a{sv}", "com.example.Saved", object,
                                3, "bytes", "x", bytes, "clean", "b", 1, "title", "s", "Annual report — 2026",
                                1, "retain", "b", 1);
    if (result < 0 || (result = sd_bus_message_read(reply, "u", &reached)) < 0) {
        fprintf(stderr, "%s: %s\n", error.name ? error.name : strerror(-result), error.message ? error.message : "");
        return 1;
    }
    printf("reached %u\n", reached);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* A load on mosquitto: MQTT with quality of service 0; LOAD_SERVER is the path of its socket. The poster waits for
 * nothing; the end is posted with quality of service 1, and waited for. */
#include <mosquitto.h>
#include <unistd.h>

#include "load.h"

static struct mosquitto *client;
static struct load load;
static bool connected, acknowledged;
static long subscribed;

static void check(int result) {
    if (result != MOSQ_ERR_SUCCESS) load_fail(mosquitto_strerror(result));
}

static void turn(void) { check(mosquitto_loop(client, 1000, 1)); }

static void on_connect(struct mosquitto *m, void *data, int code) {
    (void)m, (void)data;
    if (code != 0) load_fail(mosquitto_connack_string(code));
    connected = true;
}

static void on_subscribe(struct mosquitto *m, void *data, int id, int count, const int *granted) {
    (void)m, (void)data, (void)id, (void)granted;
    subscribed += count;
}

static void on_publish(struct mosquitto *m, void *data, int id) {
    (void)m, (void)data;
    acknowledged = id == *(int *)data;
}

static void on_message(struct mosquitto *m, void *data, const struct mosquitto_message *message) {
    (void)m, (void)data;
    int64_t number, posted;
    memcpy(&number, message->payload, 8);
    memcpy(&posted, (char *)message->payload + 8, 8);
    if (strcmp(message->topic, load.name) == 0) load_seen(number, posted);
    else if (strcmp(message->topic, load.end) == 0) load_report();
}

/* number, time, data */
static void publish(const char *name, int64_t number, int *id, int quality) {
    static char *body;
    if (!body) body = memset(malloc(16 + (size_t)load.size), 'B', 16 + (size_t)load.size);
    int64_t now = load_now();
    memcpy(body, &number, 8);
    memcpy(body + 8, &now, 8);
    check(mosquitto_publish(client, id, name, 16 + (int)load.size, body, quality, false));
}

static void post(int *last) {
    int64_t cpu = load_cpu(), start = load_now();
    for (long number = 0; number < load.count; number++) {
        load_pace(&load, start, number);
        publish(load.name, number, NULL, 0);
        if (load.rate > 0 || number % 64 == 63) check(mosquitto_loop_write(client, 1));
    }
    publish(load.end, load.count, last, 1);
    while (!acknowledged) turn();
    load_posted(&load, start, cpu);
}

static void subscribe(const char *name, bool waits) {
    static long asked;
    check(mosquitto_subscribe(client, NULL, name, 0));
    asked++;
    while (waits && subscribed < asked) turn();
}

static void observe(void) {
    char other[300];
    for (long i = 0; i < load.others; i++) {
        snprintf(other, sizeof other, "%s.other%ld", load.name, i);
        subscribe(other, i % 256 == 255);
    }
    subscribe(load.name, true);
    subscribe(load.end, true);
    load_ready();
    check(mosquitto_loop_forever(client, -1, 1));
}

int main(int argc, char **argv) {
    int last = 0;
    load = load_options(argc, argv);
    mosquitto_lib_init();
    client = mosquitto_new(NULL, true, &last);
    if (!client) load_fail("no memory");
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_subscribe_callback_set(client, on_subscribe);
    mosquitto_publish_callback_set(client, on_publish);
    mosquitto_message_callback_set(client, on_message);
    check(mosquitto_connect(client, getenv("LOAD_SERVER"), 0, 60));
    while (!connected) turn();
    if (load.observes) observe();
    else post(&last);
    return 0;
}

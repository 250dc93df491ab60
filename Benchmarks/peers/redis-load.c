// SPDX-License-Identifier: Apache-2.0
/* A load on Redis: publish and subscribe, pipelined; LOAD_SERVER is the path of its socket. The poster has the answers
 * turned off, so that it waits for nothing; behind its last post it asks for one. */
#include <hiredis/hiredis.h>

#include "load.h"

static redisContext *redis;
static struct load load;

static void check(int result) {
    if (result != REDIS_OK) load_fail(redis->errstr[0] ? redis->errstr : "out of memory");
}

static redisReply *next_reply(void) {
    void *reply = NULL;
    check(redisGetReply(redis, &reply));
    return reply;
}

static void flush(void) {
    int done = 0;
    while (!done) check(redisBufferWrite(redis, &done));
}

/* number, time, data */
static void publish(const char *name, int64_t number) {
    static char *body;
    if (!body) body = memset(malloc(16 + (size_t)load.size), 'B', 16 + (size_t)load.size);
    int64_t now = load_now();
    memcpy(body, &number, 8);
    memcpy(body + 8, &now, 8);
    check(redisAppendCommand(redis, "PUBLISH %s %b", name, body, 16 + (size_t)load.size));
}

static void post(void) {
    check(redisAppendCommand(redis, "CLIENT REPLY OFF"));
    int64_t cpu = load_cpu(), start = load_now();
    for (long number = 0; number < load.count; number++) {
        load_pace(&load, start, number);
        publish(load.name, number);
        if (load.rate > 0 || number % 64 == 63) flush();
    }
    publish(load.end, load.count);
    check(redisAppendCommand(redis, "CLIENT REPLY ON"));
    freeReplyObject(next_reply());
    load_posted(&load, start, cpu);
}

static void subscribe(const char *name, bool waits) {
    static long unanswered;
    check(redisAppendCommand(redis, "SUBSCRIBE %s", name));
    unanswered++;
    for (; waits && unanswered > 0; unanswered--) freeReplyObject(next_reply());
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
    for (;;) {
        redisReply *reply = next_reply();
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3) load_fail("no message");
        const char *body = reply->element[2]->str;
        int64_t number, posted;
        memcpy(&number, body, 8);
        memcpy(&posted, body + 8, 8);
        if (strcmp(reply->element[1]->str, load.name) == 0) load_seen(number, posted);
        else load_report();
        freeReplyObject(reply);
    }
}

int main(int argc, char **argv) {
    load = load_options(argc, argv);
    redis = redisConnectUnix(getenv("LOAD_SERVER"));
    if (!redis || redis->err) load_fail(redis ? redis->errstr : "no memory");
    if (load.observes) observe();
    else post();
    return 0;
}

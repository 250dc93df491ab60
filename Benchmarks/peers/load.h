// SPDX-License-Identifier: Apache-2.0
/* What the loads of all peers share: the command line, what is in a notification, and the lines of a report. */
#ifndef LOAD_H
#define LOAD_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct load {
    bool observes;
    const char *name;
    char end[256]; /* the name that tells observers that all was posted */
    long others;   /* registrations for other names, before the one that counts */
    long count;
    long size; /* of the data in each, in bytes */
    long rate; /* posts in a second; 0 is as fast as it can */
};

/* observe NAME [--others N] | post NAME [--count N] [--size BYTES] [--rate N] */
static inline struct load load_options(int argc, char **argv) {
    struct load load = {.count = 1000, .size = 100};
    if (argc < 3 || (argc - 3) % 2 != 0) {
        fprintf(stderr, "usage: %s observe|post NAME [--others N] [--count N] [--size BYTES] [--rate N]\n", argv[0]);
        exit(1);
    }
    load.observes = strcmp(argv[1], "observe") == 0;
    load.name = argv[2];
    snprintf(load.end, sizeof load.end, "%s.end", load.name);
    for (int i = 3; i < argc; i += 2) {
        long value = strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--others") == 0) load.others = value;
        if (strcmp(argv[i], "--count") == 0) load.count = value;
        if (strcmp(argv[i], "--size") == 0) load.size = value;
        if (strcmp(argv[i], "--rate") == 0) load.rate = value;
    }
    return load;
}

static inline void load_fail(const char *what) {
    fprintf(stderr, "load: %s\n", what);
    exit(2);
}

/* Nanoseconds of the clock that all processes of a machine share. */
static inline int64_t load_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Microseconds of processor time that this process has used. */
static inline int64_t load_cpu(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
}

/* Waits until the post with this number is due. */
static inline void load_pace(const struct load *load, int64_t start, long number) {
    if (load->rate <= 0) return;
    int64_t due = start + (int64_t)number * 1000000000 / load->rate;
    struct timespec time = {due / 1000000000, due % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static inline void load_posted(const struct load *load, int64_t first, int64_t cpu) {
    printf("posted=%ld first-at=%" PRId64 " last-at=%" PRId64 " cpu-us=%" PRId64 "\n", load->count, first, load_now(),
           load_cpu() - cpu);
    fflush(stdout);
}

/* What an observer has seen since the last report. */
static struct {
    int64_t received, missed, faults, next, first, last, cpu;
    int64_t *latencies;
    size_t room;
} seen;

static inline void load_ready(void) {
    seen.cpu = load_cpu();
    printf("ready\n");
    fflush(stdout);
}

/* A notification with that number, which was posted at that time. What is out of order or comes twice is a fault. */
static inline void load_seen(int64_t number, int64_t posted) {
    seen.last = load_now();
    if (seen.received == 0) seen.first = seen.last;
    if (number < seen.next) seen.faults++;
    if (number > seen.next) seen.missed += number - seen.next;
    seen.next = number + 1;
    if ((size_t)seen.received == seen.room) {
        seen.room = seen.room ? 2 * seen.room : 65536;
        seen.latencies = realloc(seen.latencies, seen.room * sizeof *seen.latencies);
        if (!seen.latencies) load_fail("no memory");
    }
    seen.latencies[seen.received++] = seen.last - posted;
}

static inline int load_compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* All was posted: tells what was seen, and begins anew. */
static inline void load_report(void) {
    if (seen.received == 0) return; /* an end that was posted again */
    int64_t cpu = load_cpu();
    qsort(seen.latencies, (size_t)seen.received, sizeof *seen.latencies, load_compare);
    printf("received=%" PRId64 " missed=%" PRId64 " faults=%" PRId64 " first-at=%" PRId64 " last-at=%" PRId64
           " cpu-us=%" PRId64 " p50=%" PRId64 " p99=%" PRId64 "\n",
           seen.received, seen.missed, seen.faults, seen.first, seen.last, cpu - seen.cpu,
           seen.latencies[seen.received / 2], seen.latencies[seen.received * 99 / 100]);
    fflush(stdout);
    seen.received = seen.missed = seen.faults = seen.next = 0;
    seen.cpu = load_cpu();
}

#endif
